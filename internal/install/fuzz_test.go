package install

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// A marker that is believed names programs below its own folder, and is the same when it is written again.
func FuzzMarker(f *testing.F) {
	f.Add([]byte(`{"format":1,"name":"vllm-1","kind":"vllm","folder":"/e","binary":"bin/vllm","model":"model","verified":["a"]}`))
	f.Add([]byte(`{"format":1,"kind":"vllm","binary":"../../bin/sh"}`))
	f.Add([]byte(`{"format":1,"kind":"sglang","binary":"bin/python","model":"/etc"}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, markerFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := readMarker(dir)
		if err != nil {
			if m.Kind != "" || look(dir).Problem == "" {
				t.Fatalf("%s is refused (%v), and still %+v", b, err, m)
			}
			return
		}
		below := filepath.Join(dir, m.Binary)
		if !strings.HasPrefix(below, dir+"/") && below != dir || m.Model != "" && !strings.HasPrefix(filepath.Join(dir, m.Model)+"/", dir+"/") {
			t.Fatalf("%s leads out of its folder: %q %q", b, m.Binary, m.Model)
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var same Marker
		if err := json.Unmarshal(again, &same); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m, same); d != "" {
			t.Fatal(d)
		}
	})
}

// shown keeps what people would see.
type shown struct {
	Reporter
	said []string
}

func (s *shown) Doing(text string) { s.said = append(s.said, text) }
func (s *shown) Note(text string)  { s.said = append(s.said, text) }

func TestAPasswordInAnAddressOfPipIsNotShown(t *testing.T) {
	for text, want := range map[string]string{
		"https://u:SECRET@host":                "(address)",
		"https://u:SECRET@host/":               "(address)",
		"https://u:SECRET@host/a/b.whl":        "b.whl",
		"https://host/b.whl?signature=SE/CRET": "b.whl",
		"b-1.0+cpu.whl":                        "b-1.0+cpu.whl",
	} {
		if got := fileName(text); got != want {
			t.Errorf("%s is shown as %q, want %q", text, got, want)
		}
	}
}

func TestControlCharactersOfPipDoNotReachTheTerminal(t *testing.T) {
	if got := tame("a\u009b31m\x1b[0m\x7fb\n"); got != "a 31m [0m b " {
		t.Errorf("%q", got)
	}
}

// Whatever pip prints, what is shown of it is short, one line, and holds no password of an address.
func FuzzPipOutput(f *testing.F) {
	f.Add("Collecting vllm==0.32.0\nDownloading vllm-0.32.0-cp38-abi3.whl (526.6 MB)\nProgress 0 of 526600000\rProgress 600 of 526600000\n", "hunter2hunter2")
	f.Add("Downloading https://u:SECRET@host/a/b.whl (5 MB)\nProgress 1 of 99999999\n", "SECRET")
	f.Add("Downloading https://u:SECRET@host (99 MB)\nProgress 1 of 99999999\n", "SECRET")
	f.Add("Downloading https://host/a.whl?key=SECRET (99 MB)\nProgress 1 of 99999999\nInstalling collected packages: a, b\n", "SECRET")
	f.Fuzz(func(t *testing.T, text, secret string) {
		to := &shown{}
		d := downloads{to: to}
		var log strings.Builder
		last := (&runner{log: &log}).read(strings.NewReader(text), d.line)
		want := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
		lines := 0
		for _, l := range want {
			if strings.TrimRight(l, " \t") != "" {
				lines++
			}
		}
		if len(last) != min(lines, keptLines) {
			t.Fatalf("%d lines kept of %d", len(last), lines)
		}
		for _, s := range to.said {
			if len([]rune(s)) > 260 || strings.ContainsFunc(s, unicode.IsControl) {
				t.Fatalf("%q is shown as %q", text, s)
			}
			if hidden := "https://u:" + secret + "@"; len(secret) >= 6 && strings.Count(text, secret) == strings.Count(text, hidden) && strings.Contains(s, secret) {
				t.Fatalf("%q is shown as %q", text, s)
			}
		}
		if what, fix := explain(last); what == "" || strings.ContainsFunc(what+fix, unicode.IsControl) {
			t.Fatalf("%q is explained as %q %q", text, what, fix)
		}
	})
}
