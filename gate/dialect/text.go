package dialect

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

const (
	// codeShare is the share of code characters above which text counts as code.
	codeShare = 0.12
	// codeWindow is the number of decoded bytes that are judged as code or prose together, so that a file inside
	// a long prompt does not turn the prose around it into code.
	codeWindow = 2048
)

// codeByte is 1 for the characters that are rare in prose and frequent in code and JSON.
var codeByte = func() (t [256]uint8) {
	for _, c := range []byte(`{}[]();:"<>=_0123456789`) {
		t[c] = 1
	}
	return t
}()

// window sums one stretch of text until it is known whether it is code.
type window struct {
	latin, cjk, other, code int
}

func (w *window) bytes() int { return w.latin + w.cjk + w.other }

// flush books the window. In code only the Latin part is code: comments and literals in other scripts cost what
// those scripts cost.
func (w *window) flush(t *TextSize) {
	if float64(w.code) > codeShare*float64(w.bytes()) {
		t.Code += w.latin
	} else {
		t.Latin += w.latin
	}
	t.CJK += w.cjk
	t.Other += w.other
	*w = window{}
}

// addString measures a JSON string value without decoding it into memory.
func (t *TextSize) addString(v value) {
	if !v.isString() {
		return
	}
	t.addText(v.raw[1:len(v.raw)-1], true)
}

// addText measures text; escaped says that it is the inside of a JSON string.
func (t *TextSize) addText(b []byte, escaped bool) {
	var w window
	for i := 0; i < len(b); {
		if w.bytes() >= codeWindow {
			w.flush(t)
		}
		run := asciiRun(b[i:min(len(b), i+codeWindow-w.bytes())], escaped, &w.code)
		w.latin += run
		if i += run; i < len(b) && w.bytes() < codeWindow {
			i += w.addRune(b[i:], escaped)
		}
	}
	w.flush(t)
}

// asciiRun returns how many bytes of b stand for themselves and adds the code characters among them to code.
func asciiRun(b []byte, escaped bool, code *int) int {
	n := 0
	for i, c := range b {
		if c >= utf8.RuneSelf || c == '\\' && escaped {
			*code += n
			return i
		}
		n += int(codeByte[c])
	}
	*code += n
	return len(b)
}

// addRune books the first character of b and returns how many bytes it takes there.
func (w *window) addRune(b []byte, escaped bool) int {
	var r rune
	var n int
	if escaped {
		r, n = decodeChar(b)
	} else {
		r, n = utf8.DecodeRune(b)
	}
	size := utf8.RuneLen(r)
	switch {
	case r < 0x250 || 0x1E00 <= r && r < 0x1F00:
		w.latin += size
		if r < utf8.RuneSelf {
			w.code += int(codeByte[r])
		}
	case isCJK(r):
		w.cjk += size
	default:
		w.other += size
	}
	return n
}

// isCJK covers the scripts that tokenizers cut into about one token a character, with their punctuation and
// full-width forms.
func isCJK(r rune) bool {
	switch {
	case 0x3000 <= r && r < 0xA000, 0xAC00 <= r && r < 0xD7B0, 0xF900 <= r && r < 0xFB00, 0xFF00 <= r && r < 0xFFF0:
		return true
	}
	return r >= 0x1100 && unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana, unicode.Bopomofo)
}

// compactLen counts JSON that a chat template prints into the prompt: without white space between the tokens, and
// with escapes decoded.
func compactLen(v value) int {
	n, b := 0, v.raw
	for i := 0; i < len(b); {
		switch c := b[i]; c {
		case ' ', '\n', '\t', '\r':
			i++
		case '"':
			end := skipString(b, i)
			n += 2 + decodedLen(b[i+1:end-1])
			i = end
		default:
			n++
			i++
		}
	}
	return n
}

// decodedLen is the number of UTF-8 bytes of the inside of a JSON string.
func decodedLen(b []byte) int {
	n := 0
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			return n + len(b)
		}
		r, used := decodeChar(b[i:])
		n += i + utf8.RuneLen(r)
		b = b[i+used:]
	}
}

func (t *TextSize) add(u TextSize) {
	t.Latin += u.Latin
	t.CJK += u.CJK
	t.Other += u.Other
	t.Code += u.Code
	t.ToolSchema += u.ToolSchema
	t.Messages += u.Messages
	t.TokenIDs += u.TokenIDs
	t.Media += u.Media
}

// weight orders prompts by size, roughly in tokens; it only has to find the largest of a batch.
func (t TextSize) weight() int {
	return (t.Latin+t.Code+t.ToolSchema)/4 + (t.CJK+t.Other)/2 + t.TokenIDs + 256*t.Media
}
