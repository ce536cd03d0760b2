package dialect

import (
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// maxHint bounds one part of an identity in bytes.
	maxHint = 256
	// maxTicket bounds a ticket in bytes.
	maxTicket = 1024
	// maxDeadline is the longest deadline that is taken seriously.
	maxDeadline = 7 * 24 * time.Hour
	maxAttempt  = 1000
	maxFanout   = 65536
)

// readHints reads what headers say about time, class, attempt and ticket.
func readHints(f *Facts, h http.Header) {
	millis := float64(time.Millisecond)
	f.Deadline = f.duration(h, millis, "X-Admitd-Deadline-Ms")
	f.TTFT = f.duration(h, millis, "X-Llm-D-Slo-Ttft-Ms", "X-Slo-Ttft-Ms")
	f.TPOT = f.duration(h, millis, "X-Llm-D-Slo-Tpot-Ms", "X-Slo-Tpot-Ms")
	if d := f.duration(h, float64(time.Second), "X-Stainless-Timeout"); f.Deadline == 0 {
		f.Deadline = d
	}
	f.Class = f.word(h, "X-Admitd-Class")
	f.Attempt = f.count(h, "X-Stainless-Retry-Count", maxAttempt)
	f.Ticket = f.part(h["X-Admitd-Ticket"], maxTicket)
}

// duration reads the first header of names that is present, in the given unit (nanoseconds of one).
func (f *Facts) duration(h http.Header, unit float64, names ...string) time.Duration {
	for _, name := range names {
		text := first(h, name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err == nil && n > 0 && n*unit >= 1 && n*unit <= float64(maxDeadline) {
			return time.Duration(n * unit)
		}
		f.BadHints++
		return 0
	}
	return 0
}

// first is the first value of a header, given by its canonical name; "" when it is not there.
func first(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// count reads a whole number from 0 to limit.
func (f *Facts) count(h http.Header, name string, limit int) int {
	text := first(h, name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 0 || n > limit {
		f.BadHints++
		return 0
	}
	return n
}

// word reads a name of letters, digits, "-", "_" and ".", at most 64 bytes.
func (f *Facts) word(h http.Header, name string) string {
	text := f.part(h[name], 64)
	for _, r := range text {
		if r >= utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.", r) {
			f.BadHints++
			return ""
		}
	}
	return text
}

// part reads one string that headers or the body give, trimmed. Several different values, control characters,
// invalid UTF-8 and lengths above the limit are malformed: counted and "".
func (f *Facts) part(values []string, limit int) string {
	if len(values) == 0 {
		return ""
	}
	s := strings.TrimSpace(values[0])
	for _, other := range values[1:] {
		if strings.TrimSpace(other) != s {
			f.BadHints++
			return ""
		}
	}
	if len(s) > limit || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		f.BadHints++
		return ""
	}
	return s
}
