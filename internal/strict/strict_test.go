package strict

import (
	"errors"
	"strings"
	"testing"
	"time"
)

type inner struct {
	MaxWaiting int           `yaml:"max_waiting"`
	Wait       time.Duration `yaml:"wait"`
}

type outer struct {
	Name  string  `yaml:"name"`
	Inner inner   `yaml:"inner"`
	List  []inner `yaml:"list"`
}

func TestDecodeTellsThePlaceOfEveryMistake(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"unknown key", "name: a\nnames: b\n", "f.yaml:2:1: names: unknown key; did you mean name?"},
		{"unknown nested key", "inner:\n  max_waitin: 2\n", "f.yaml:2:3: max_waitin: unknown key; did you mean max_waiting?"},
		{"duplicate key", "name: a\nname: b\n", "f.yaml:2:1"},
		{"wrong type", "inner:\n  max_waiting: many\n", "f.yaml:2:16: \"many\" is not a whole number"},
		{"bad duration", "inner:\n  wait: soon\n", "f.yaml:2:9"},
		{"bare duration", "inner:\n  wait: 5\n", "f.yaml:2:9: \"5\" is not a duration"},
		{"spelled-out duration", "inner:\n  wait: 2 seconds\n", "f.yaml:2:9: inner.wait: \"2 seconds\" is not a duration such as"},
		{"a fraction where a whole number is wanted", "list:\n  - max_waiting: 2.5\n", "f.yaml:2:18: list.0.max_waiting: \"2.5\" is not a whole number"},
		{"not yaml", "name: [a\n", "f.yaml:1:"},
		{"two documents", "name: a\n---\nname: b\n", "a second document starts here"},
		{"a list", "- a\n", "f.yaml:1:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var o outer
			err := Decode("f.yaml", []byte(c.src), &o)
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("got %v, want an *Error", err)
			}
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line with %q", err, c.want)
			}
		})
	}
}

func TestDecodeGood(t *testing.T) {
	o := outer{Name: "default"}
	if err := Decode("f", []byte("inner: {max_waiting: 3, wait: 1500ms}\n"), &o); err != nil {
		t.Fatal(err)
	}
	if o.Name != "default" || o.Inner.MaxWaiting != 3 || o.Inner.Wait != 1500*time.Millisecond {
		t.Errorf("got %+v", o)
	}
	if err := Decode("f", []byte("# only a comment\n"), &o); err != nil {
		t.Errorf("a file of comments: %v", err)
	}
}

func TestLocate(t *testing.T) {
	src := []byte("name: a\ninner:\n  max_waiting: 2\nlist:\n  - max_waiting: 1\n")
	for path, want := range map[string][2]int{
		"name": {1, 1}, "inner.max_waiting": {3, 3}, "inner.absent": {2, 1}, "absent": {0, 0}, "list.0.max_waiting": {5, 5},
	} {
		if p := Locate("f", src, path); p.Line != want[0] || p.Column != want[1] {
			t.Errorf("%s at %d:%d, want %d:%d", path, p.Line, p.Column, want[0], want[1])
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("name: a\ninner: {max_waiting: 1}\n")
	f.Add("&a [*a]\n")
	f.Add("? {}\n: -\n--- x")
	f.Fuzz(func(t *testing.T, src string) {
		var o outer
		if err := Decode("f", []byte(src), &o); err != nil {
			var se *Error
			if !errors.As(err, &se) || len(se.Places) == 0 {
				t.Fatalf("not an *Error with a place: %v", err)
			}
		}
		Locate("f", []byte(src), "a.0.b")
	})
}
