package strict

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"admitd/test/seeds"
)

type inner struct {
	MaxWaiting int           `yaml:"max_waiting"`
	Wait       time.Duration `yaml:"wait"`
}

// size is a type with a reader of its own.
type size int

// UnmarshalYAML implements yaml.BytesUnmarshaler.
func (s *size) UnmarshalYAML(b []byte) error {
	if string(b) != "1KiB" {
		return errors.New(string(b) + " is not a size")
	}
	*s = 1024
	return nil
}

type outer struct {
	At    time.Time `yaml:"at"`
	Size  size      `yaml:"size"`
	Name  string    `yaml:"name"`
	Inner inner     `yaml:"inner"`
	List  []inner   `yaml:"list"`
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
		{"a size of no known unit", "size: 32MB\n", "f.yaml:1:7: size: 32MB is not a size"},
		{"a directive", "%YAML 1.2\n---\nname: a\n", "f.yaml:1:1: a line that begins with % is a YAML directive"},
		{"not UTF-8", "name: a\nname2: ü\xff\n", "f.yaml:2:9: the byte 0xff is not UTF-8"},
		{"UTF-16", "\xff\xfen\x00", "f.yaml:1:1: the byte 0xff is not UTF-8"},
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

func TestTimeThatIsNoneIsNeverTheZeroTime(t *testing.T) {
	for _, v := range []string{"2020-06-31T00:00:00Z", "tomorrow", "2020-01-01 00:00", "2020-01-01 00:00:00", "2020-13-01", "0001-01-01T00:00:00Z", "0001-01-01",
		"", "~", "null", `""`, "never", "2027", "2027.5", "true", "!!str tomorrow", "&a tomorrow", "[2027-01-01]", "{}", "|\n  tomorrow"} {
		var o outer
		err := Decode("f.yaml", []byte("at: "+v+"\n"), &o)
		if err == nil {
			t.Errorf("%q was taken as %s", v, o.At)
			continue
		}
		if !strings.Contains(err.Error(), "f.yaml:1:") || !strings.Contains(err.Error(), "is not a time such as 2026-12-31T00:00:00Z") {
			t.Errorf("%q: %v", v, err)
		}
	}
	var o outer
	if err := Decode("f.yaml", []byte("name: &n tomorrow\nat: *n\n"), &o); err == nil {
		t.Errorf("an alias of no time was taken as %s", o.At)
	}
	for v, want := range map[string]string{"2026-12-31T00:00:00Z": "2026-12-31T00:00:00Z", "2026-12-31T01:00:00+02:00": "2026-12-30T23:00:00Z",
		"2027-06-30": "2027-06-30T00:00:00Z", `"2027-06-30"`: "2027-06-30T00:00:00Z", "&x 2027-06-30": "2027-06-30T00:00:00Z"} {
		var o outer
		if err := Decode("f.yaml", []byte("at: "+v+"\n"), &o); err != nil || o.At.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %s, %v; want %s", v, o.At, err, want)
		}
	}
}

func TestByteOrderMarkIsSkipped(t *testing.T) {
	var o outer
	src := []byte("\xef\xbb\xbfname: a\n")
	if err := Decode("f", src, &o); err != nil || o.Name != "a" {
		t.Errorf("%q %v", o.Name, err)
	}
	if p := Locate("f", src, "name"); p.Line != 1 || p.Column != 1 {
		t.Errorf("%+v", p)
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

// What is refused has a place and one line for it; what is taken the library's own strict reader takes, with the same content.
func FuzzDecode(f *testing.F) {
	f.Add("name: a\ninner: {max_waiting: 1}\n")
	f.Add("&a [*a]\n")
	f.Add("? {}\n: -\n--- x")
	f.Add("at: 2026-11-30\nsize: 1KiB\nlist: [{wait: 1s}, {max_waiting: 0x10}]\n")
	for _, b := range seeds.Files(f, "../../configs/*.yaml", "../../configs/policies/*.yaml", "../../gate/policy/testdata/bad/*.yaml") {
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, src string) {
		var o outer
		if err := Decode("f", []byte(src), &o); err != nil {
			var se *Error
			if !errors.As(err, &se) || len(se.Places) == 0 {
				t.Fatalf("not an *Error with a place: %v", err)
			}
			for _, p := range se.Places {
				if p.Text == "" || strings.Contains(p.Text, "\n") {
					t.Fatalf("%q: the message is %q", src, p.Text)
				}
			}
			return
		}
		var theirs outer
		if err := yaml.UnmarshalWithOptions([]byte(strings.TrimPrefix(src, "\ufeff")), &theirs, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("%q is taken as %+v, the library says: %v", src, o, err)
		}
		if !reflect.DeepEqual(o, theirs) {
			t.Fatalf("%q is %+v to us, %+v to the library", src, o, theirs)
		}
		Locate("f", []byte(src), "a.0.b")
	})
}
