package supervisor

import (
	"bytes"
	"strings"
	"time"
	"unicode/utf8"
)

// maxLine is the longest line kept, in bytes.
const maxLine = 4096

// progressEvery is the least time between two stored states of one progress bar.
const progressEvery = time.Second

// splitter cuts a stream of bytes into lines. A progress bar rewrites its line with carriage returns: of those states
// at most one a second is given out, and the last one in any case, so that a loading bar of megabytes leaves a few
// lines. It holds at most one line of maxLine bytes; the rest of a longer one is dropped. Not safe for concurrent use.
type splitter struct {
	buf  []byte
	cut  bool // buf is full and bytes were dropped
	last time.Time
	// bar is the latest state of a progress bar on the current line; shown says that it was given out.
	bar   string
	shown bool
	// clean turns raw bytes into text: redaction and control characters.
	clean func(raw []byte, cut bool) string
}

// feed takes the bytes read at now and calls emit for each line that is complete. bar says that the text is one state of a
// progress bar, not a finished line.
func (s *splitter) feed(now time.Time, p []byte, emit func(text string, bar bool)) {
	for len(p) > 0 {
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			s.keep(p)
			return
		}
		s.keep(p[:i])
		if p[i] == '\n' {
			s.endLine(emit)
		} else {
			s.endBar(now, emit)
		}
		p = p[i+1:]
	}
}

// flush gives out what is left at the end of the stream.
func (s *splitter) flush(emit func(text string, bar bool)) {
	if len(s.buf) > 0 || s.bar != "" {
		s.endLine(emit)
	}
}

func (s *splitter) keep(p []byte) {
	room := maxLine - len(s.buf)
	if len(p) > room {
		s.cut = true
		p = p[:room]
	}
	s.buf = append(s.buf, p...)
}

func (s *splitter) take() string {
	text := s.clean(s.buf, s.cut)
	s.buf, s.cut = s.buf[:0], false
	return text
}

// endLine ends a line. What a carriage return left on the screen counts when nothing was written over it: that is how a
// bar ends, and how a line of a program that ends its lines with CR LF looks.
func (s *splitter) endLine(emit func(string, bool)) {
	text := s.take()
	if text == "" && s.bar != "" && !s.shown {
		text = s.bar
	}
	s.bar = ""
	if text != "" {
		emit(text, false)
	}
}

// endBar keeps one state of a bar and gives it out when a second has passed since the last one. The first state of a line
// waits, because a line feed may follow at once.
func (s *splitter) endBar(now time.Time, emit func(string, bool)) {
	if len(s.buf) == 0 {
		return
	}
	first := s.bar == ""
	s.bar, s.shown = s.take(), false
	if first {
		s.last = now
		return
	}
	if s.bar != "" && now.Sub(s.last) >= progressEvery {
		s.shown, s.last = true, now
		emit(s.bar, true)
	}
}

// cleaner returns the function that makes raw output fit to be kept: secrets blanked, terminal sequences and control
// characters removed, broken UTF-8 replaced.
func cleaner(secrets []string) func(raw []byte, cut bool) string {
	return func(raw []byte, cut bool) string {
		text := redact(string(raw), secrets)
		if cut {
			text = dropSecretPrefix(text, secrets)
		}
		return plain(text)
	}
}

// blank stands where a secret was.
const blank = "[secret]"

// redact replaces every occurrence of a secret.
func redact(text string, secrets []string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, blank)
		}
	}
	return text
}

// dropSecretPrefix removes the start of a secret from the end of a line that was cut in the middle of it.
func dropSecretPrefix(text string, secrets []string) string {
	for _, s := range secrets {
		for n := min(len(s)-1, len(text)); n >= 4; n-- {
			if strings.HasSuffix(text, s[:n]) {
				text = text[:len(text)-n] + blank
				break
			}
		}
	}
	return text
}

// plain removes what a terminal would act on. Tabs become spaces.
func plain(s string) string {
	clean := true
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f {
			clean = false
			break
		}
	}
	if clean {
		return strings.TrimRight(s, " ")
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			i += escapeLen(s[i:])
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\t':
			b.WriteByte(' ')
		case r < 0x20 || r >= 0x7f && r < 0xa0:
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return strings.TrimRight(limit(b.String(), maxLine), " ")
}

// escapeLen is the length of the terminal sequence at the start of s (ECMA-48: CSI ends at a byte 0x40-0x7e, OSC at BEL
// or ESC \); an unknown or unfinished one is two bytes, or what is left.
func escapeLen(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[':
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
		}
	case ']':
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return i + 1
			}
			if s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\' {
				return i + 2
			}
		}
	}
	return 2
}

// limit cuts s to n bytes at a rune boundary.
func limit(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
