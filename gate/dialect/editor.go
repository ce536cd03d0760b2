package dialect

import "slices"

// maxHeld bounds what is held back of an event that may have to be dropped. A chunk with usage alone takes less
// than a kilobyte; what grows beyond the bound is something else and is let go.
const maxHeld = 64 << 10

// editor makes the forwarded bytes out of the chunks, for responses in which something is replaced or dropped.
// All methods do nothing on a nil editor.
type editor struct {
	// model is the JSON string that replaces model names; "" leaves them.
	model string
	// hold is true when events must be held until it is known whether they are dropped.
	hold bool

	chunk []byte
	// from is the first byte of chunk that is not in out yet.
	from    int
	cutting bool
	out     []byte
	// held is where in out the undecided event begins; -1 when there is none.
	held int
	// tail is true when held is not the beginning of an event but the closing bracket of the one before, into which a
	// field of the undecided event may have to go; next is then where behind held that event begins, 0 before it has.
	tail bool
	next int
	// carry is the undecided part of earlier chunks.
	carry []byte
	// lf says what becomes of a line feed that comes next and belongs to the line end before it.
	lf lineFeedFate
}

type lineFeedFate uint8

const (
	lfStays   lineFeedFate = iota // where its line is
	lfFreed                       // with what was let go
	lfDropped                     // with what was dropped
)

// begin starts a chunk.
func (e *editor) begin(p []byte) {
	e.chunk, e.from = p, 0
	e.out = append(e.out[:0], e.carry...)
	if e.held >= 0 {
		e.held = 0
	}
	e.carry = e.carry[:0]
}

// end finishes the chunk and returns what can be forwarded; it stays valid until the next begin.
func (e *editor) end() []byte {
	e.advance(len(e.chunk))
	e.chunk = nil
	if e.held >= 0 && len(e.out)-e.held > maxHeld {
		e.release()
	}
	if e.held < 0 {
		return e.out
	}
	e.carry = append(e.carry, e.out[e.held:]...)
	return e.out[:e.held]
}

// advance copies the chunk up to at.
func (e *editor) advance(at int) {
	if at <= e.from {
		return
	}
	if !e.cutting {
		e.out = append(e.out, e.chunk[e.from:at]...)
	}
	e.from = at
}

// cut begins a string that is replaced, at its opening quote.
func (e *editor) cut(at int) {
	if e == nil || e.model == "" {
		return
	}
	e.advance(at)
	e.out = append(e.out, e.model...)
	e.cutting = true
}

// resume ends it, behind the closing quote.
func (e *editor) resume(at int) {
	if e == nil || !e.cutting {
		return
	}
	e.advance(at)
	e.cutting = false
}

// startEvent begins an event at its first byte.
func (e *editor) startEvent(at int) {
	if e == nil {
		return
	}
	if !e.hold {
		return
	}
	e.advance(at)
	if e.tail {
		e.next = len(e.out) - e.held
		return
	}
	e.held = len(e.out)
}

// holdTail holds the end of an event, from its closing bracket on, until it is known what the next one is.
func (e *editor) holdTail(at int) {
	if e == nil || !e.hold {
		return
	}
	e.advance(at)
	e.held, e.tail, e.next = len(e.out), true, 0
}

// release lets go of all that is held.
func (e *editor) release() { e.held, e.tail, e.next = -1, false, 0 }

// keepLine lets go of what stands before the event's data, such as comments.
func (e *editor) keepLine(end int) {
	if e == nil || e.held < 0 {
		return
	}
	e.advance(end)
	e.release()
	e.held, e.lf = len(e.out), lfFreed
}

// keepEvent decides that the event stays.
func (e *editor) keepEvent() {
	if e != nil {
		e.release()
	}
}

// endEvent ends the event behind its blank line. print is the fingerprint of an event to drop, "" when it has none: it
// goes into the event before, where it would have stood.
func (e *editor) endEvent(end int, drop bool, stamp string) {
	if e == nil {
		return
	}
	e.cutting = false
	e.advance(end)
	if e.tail && e.next == 0 {
		return // the event whose tail is held
	}
	if drop && e.held >= 0 {
		e.out = e.out[:e.held+e.next]
		if e.tail && stamp != "" {
			e.out = slices.Insert(e.out, e.held, []byte(`,"system_fingerprint":"`+stamp+`"`)...)
		}
		e.lf = lfDropped
	}
	e.release()
}

// endLine is called at every line end, before what the line means is known.
func (e *editor) endLine() {
	if e != nil {
		e.lf = lfStays
	}
}

// lineFeed handles the line feed behind the carriage return that ended the last line.
func (e *editor) lineFeed(at int) {
	if e == nil {
		return
	}
	switch e.lf {
	case lfFreed:
		e.advance(at + 1)
		e.held = len(e.out)
	case lfDropped:
		e.advance(at)
		e.from = at + 1
	}
}
