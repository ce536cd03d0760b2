package dialect

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// maxDepth bounds how deep arrays and objects of a request may nest. Real tool schemas stay below 40.
const maxDepth = 128

// A syntaxError says where a body stops being JSON, without quoting it.
type syntaxError struct {
	offset int
	what   string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.what, e.offset) }

// checkJSON accepts exactly the JSON of RFC 8259 in UTF-8, one value with white space around it, nested at most
// maxDepth deep. It allocates nothing for a valid body.
func checkJSON(b []byte) *syntaxError {
	i := skipSpace(b, 0)
	if i == len(b) {
		return &syntaxError{i, "the body is empty"}
	}
	i, err := checkValue(b, i, 0)
	if err != nil {
		return err
	}
	if i = skipSpace(b, i); i < len(b) {
		return &syntaxError{i, "unexpected text after the JSON value"}
	}
	return nil
}

func checkValue(b []byte, i, depth int) (int, *syntaxError) {
	if i >= len(b) {
		return i, &syntaxError{i, "the body ends where a value is expected"}
	}
	switch c := b[i]; {
	case c == '{':
		return checkContainer(b, i, depth+1, '}')
	case c == '[':
		return checkContainer(b, i, depth+1, ']')
	case c == '"':
		return checkString(b, i)
	case c == '-' || '0' <= c && c <= '9':
		return checkNumber(b, i)
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if bytes.HasPrefix(b[i:], []byte(word)) {
			return i + len(word), nil
		}
	}
	return i, &syntaxError{i, "a value is expected"}
}

// checkContainer checks an object or an array, b[i] being its opening bracket.
func checkContainer(b []byte, i, depth int, end byte) (int, *syntaxError) {
	if depth > maxDepth {
		return i, &syntaxError{i, fmt.Sprintf("arrays and objects nest deeper than the limit of %d", maxDepth)}
	}
	var err *syntaxError
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == end {
		return i + 1, nil
	}
	for {
		if end == '}' {
			if i, err = checkKey(b, i); err != nil {
				return i, err
			}
		}
		if i, err = checkValue(b, i, depth); err != nil {
			return i, err
		}
		i = skipSpace(b, i)
		if i >= len(b) {
			return i, &syntaxError{i, "the body ends inside an array or object"}
		}
		if b[i] == end {
			return i + 1, nil
		}
		if b[i] != ',' {
			return i, &syntaxError{i, fmt.Sprintf("a comma or %q is expected", end)}
		}
		i = skipSpace(b, i+1)
	}
}

// checkKey checks a member name and its colon and returns where the value starts.
func checkKey(b []byte, i int) (int, *syntaxError) {
	if i >= len(b) || b[i] != '"' {
		return i, &syntaxError{i, "a member name in double quotes is expected"}
	}
	i, err := checkString(b, i)
	if err != nil {
		return i, err
	}
	if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
		return i, &syntaxError{i, "a colon is expected"}
	}
	return skipSpace(b, i+1), nil
}

// plainByte is true for the ASCII characters that stand for themselves in a string.
var plainByte = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

func checkString(b []byte, i int) (int, *syntaxError) {
	for i++; i < len(b); {
		c := b[i]
		switch {
		case plainByte[c]:
			i++
		case c == '"':
			return i + 1, nil
		case c == '\\':
			n := escapeLen(b[i:])
			if n == 0 {
				return i, &syntaxError{i, "a wrong escape in a string"}
			}
			i += n
		case c < 0x20:
			return i, &syntaxError{i, "a control character in a string (it must be escaped)"}
		default:
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n <= 1 {
				return i, &syntaxError{i, "invalid UTF-8"}
			}
			i += n
		}
	}
	return i, &syntaxError{i, "the body ends inside a string"}
}

// escapeLen returns the length of the escape at the start of b, 0 when it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b); ok {
			return 6
		}
	}
	return 0
}

// hex4 reads the four hexadecimal digits of an escape of the form \u0041 at the start of b.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

func checkNumber(b []byte, i int) (int, *syntaxError) {
	start := i
	digits := func() bool {
		from := i
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case !digits():
		return start, &syntaxError{start, "a malformed number"}
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return start, &syntaxError{start, "a malformed number"}
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return start, &syntaxError{start, "a malformed number"}
		}
	}
	return i, nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}
