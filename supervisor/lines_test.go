package supervisor

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// feedAll gives p to a fresh splitter in pieces of a size, a step of time apart, and returns the lines.
func feedAll(p string, size int, step time.Duration, secrets ...string) []string {
	s := splitter{clean: cleaner(secrets)}
	now := time.Unix(1000, 0)
	var got []string
	emit := func(text string, bar bool) { got = append(got, text) }
	for b := []byte(p); len(b) > 0; {
		n := min(size, len(b))
		s.feed(now, b[:n], emit)
		b, now = b[n:], now.Add(step)
	}
	s.flush(emit)
	return got
}

func TestSplitterLines(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
	}{
		{"lines", "one\ntwo\n", []string{"one", "two"}},
		{"no end at the end", "one\ntwo", []string{"one", "two"}},
		{"dos line ends", "one\r\ntwo\r\n", []string{"one", "two"}},
		{"empty lines are no lines", "\n\n\r\none\n\n", []string{"one"}},
		{"a bar leaves its last state", "\r 0%\r 50%\r100%\nnext\n", []string{"100%", "next"}},
		{"a bar that is never ended leaves its last state", "\r 0%\r100%\r", []string{"100%"}},
		{"text over a bar hides it", "wait 10%\rready\n", []string{"ready"}},
		{"colours", "\x1b[32mINFO\x1b[0m hello\x1b]0;title\x07 there\n", []string{"INFO hello there"}},
		{"controls and tabs", "a\x00b\x08\tc\x7f\n", []string{"ab c"}},
		{"broken text", "a\xff\xfeb ü █\n", []string{"a\ufffd\ufffdb ü █"}},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 2, 7, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", tt.name, size), func(t *testing.T) {
				if d := cmp.Diff(tt.want, feedAll(tt.in, size, 0)); d != "" {
					t.Errorf("lines differ (-want +got):\n%s", d)
				}
			})
		}
	}
}

func TestSplitterShowsASlowBarOnceASecond(t *testing.T) {
	var in strings.Builder
	for i := range 10 {
		fmt.Fprintf(&in, "\rstep %d", i)
	}
	in.WriteString("\n")
	// One step a read, half a second apart: every second state is shown, and the last.
	got := feedAll(in.String(), len("\rstep 0"), 500*time.Millisecond)
	want := []string{"step 2", "step 4", "step 6", "step 8", "step 9"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("lines differ (-want +got):\n%s", d)
	}
}

func TestSplitterBoundsALineWithoutEnd(t *testing.T) {
	s := splitter{clean: cleaner(nil)}
	var got []string
	emit := func(text string, bar bool) { got = append(got, text) }
	chunk := []byte(strings.Repeat("x", 1<<16))
	for range 100 {
		s.feed(time.Unix(0, 0), chunk, emit)
	}
	if c := cap(s.buf); c > 4*maxLine {
		t.Errorf("the splitter holds %d bytes of an endless line; want at most %d", c, 4*maxLine)
	}
	s.feed(time.Unix(0, 0), []byte("\nnext\n"), emit)
	if len(got) != 2 || len(got[0]) != maxLine || got[1] != "next" {
		t.Errorf("got %d lines, first of %d bytes; want the first %d bytes and then the next line", len(got), len(got[0]), maxLine)
	}
}

func TestSecretsAreBlanked(t *testing.T) {
	const key = "SECRETKEY123456789"
	in := "args: {'api_key': '" + key + "'} again " + key + "\n" +
		// A line that is cut in the middle of the key must not show the half.
		strings.Repeat("y", maxLine-9) + key + " tail\n"
	for _, size := range []int{1, 5, 1 << 20} {
		got := feedAll(in, size, 0, key)
		for _, l := range got {
			if strings.Contains(l, key[:4]) {
				t.Errorf("a line still shows a part of the key: %.60q", l)
			}
		}
		if want := "args: {'api_key': '[secret]'} again [secret]"; got[0] != want {
			t.Errorf("line %q; want %q", got[0], want)
		}
	}
}

func FuzzSplitter(f *testing.F) {
	f.Add([]byte("a\nb\r\nc\r d\r\x1b[1mx\x1b[0m\n"), 3)
	f.Add([]byte("\x1b]0;x"), 1)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		if size < 1 || size > 1<<20 {
			size = 1
		}
		const key = "0123456789abcdef"
		for _, l := range feedAll(string(in), size, time.Minute, key) {
			if len(l) > maxLine+len(blank) {
				t.Fatalf("line of %d bytes", len(l))
			}
			if !utf8.ValidString(l) {
				t.Fatalf("line %q is not text", l)
			}
			if strings.ContainsAny(l, "\x00\x1b\r\n\t") || strings.Contains(l, key) {
				t.Fatalf("line %q holds what must not be kept", l)
			}
		}
	})
}

func TestRingKeepsTheLatest(t *testing.T) {
	var r ring
	at := time.Unix(0, 0)
	for i := range ringLines + 10 {
		r.add(at, fmt.Sprint("line ", i+1))
	}
	lines, lost := r.after(0, 2)
	if !lost || len(lines) != 2 || lines[0].Seq != 11 || lines[0].Text != "line 11" {
		t.Errorf("after(0, 2) = %v, lost %v; want lines 11 and 12, lost", lines, lost)
	}
	lines, lost = r.after(10, 1)
	if lost || lines[0].Seq != 11 {
		t.Errorf("after(10, 1) = %v, lost %v; want line 11, nothing lost", lines, lost)
	}
	lines, lost = r.after(ringLines+8, 0)
	if lost || len(lines) != 2 {
		t.Errorf("after(%d, 0) = %d lines, lost %v; want the last 2", ringLines+8, len(lines), lost)
	}
	if lines, lost = r.after(ringLines+10, 0); lost || len(lines) != 0 {
		t.Errorf("after the last line = %v, lost %v; want nothing", lines, lost)
	}
	long := strings.Repeat("z", maxLine)
	for range 2000 {
		r.add(at, long)
	}
	if r.bytes > ringBytes {
		t.Errorf("the ring holds %d bytes; want at most %d", r.bytes, ringBytes)
	}
}
