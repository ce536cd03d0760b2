package dialect

import "bytes"

const (
	// maxLive bounds how deep the skimmer follows members that matter.
	maxLive = 12
	// maxKey bounds a member name that can matter, in bytes as written.
	maxKey = 48
	// maxScalar bounds what is kept of a string or number that matters, in bytes as written.
	maxScalar = 1024
)

// skimmer reads one JSON object in pieces of any size. It follows the members that nodes name, skips all others
// by their brackets and quotes alone, and holds a fixed amount of memory whatever it is fed.
type skimmer struct {
	obs *observer
	ed  *editor // nil when nothing is rewritten

	state skimState
	stack [maxLive]skimFrame
	depth int
	// skipped is the depth below a container that does not matter.
	skipped int
	// esc is true behind a backslash; inSkip is true for a string below a skipped container.
	esc, inSkip bool
	// cur is the node of the value that comes next or is being read.
	cur node

	key    [maxKey]byte
	keyLen int // maxKey+1 when the name is longer
	val    [maxScalar]byte
	valLen int
	// filled is the length of the string as written, kept or not.
	filled int
}

type skimFrame struct {
	node  node
	array bool
}

type skimState uint8

const (
	skimStart   skimState = iota // nothing but white space yet
	skimValue                    // a value or the end of an array comes
	skimName                     // a member name or the end of an object comes
	skimInName                   // inside a member name
	skimColon                    // a colon comes
	skimString                   // inside a string
	skimLiteral                  // inside a number, true, false or null
	skimAfter                    // a comma or the end of the container comes
	skimSkip                     // below a container that does not matter
	skimDone                     // the value is complete
	skimBad                      // not JSON
)

func (s *skimmer) reset() {
	s.state, s.depth, s.skipped, s.esc, s.inSkip = skimStart, 0, 0, false, false
}

// feed reads the next piece. base is where p[0] stands in the chunk that the editor works on.
func (s *skimmer) feed(p []byte, base int) {
	for i := 0; i < len(p); {
		switch s.state {
		case skimString, skimInName:
			i = s.readString(p, i, base)
		case skimSkip:
			i = s.skip(p, i)
		case skimLiteral:
			i = s.readLiteral(p, i)
		case skimDone, skimBad:
			return
		default:
			if c := p[i]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
				s.token(c, base+i)
			}
			i++
		}
	}
}

// token handles one structural byte outside strings and literals.
func (s *skimmer) token(c byte, at int) {
	switch s.state {
	case skimStart:
		s.cur = nodeRoot
		s.open(c, at)
	case skimValue:
		s.open(c, at)
	case skimName:
		switch c {
		case '"':
			s.keyLen, s.state = 0, skimInName
		case '}':
			s.pop(at)
		default:
			s.state = skimBad
		}
	case skimColon:
		s.state = skimBad
		if c == ':' {
			s.state = skimValue
		}
	case skimAfter:
		s.after(c, at)
	}
}

func (s *skimmer) after(c byte, at int) {
	array := s.stack[s.depth-1].array
	switch {
	case c == ',' && array:
		s.cur, s.state = s.stack[s.depth-1].node.item(), skimValue
	case c == ',':
		s.state = skimName
	case c == ']' && array, c == '}' && !array:
		s.pop(at)
	default:
		s.state = skimBad
	}
}

// open begins a value at its first byte.
func (s *skimmer) open(c byte, at int) {
	switch {
	case c == '{' || c == '[':
		if s.cur == nodeNone || s.depth == maxLive || s.depth == 0 && c == '[' {
			s.skipped, s.state = 1, skimSkip
			return
		}
		s.obs.enter(s.cur)
		s.stack[s.depth] = skimFrame{s.cur, c == '['}
		s.depth++
		if s.state = skimName; c == '[' {
			s.cur, s.state = s.cur.item(), skimValue
		}
	case c == '"':
		s.valLen, s.filled, s.state = 0, 0, skimString
		if s.ed != nil && s.cur == nodeModel {
			s.ed.cut(at)
		}
	case c == ']' && s.depth > 0 && s.stack[s.depth-1].array:
		s.pop(at)
	case c == '-' || '0' <= c && c <= '9' || c == 't' || c == 'f' || c == 'n':
		s.val[0], s.valLen, s.state = c, 1, skimLiteral
	default:
		s.state = skimBad
	}
}

