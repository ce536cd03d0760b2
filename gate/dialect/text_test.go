package dialect

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func measure(s string) TextSize {
	var t TextSize
	t.addText([]byte(s), false)
	return t
}

func TestTextByScript(t *testing.T) {
	tests := []struct {
		text string
		want TextSize
	}{
		{"", TextSize{}},
		{"plain words", TextSize{Latin: 11}},
		{"naïve café ẞ", TextSize{Latin: 16}},
		{"漢字かなカナ한글、ＡＢ", TextSize{CJK: 33}},
		{"𠀀", TextSize{CJK: 4}},
		{"ᄀ", TextSize{CJK: 3}},
		{"Привет", TextSize{Other: 12}},
		{"สวัสดี", TextSize{Other: 18}},
		{"مرحبا", TextSize{Other: 10}},
		{"👋🏽", TextSize{Other: 8}},
	}
	for _, tt := range tests {
		if got := measure(tt.text); got != tt.want {
			t.Errorf("%q: %+v, want %+v", tt.text, got, tt.want)
		}
	}
}

// TestCodeShare: text is code when more than 12 % of its bytes are the characters of code.
func TestCodeShare(t *testing.T) {
	tests := []struct {
		name, text string
		code       bool
	}{
		{"exactly 12 %", strings.Repeat("a", 88) + strings.Repeat("1", 12), false},
		{"just above 12 %", strings.Repeat("a", 879) + strings.Repeat("1", 121), true},
		{"JSON", `{"path":"/etc/hosts","lines":[1,2]}`, true},
		{"Go", `for i := range items { total += items[i].n }`, true},
		{"prose", "In 2024, the council (all nine members) met twice; it was cold.", false},
	}
	for _, tt := range tests {
		got := measure(tt.text)
		if (got.Code > 0) != tt.code || got.Code+got.Latin != len(tt.text) {
			t.Errorf("%s: %+v, want code=%v", tt.name, got, tt.code)
		}
	}
	if got := measure(`x["漢字"] = {1: "漢字"};`); got.CJK != 12 || got.Code != 16 {
		t.Errorf("literals in code: %+v, want CJK 12 and code 16", got)
	}
}

// TestCodeInsideAPrompt: a file in a long prompt is code, the prose around it stays prose.
func TestCodeInsideAPrompt(t *testing.T) {
	prose := strings.Repeat("please look at this file and tell what it does ", 100)
	code := strings.Repeat(`{"a":1,"b":[2,3]},`, 400)
	got := measure(prose + code + prose)
	if got.Latin < 2*len(prose)-4096 || got.Code < len(code)-4096 || got.Latin+got.Code != 2*len(prose)+len(code) {
		t.Errorf("%+v for %d bytes of prose and %d of code", got, 2*len(prose), len(code))
	}
}

// FuzzTextSize: nothing is lost or counted twice, escaped or not.
func FuzzTextSize(f *testing.F) {
	f.Add("a\n\"b\"\\ é 漢 👋 \x00")
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "?")
		plain := measure(s)
		if n := plain.Latin + plain.CJK + plain.Other + plain.Code; n != len(s) {
			t.Fatalf("%q: %d bytes counted, has %d", s, n, len(s))
		}
		quoted := []byte(quote(s))
		var escaped TextSize
		escaped.addString(value{raw: quoted})
		if escaped != plain {
			t.Fatalf("%q: %+v, but escaped %+v", s, plain, escaped)
		}
		if got := unescape(quoted[1 : len(quoted)-1]); utf8.ValidString(s) && got != s {
			t.Fatalf("%s decoded to %q", quoted, got)
		}
	})
}
