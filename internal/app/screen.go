package app

import (
	"io"
	"strings"
	"sync"
)

// Screen is standard error, shared by the log and by the line that is repainted while a model loads, so that neither
// writes into the other. It is safe for concurrent use.
type Screen struct {
	w io.Writer
	// width gives a terminal's columns, 0 when not known; it is nil where nothing can be repainted.
	width func() int

	mu      sync.Mutex
	painted string
}

// NewScreen writes to w. width gives the columns of the terminal that w is; nil means that w is not one.
func NewScreen(w io.Writer, width func() int) *Screen { return &Screen{w: w, width: width} }

// wipe empties the line that the cursor is on.
const wipe = "\r\033[K"

// Terminal reports whether a line can be repainted.
func (s *Screen) Terminal() bool { return s.width != nil }

// Write writes whole lines, of the log for instance, above the repainted one.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.painted == "" {
		return s.w.Write(p)
	}
	if _, err := io.WriteString(s.w, wipe); err != nil {
		return 0, err
	}
	n, err := s.w.Write(p)
	if err == nil {
		_, err = io.WriteString(s.w, s.painted)
	}
	return n, err
}

// Paint replaces the repainted line. A line wider than the terminal is cut: the rest would wrap and stay for ever.
func (s *Screen) Paint(line string) {
	if cols := s.width(); cols > 1 {
		line = cutColumns(line, cols-1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if line == s.painted {
		return
	}
	s.painted = line
	_, _ = io.WriteString(s.w, wipe+line) // there is nobody to tell when the terminal has gone
}

// Line writes text for good, in place of the repainted line.
func (s *Screen) Line(text string) {
	s.Clear()
	_, _ = io.WriteString(s, text+"\n")
}

// Clear takes the repainted line away.
func (s *Screen) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.painted == "" {
		return
	}
	s.painted = ""
	_, _ = io.WriteString(s.w, wipe)
}

// cutColumns keeps at most n characters, counting each as one column.
func cutColumns(s string, n int) string {
	runes := []rune(strings.TrimRight(s, " "))
	if len(runes) <= n {
		return string(runes)
	}
	return string(runes[:n-1]) + "…"
}
