package dialect

import "bytes"

const (
	maxFieldName = 8
	maxEventName = 48
	// doneMark ends a stream of the OpenAI dialects.
	doneMark = "[DONE]"
)

// sseReader splits a text/event-stream (WHATWG HTML, section 9.2) into events, whatever the chunks and line ends
// are. It keeps no event: data goes on to the skimmer as it comes.
type sseReader struct {
	state lineState
	// afterCR is true behind a carriage return, whose line feed is still part of the same line end.
	afterCR bool
	// inBlock is true from an event's first byte to its blank line.
	inBlock bool
	field   [maxFieldName]byte
	// fieldLen is maxFieldName+1 when the name is longer.
	fieldLen int
	name     [maxEventName]byte
	nameLen  int
	// fields is true when the event has a line that is no comment.
	fields bool
	// lines counts the event's data lines, dataLen the bytes in them; head is where the data begins.
	lines, dataLen int
	// joined is false between the beginning of a further data line and its first byte.
	joined bool
	head   [len(doneMark)]byte
}

type lineState uint8

const (
	lineStart lineState = iota
	lineField
	lineSpace // behind the colon, where one space may come
	lineData
	lineName
	lineOther
	lineComment
)

// readSSE takes the next bytes of the stream, p[from:].
func (f *Filter) readSSE(p []byte, from int) {
	r := &f.sse
	for i := from; i < len(p); {
		c := p[i]
		if r.afterCR {
			r.afterCR = false
			if c == '\n' {
				f.ed.lineFeed(i)
				i++
				continue
			}
		}
		switch {
		case c == '\n' || c == '\r':
			r.afterCR = c == '\r'
			i++
			f.endLine(i)
		case r.state == lineStart:
			f.startLine(i)
		case r.state == lineField:
			r.readField(c)
			i++
		case r.state == lineSpace:
			r.afterColon()
			if c == ' ' {
				i++
			}
		default:
			end := lineEnd(p, i)
			f.lineBytes(p[i:end], i)
			i = end
		}
	}
}

func lineEnd(p []byte, i int) int {
	end := len(p)
	if n := bytes.IndexByte(p[i:], '\n'); n >= 0 {
		end = i + n
	}
	if n := bytes.IndexByte(p[i:end], '\r'); n >= 0 {
		end = i + n
	}
	return end
}

// startLine begins a line that is not blank.
func (f *Filter) startLine(at int) {
	r := &f.sse
	if !r.inBlock {
		r.inBlock = true
		f.ed.startEvent(at)
	}
	r.fieldLen, r.state = 0, lineField
}

func (r *sseReader) readField(c byte) {
	switch {
	case c == ':' && r.fieldLen == 0:
		r.state = lineComment
	case c == ':':
		r.state = lineSpace
	case r.fieldLen < maxFieldName:
		r.field[r.fieldLen] = c
		r.fieldLen++
	default:
		r.fieldLen = maxFieldName + 1
	}
}

// afterColon chooses what to do with the line's value.
func (r *sseReader) afterColon() {
	r.state = lineOther
	if r.fieldLen > maxFieldName {
		return
	}
	switch string(r.field[:r.fieldLen]) {
	case "data":
		r.state, r.joined = lineData, r.lines == 0
		r.lines++
	case "event":
		r.state, r.nameLen = lineName, 0
	}
}

// lineBytes takes bytes of a line's value; at is where they stand in the chunk.
func (f *Filter) lineBytes(b []byte, at int) {
	r := &f.sse
	switch r.state {
	case lineName:
		r.nameLen += copy(r.name[r.nameLen:], b)
	case lineData:
		if !r.joined {
			// The line feed between two data lines is white space to JSON.
			f.skim.feed([]byte{'\n'}, at)
			r.joined = true
		}
		if r.dataLen < len(r.head) {
			copy(r.head[r.dataLen:], b)
		}
		r.dataLen += len(b)
		f.skim.feed(b, at)
	}
}

// endLine ends a line; end is the place behind its terminator.
func (f *Filter) endLine(end int) {
	r := &f.sse
	if end > 0 {
		// A string that a line end breaks off is no JSON; what was to be replaced ends here.
		f.ed.resume(end - 1)
	}
	f.ed.endLine()
	switch r.state {
	case lineStart:
		f.endEvent(end)
		return
	case lineSpace:
		r.afterColon()
	case lineComment:
		if !r.fields {
			f.ed.keepLine(end)
		}
		r.state = lineStart
		return
	}
	r.fields, r.state = true, lineStart
}

// endEvent handles the blank line behind an event.
func (f *Filter) endEvent(end int) {
	r := &f.sse
	if !r.inBlock {
		return
	}
	drop, stamp := false, f.obs.ev.print
	if r.lines > 0 {
		drop = f.dispatchSSE()
	}
	if drop && checkJSON([]byte(`"`+stamp+`"`)) != nil {
		// What is no JSON, a line end in it for instance, would break the event that it is put into.
		stamp = ""
	}
	f.ed.endEvent(end, drop, stamp)
	r.inBlock, r.fields, r.lines, r.dataLen, r.nameLen = false, false, 0, 0, 0
	f.skim.reset()
}

// dispatchSSE evaluates an event and reports whether it must not be forwarded.
func (f *Filter) dispatchSSE() (drop bool) {
	r := &f.sse
	if r.dataLen == len(doneMark) && string(r.head[:]) == doneMark {
		f.obs.markDone()
		return false
	}
	complete := f.skim.state == skimDone
	drop = complete && f.o.StripUsage && f.obs.isUsageOnly()
	f.obs.dispatch(r.name[:r.nameLen], complete)
	return drop
}
