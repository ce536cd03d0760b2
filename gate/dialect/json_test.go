package dialect

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheckJSON(t *testing.T) {
	tests := []struct {
		in     string
		offset int // -1: valid
		what   string
	}{
		{`{}`, -1, ""}, {" \r\n\t[1, -0.5e+3, \"a\\u00e9\", true, false, null, {}] ", -1, ""},
		{``, 0, "empty"}, {`  `, 2, "empty"}, {`{"a":1`, 6, "ends inside"}, {`{"a" 1}`, 5, "colon"}, {`{a:1}`, 1, "double quotes"},
		{`{"a":1,}`, 7, "double quotes"}, {`[1,]`, 3, "value is expected"}, {`{"a":01}`, 6, "comma"}, {`{"a":1.}`, 5, "number"},
		{`{"a":-}`, 5, "number"}, {`{"a":1e}`, 5, "number"}, {`{"a":NaN}`, 5, "value is expected"}, {`{"a":tru}`, 5, "value is expected"},
		{`{"a":"b`, 7, "inside a string"}, {"{\"a\":\"b\n\"}", 7, "control character"}, {`{"a":"\x"}`, 6, "escape"},
		{`{"a":"\u12g4"}`, 6, "escape"}, {"{\"a\":\"\xff\"}", 6, "UTF-8"}, {"{\"a\":\"\xc3\"}", 6, "UTF-8"}, {`{} {}`, 3, "unexpected"},
		{`{"messages": [{"role":"user"`, 28, "ends inside"}, {"\xef\xbb\xbf{}", 0, "value is expected"},
		{strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), -1, ""},
		{strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), maxDepth, "deeper than the limit of 128"},
		{strings.Repeat(`{"a":`, 100000), 5 * maxDepth, "deeper"},
	}
	for _, tt := range tests {
		err := checkJSON([]byte(tt.in))
		switch {
		case tt.offset < 0 && err != nil:
			t.Errorf("%.40q: %v, want no error", tt.in, err)
		case tt.offset >= 0 && (err == nil || err.offset != tt.offset || !strings.Contains(err.what, tt.what)):
			t.Errorf("%.40q: %v, want %q at byte %d", tt.in, err, tt.what, tt.offset)
		}
	}
}

// FuzzCheckJSON compares with the standard library: the same bodies are valid, but for the two things that are
// stricter here, UTF-8 and depth.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e3,"x\n\ud83d\ude00"],"b":null}`, `[[[]]]`, `{"a":"\u00e9`, `-0`, `"\ud800"`, "{\"a\":\xff}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := checkJSON(b)
		want := json.Valid(b) && utf8.Valid(b)
		if got != nil && strings.Contains(got.what, "deeper") {
			return
		}
		if (got == nil) != want {
			t.Fatalf("%q: got %v, the standard library says valid=%v", b, got, want)
		}
		if got == nil {
			walk(t, rootOf(b))
		}
	})
}

// walk goes through the whole value and compares every string with the standard library's decoding.
func walk(t *testing.T, v value) {
	if v.isString() {
		var want string
		if err := json.Unmarshal(v.raw, &want); err != nil {
			t.Fatal(err)
		}
		if got := v.text(); got != want {
			t.Fatalf("%s: decoded %q, want %q", v.raw, got, want)
		}
		if got := decodedLen(v.raw[1 : len(v.raw)-1]); got != len(want) {
			t.Fatalf("%s: decoded length %d, want %d", v.raw, got, len(want))
		}
	}
	for m := range v.members() {
		walk(t, m.key)
		walk(t, m.val)
	}
	for item := range v.items() {
		walk(t, item)
	}
}

func TestInteger(t *testing.T) {
	tests := []struct {
		in   string
		want int64
		ok   bool
	}{
		{"16", 16, true}, {"-1", -1, true}, {"16.0", 16, true}, {"1.6e1", 16, true}, {"16.5", 0, false}, {"1e400", 0, false},
		{"9223372036854775808", 0, false}, {`"16"`, 0, false}, {"true", 0, false}, {"2147483649", 2147483649, true},
	}
	for _, tt := range tests {
		got, ok := value{raw: []byte(tt.in)}.integer()
		if got != tt.want || ok != tt.ok {
			t.Errorf("%s: got %d %v, want %d %v", tt.in, got, ok, tt.want, tt.ok)
		}
	}
}
