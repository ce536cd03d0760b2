package supervisor

import (
	"sync"
	"time"
)

// ringLines and ringBytes bound the engine output that is remembered.
const (
	ringLines = 4096
	ringBytes = 1 << 20
)

// ring keeps the last lines of output, by number and by size. Not safe for concurrent use.
type ring struct {
	lines []Line // oldest first
	bytes int
	next  uint64
}

func (r *ring) add(at time.Time, text string) {
	r.next++
	r.lines = append(r.lines, Line{Seq: r.next, At: at, Text: text})
	r.bytes += len(text)
	drop := 0
	for len(r.lines)-drop > ringLines || r.bytes > ringBytes {
		r.bytes -= len(r.lines[drop].Text)
		drop++
	}
	r.lines = r.lines[drop:]
}

// after returns at most limit lines with a number above seq, oldest first, and whether older ones are gone. A limit of
// 0 or less means all.
func (r *ring) after(seq uint64, limit int) (lines []Line, lost bool) {
	if len(r.lines) == 0 || seq >= r.next {
		return nil, false
	}
	first := r.lines[0].Seq
	from := 0
	if seq >= first {
		from = int(seq - first + 1)
	} else {
		lost = seq+1 < first
	}
	rest := r.lines[from:]
	if limit > 0 && len(rest) > limit {
		rest = rest[:limit]
	}
	return append([]Line(nil), rest...), lost
}

// output takes what the engine prints: it fills the ring and the tracker, and never waits for anybody. Any number of
// readers may look on.
type output struct {
	now func() time.Time

	mu     sync.Mutex
	ring   ring
	split  splitter
	track  *tracker
	heard  time.Time // when anything was last printed
	bytes  uint64
	wakeup chan struct{} // capacity 1: something changed that the owner wants to see
}

func newOutput(now func() time.Time) *output {
	return &output{now: now, wakeup: make(chan struct{}, 1)}
}

// begin starts a launch: a fresh tracker, the same ring.
func (o *output) begin(t *tracker, secrets []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.track = t
	o.split = splitter{clean: cleaner(secrets)}
	o.heard = o.now()
}

// Write takes a piece of output; it always succeeds.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	now := o.now()
	o.heard = now
	o.bytes += uint64(len(p))
	changed := false
	o.split.feed(now, p, func(text string, _ bool) { changed = o.line(now, text) || changed })
	o.mu.Unlock()
	if changed {
		notify(o.wakeup)
	}
	return len(p), nil
}

// end takes what is left when the output is over.
func (o *output) end() {
	o.mu.Lock()
	now := o.now()
	o.split.flush(func(text string, _ bool) { o.line(now, text) })
	o.mu.Unlock()
	notify(o.wakeup)
}

// note adds a line of our own.
func (o *output) note(text string) {
	o.mu.Lock()
	o.ring.add(o.now(), "admitd: "+text)
	o.mu.Unlock()
}

func (o *output) line(now time.Time, text string) (changed bool) {
	if text == "" {
		return false
	}
	o.ring.add(now, text)
	return o.track != nil && o.track.line(now, text)
}

// advance tells the tracker of a phase that no line shows.
func (o *output) advance(phase string) {
	o.mu.Lock()
	if o.track != nil {
		o.track.advance(o.now(), phase)
	}
	o.mu.Unlock()
}

// finish ends the current phase at now.
func (o *output) finish(now time.Time) {
	o.mu.Lock()
	if o.track != nil {
		o.track.finish(now)
	}
	o.mu.Unlock()
}

// view returns a copy of what the lines of this launch have shown, and when the engine last printed anything.
func (o *output) view() (facts, time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.track == nil {
		return facts{}, o.heard
	}
	return o.track.copy(), o.heard
}

// tail returns the last n lines that were printed since the launch's first line after seq.
func (o *output) tail(seq uint64, n int) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines, _ := o.ring.after(seq, 0)
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	text := make([]string, len(lines))
	for i, l := range lines {
		text[i] = l.Text
	}
	return text
}

func (o *output) seq() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ring.next
}

func (o *output) logs(after uint64, limit int) ([]Line, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ring.after(after, limit)
}
