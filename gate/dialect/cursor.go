package dialect

import (
	"bytes"
	"iter"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions of this file walk JSON that checkJSON has accepted; they return places, not copies.

// value is one JSON value inside a body: its bytes and where they start.
type value struct {
	raw []byte
	at  int
}

// member is one member of an object; key and val are as they stand in the body, key with its quotes.
type member struct {
	key, val value
}

// kind returns the first byte of the value, which tells its type; 0 when there is no value.
func (v value) kind() byte {
	if len(v.raw) == 0 {
		return 0
	}
	return v.raw[0]
}

func (v value) isString() bool { return v.kind() == '"' }
func (v value) isObject() bool { return v.kind() == '{' }
func (v value) isArray() bool  { return v.kind() == '[' }
func (v value) isNull() bool   { return v.kind() == 'n' }

// present reports whether there is a value and it is not null.
func (v value) present() bool { return v.kind() != 0 && !v.isNull() }

func (v value) isNumber() bool {
	c := v.kind()
	return c == '-' || '0' <= c && c <= '9'
}

func (v value) isBool() bool { return v.kind() == 't' || v.kind() == 'f' }

// end returns the place just behind the value.
func (v value) end() int { return v.at + len(v.raw) }

// rootOf returns the value of a whole body.
func rootOf(b []byte) value {
	i := skipSpace(b, 0)
	return value{b[i:skipValue(b, i)], i}
}

// members iterates over an object in its order, duplicates included; over nothing for any other value.
func (v value) members() iter.Seq[member] {
	return func(yield func(member) bool) {
		if !v.isObject() {
			return
		}
		b := v.raw
		for i := skipSpace(b, 1); b[i] != '}'; {
			keyEnd := skipString(b, i)
			from := skipSpace(b, skipSpace(b, keyEnd)+1)
			to := skipValue(b, from)
			m := member{value{b[i:keyEnd], v.at + i}, value{b[from:to], v.at + from}}
			if !yield(m) {
				return
			}
			if i = skipSpace(b, to); b[i] == ',' {
				i = skipSpace(b, i+1)
			}
		}
	}
}

// items iterates over an array; over nothing for any other value.
func (v value) items() iter.Seq[value] {
	return func(yield func(value) bool) {
		if !v.isArray() {
			return
		}
		b := v.raw
		for i := skipSpace(b, 1); b[i] != ']'; {
			to := skipValue(b, i)
			if !yield(value{b[i:to], v.at + i}) {
				return
			}
			if i = skipSpace(b, to); b[i] == ',' {
				i = skipSpace(b, i+1)
			}
		}
	}
}

// get returns the last member of that name, as most JSON readers do; the zero value when there is none.
func (v value) get(name string) value {
	var found value
	for m := range v.members() {
		if m.key.is(name) {
			found = m.val
		}
	}
	return found
}

// len counts the items of an array.
func (v value) len() int {
	n := 0
	for range v.items() {
		n++
	}
	return n
}

// is reports whether the value is the string s, however it is escaped.
func (v value) is(s string) bool {
	if !v.isString() {
		return false
	}
	in := v.raw[1 : len(v.raw)-1]
	if bytes.IndexByte(in, '\\') < 0 {
		return string(in) == s
	}
	// An escaped byte takes at most six bytes.
	return len(in) <= 6*len(s) && v.text() == s
}

// text decodes a string value; "" for any other.
func (v value) text() string {
	if !v.isString() {
		return ""
	}
	in := v.raw[1 : len(v.raw)-1]
	if bytes.IndexByte(in, '\\') < 0 {
		return string(in)
	}
	out := make([]byte, 0, len(in))
	for len(in) > 0 {
		r, n := decodeChar(in)
		out = utf8.AppendRune(out, r)
		in = in[n:]
	}
	return string(out)
}

// decodeChar decodes the first character of the inside of a JSON string and how many bytes it takes there. Half
// a surrogate pair decodes as U+FFFD.
func decodeChar(b []byte) (rune, int) {
	if b[0] != '\\' || len(b) < 2 {
		return utf8.DecodeRune(b)
	}
	switch b[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, ok := hex4(b)
		if !ok {
			return utf8.RuneError, 2
		}
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
			if low, ok := hex4(b[6:]); ok {
				if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
					return pair, 12
				}
			}
		}
		return utf8.RuneError, 6
	}
	return rune(b[1]), 2
}

// integer returns the value of a number without a fraction, however it is written (16, 16.0, 1.6e1).
func (v value) integer() (int64, bool) {
	if !v.isNumber() || len(v.raw) > 32 {
		return 0, false
	}
	if n, err := strconv.ParseInt(string(v.raw), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(v.raw), 64)
	if err != nil || f != float64(int64(f)) || f > 1<<53 || f < -(1<<53) {
		return 0, false
	}
	return int64(f), true
}

// skipValue returns the place behind the value that starts at b[i].
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ' ', '\n', '\t', '\r':
			return i
		}
		i++
	}
	return i
}

// skipString returns the place behind the string whose opening quote is b[i].
func skipString(b []byte, i int) int {
	for i++; ; {
		n := bytes.IndexByte(b[i:], '"')
		i += n
		back := 0
		for b[i-1-back] == '\\' {
			back++
		}
		i++
		if back%2 == 0 {
			return i
		}
	}
}
