package app

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

func TestLogLinesGoAboveTheRepaintedLine(t *testing.T) {
	var out bytes.Buffer
	s := NewScreen(&out, func() int { return 80 })
	s.Paint("loading")
	if n, err := s.Write([]byte("a log line\n")); n != 11 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	s.Paint("loading")
	s.Clear()
	s.Clear()
	_, _ = s.Write([]byte("another\n"))
	if want := wipe + "loading" + wipe + "a log line\nloading" + wipe + "another\n"; out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

// A painted line that is wider than the terminal wraps, and every repaint would leave a row behind.
func TestPaintedLineFitsTheTerminal(t *testing.T) {
	for cols, want := range map[int]string{10: "loading …", 12: "loading m ·", 100: "loading m ·", 0: "loading m ·"} {
		var out bytes.Buffer
		NewScreen(&out, func() int { return cols }).Paint("loading m ·")
		if got := strings.TrimPrefix(out.String(), wipe); got != want {
			t.Errorf("%d columns: %q, want %q", cols, got, want)
		}
	}
}

func TestPlainScreenWritesNoEscapes(t *testing.T) {
	var out bytes.Buffer
	s := NewScreen(&out, nil)
	if s.Terminal() {
		t.Error("a buffer is no terminal")
	}
	s.Line("one")
	s.Clear()
	if _, err := s.Write([]byte("two\n")); err != nil || out.String() != "one\ntwo\n" {
		t.Errorf("%q %v", out.String(), err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestTerminalThatHasGone(t *testing.T) {
	s := NewScreen(brokenPipe{}, func() int { return 80 })
	s.Paint("loading")
	if _, err := s.Write([]byte("x\n")); err == nil {
		t.Error("the log was told that it was written")
	}
	s.Line("more")
}

func TestScreenIsSharedSafely(t *testing.T) {
	out := &syncBuffer{}
	s := NewScreen(out, func() int { return 80 })
	log := slog.New(slog.NewTextHandler(s, nil))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				log.Info("logged")
				s.Paint("painted")
				s.Line("line")
				s.Clear()
			}
		})
	}
	wg.Wait()
	for line := range strings.Lines(strings.ReplaceAll(strings.ReplaceAll(out.String(), wipe, ""), "painted", "")) {
		if text := strings.TrimSuffix(line, "\n"); text != "line" && !strings.HasSuffix(text, "msg=logged") {
			t.Fatalf("two writers in one line: %q", line)
		}
	}
}
