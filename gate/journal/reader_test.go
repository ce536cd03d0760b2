package journal

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func line(t testing.TB, e Entry) string {
	t.Helper()
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

func TestATornLastLineIsSkippedAndSaidOnce(t *testing.T) {
	dir := t.TempDir()
	whole := line(t, decided("a")) + line(t, ended("a"))
	for name, text := range map[string]string{
		"journal-000001.jsonl": whole + line(t, decided("torn"))[:30],
		"journal-000002.jsonl": line(t, decided("b")),
		"journal-000010.jsonl": strings.TrimSuffix(line(t, decided("c")), "\n"),
		"journal-x.jsonl":      "not ours",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ids, notices := readAll(t, dir)
	if d := cmp.Diff([]string{"a", "a", "b", "c"}, ids); d != "" {
		t.Error(d)
	}
	if len(notices) != 1 || !strings.HasSuffix(notices[0].File, "000001.jsonl") || !strings.Contains(notices[0].Text, "torn") || notices[0].Line != 3 {
		t.Errorf("notices %+v", notices)
	}
}

func TestABadLineIsNamedAndTheRestIsRead(t *testing.T) {
	for name, bad := range map[string]string{
		"no JSON": "{oops", "two things": `{"kind":"decision","decision":{"id":"x"},"outcome":{"id":"x"}}`, "nothing": `{"kind":"decision"}`,
		"other kind": `{"kind":"event","decision":{"id":"x"}}`, "no object": `[1]`, "too long": strings.Repeat("x", MaxLine+10),
	} {
		r := NewReader(strings.NewReader(line(t, decided("a")) + "\n" + bad + "\n" + line(t, decided("b"))))
		if e, err := r.Next(); err != nil || e.arrival() != "a" {
			t.Fatalf("%s: %v %v", name, e, err)
		}
		_, err := r.Next()
		var le *LineError
		if !errors.As(err, &le) || le.Line != 3 {
			t.Errorf("%s: error %v", name, err)
		}
		if e, err := r.Next(); err != nil || e.arrival() != "b" {
			t.Errorf("%s: after it %v %v", name, e, err)
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) || r.Torn() {
			t.Errorf("%s: at the end %v", name, err)
		}
	}
}

type failing struct{ r io.Reader }

var errBroken = errors.New("broken")

func (f failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = errBroken
	}
	return n, err
}

func TestAReadErrorIsReturnedAndEndsIt(t *testing.T) {
	r := NewReader(failing{strings.NewReader(line(t, decided("a")) + "{")})
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, errBroken) || r.Torn() {
		t.Errorf("error %v", err)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the error: %v", err)
	}
}

func TestReadDirStopsWhenToldTo(t *testing.T) {
	dir := t.TempDir()
	j := open(t, Options{Dir: dir})
	j.Append(decided("a"))
	j.Append(decided("b"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	if _, err := ReadDir(dir, func(Entry) error { n++; return errBroken }); !errors.Is(err, errBroken) || n != 1 {
		t.Errorf("%d entries, error %v", n, err)
	}
	if _, err := ReadDir(filepath.Join(dir, "nope"), nil); err == nil {
		t.Error("a folder that is not there was read")
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(line(f, decided("a")) + line(f, ended("a"))))
	f.Add([]byte(line(f, decided("a"))[:20]))
	f.Add([]byte("\n\n{}\n[]\nnull\n{\"kind\":\"event\",\"event\":{}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(strings.NewReader(string(data)))
		lines := strings.Count(string(data), "\n") + 1
		for steps := 0; ; steps++ {
			if steps > lines {
				t.Fatalf("more than %d answers for %d lines", steps, lines)
			}
			e, err := r.Next()
			var bad *LineError
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.As(err, &bad):
				if bad.Line < 1 || bad.Line > lines {
					t.Fatalf("line %d of %d", bad.Line, lines)
				}
			case err != nil:
				t.Fatalf("an error that the reader cannot have: %v", err)
			default:
				// What was read can be written and read again as the same.
				b, err := json.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				var enc encoder
				if own, err := enc.entry(&e); err != nil || string(own) != string(b) {
					t.Fatalf("written as %s (%v), by encoding/json as %s", own, err, b)
				}
				again, err := NewReader(strings.NewReader(string(b))).Next()
				if err != nil {
					t.Fatalf("%s: %v", b, err)
				}
				if d := cmp.Diff(e, again); d != "" {
					t.Fatal(d)
				}
			}
		}
	})
}