// pop ends the innermost container at its closing bracket.
func (s *skimmer) pop(at int) {
	s.depth--
	s.obs.leave(s.stack[s.depth].node)
	if s.depth == 0 {
		s.obs.rootEnd(at)
	}
	s.closed()
}

// closed continues behind a value.
func (s *skimmer) closed() {
	if s.state = skimAfter; s.depth == 0 {
		s.state = skimDone
	}
}

// readString reads on inside a string and returns where it stopped.
func (s *skimmer) readString(p []byte, i, base int) int {
	end, closed, esc := scanString(p, i, s.esc)
	s.esc = esc
	text := p[i:end]
	if s.state == skimInName {
		s.keepName(text)
	} else if s.cur != nodeNone {
		s.filled += len(text)
		s.valLen += copy(s.val[s.valLen:], text)
	}
	if !closed {
		return end
	}
	if s.state == skimInName {
		parent := s.stack[s.depth-1].node
		s.obs.member(parent)
		s.cur, s.state = parent.child(s.name()), skimColon
		return end + 1
	}
	if s.cur != nodeNone {
		s.obs.text(s.cur, s.val[:s.valLen], s.filled)
		if s.ed != nil && s.cur == nodeModel {
			s.ed.resume(base + end + 1)
		}
	}
	s.closed()
	return end + 1
}

func (s *skimmer) keepName(text []byte) {
	if s.keyLen+len(text) > maxKey {
		s.keyLen = maxKey + 1
		return
	}
	s.keyLen += copy(s.key[s.keyLen:], text)
}

// name returns the member name that was read, nil when it is too long to matter.
func (s *skimmer) name() []byte {
	if s.keyLen > maxKey {
		return nil
	}
	key := s.key[:s.keyLen]
	if bytes.IndexByte(key, '\\') >= 0 {
		return []byte(unescape(key))
	}
	return key
}

func (s *skimmer) readLiteral(p []byte, i int) int {
	for ; i < len(p); i++ {
		switch p[i] {
		case ',', ']', '}', ' ', '\n', '\t', '\r':
			if s.cur != nodeNone {
				s.obs.literal(s.cur, s.val[:s.valLen])
			}
			s.closed()
			return i
		}
		if s.valLen < maxScalar {
			s.val[s.valLen] = p[i]
			s.valLen++
		}
	}
	return i
}

// skip reads on below a container that does not matter.
func (s *skimmer) skip(p []byte, i int) int {
	for i < len(p) {
		if s.inSkip {
			end, closed, esc := scanString(p, i, s.esc)
			s.esc = esc
			if !closed {
				return end
			}
			s.inSkip = false
			i = end + 1
			continue
		}
		switch p[i] {
		case '"':
			s.inSkip = true
		case '{', '[':
			s.skipped++
		case '}', ']':
			if s.skipped--; s.skipped == 0 {
				s.closed()
				return i + 1
			}
		}
		i++
	}
	return i
}

// scanString looks for the closing quote from p[i] on. It returns where the quote is, or len(p) when the string
// goes on, and whether the last byte was a backslash that escapes what comes next.
func scanString(p []byte, i int, esc bool) (end int, closed, escNext bool) {
	quote := -1
	for i < len(p) {
		if esc {
			esc = false
			i++
			continue
		}
		if quote < i {
			n := bytes.IndexByte(p[i:], '"')
			if quote = i + n; n < 0 {
				quote = len(p)
			}
		}
		n := bytes.IndexByte(p[i:quote], '\\')
		if n < 0 {
			return quote, quote < len(p), false
		}
		i += n + 1
		esc = true
	}
	return i, false, esc
}

// unescape decodes the inside of a JSON string, which may have been cut off anywhere.
func unescape(in []byte) string {
	var out []rune
	for len(in) > 0 {
		r, n := decodeChar(in)
		out = append(out, r)
		in = in[n:]
	}
	return string(out)
}
