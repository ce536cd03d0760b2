package feed

import (
	"math"
	"slices"
	"time"

	"admitd/gate/dialect"
	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/ui/api"
)

// windowSeconds is the longest window that can be asked for.
const windowSeconds = 300

// maxSamples bounds the latencies kept for percentiles: above it, the percentiles of a window are those of its
// newest maxSamples outcomes.
const maxSamples = 8192

type bucket struct {
	second                                int64
	arrivals, admitted, deferred, refused int
	ended, met                            int
	// meant counts refused arrivals, and meantEnded ended ones, that were meant to be served (see Refused and Ended).
	meant, meantEnded int
}

type latency struct {
	at         time.Time
	ttft, tpot float64 // milliseconds; NaN when not known
}

type windows struct {
	buckets []bucket
	samples []latency // ring
	next    int
}

func newWindows() windows { return windows{buckets: make([]bucket, windowSeconds+1)} }

// MeantRefused reports whether a refused arrival counts against goodput: it was one that the pool could have served
// had it had room. Refusals that are the caller's own doing (bad key, bad body, over its budget, too large) do not.
// The word decides, not the status, which can be remapped.
func MeantRefused(d *journal.Decision) bool {
	if d.Verdict == reason.VerdictAdmit {
		return false
	}
	switch d.Reason {
	case reason.Saturated, reason.DeadlineInfeasible:
		return true
	}
	if e, ok := reason.Lookup(d.Reason); ok {
		return e.Verdict == reason.VerdictDefer
	}
	return d.Verdict == reason.VerdictDefer
}

// helperClass is what the gate records as the class of helper calls such as /tokenize, which have no SLO.
const helperClass = "helper"

// MeantEnded reports whether an ended arrival counts in goodput: all do but helper calls and those that the engine
// called invalid. d is nil when the decision is no longer known.
func MeantEnded(d *journal.Decision, o *journal.Outcome) bool {
	return o.Ending != string(dialect.EndInvalid) && (d == nil || d.Class != helperClass)
}

// at returns the bucket of a time, or nil when it is older than the ring.
func (w *windows) at(t time.Time) *bucket {
	s := t.Unix()
	if s < 0 {
		return nil
	}
	b := &w.buckets[int(s%int64(len(w.buckets)))]
	switch {
	case b.second == s:
	case b.second < s:
		*b = bucket{second: s}
	default:
		return nil
	}
	return b
}

func (w *windows) decision(t time.Time, d *journal.Decision) {
	b := w.at(t)
	if b == nil {
		return
	}
	b.arrivals++
	switch verdictIndex(d.Verdict) {
	case 0:
		b.admitted++
	case 1:
		b.deferred++
	case 2:
		b.refused++
	}
	if MeantRefused(d) {
		b.meant++
	}
}

func (w *windows) outcome(t time.Time, d *journal.Decision, o *journal.Outcome) {
	if b := w.at(t); b != nil {
		b.ended++
		if MeantEnded(d, o) {
			b.meantEnded++
			if o.SLOMet {
				b.met++
			}
		}
	}
	if o.TTFTMS == nil && o.TPOTMS == nil {
		return
	}
	l := latency{at: t, ttft: orNaN(o.TTFTMS), tpot: orNaN(o.TPOTMS)}
	if len(w.samples) < maxSamples {
		w.samples = append(w.samples, l)
		return
	}
	w.samples[w.next] = l
	w.next = (w.next + 1) % maxSamples
}

func orNaN(p *float64) float64 {
	if p == nil {
		return math.NaN()
	}
	return *p
}

// sum adds the buckets of the last d, whole seconds, the present one included.
func (w *windows) sum(now time.Time, d time.Duration) bucket {
	var t bucket
	last := now.Unix()
	first := last - int64(d/time.Second) + 1
	for i := range w.buckets {
		b := &w.buckets[i]
		if b.second < first || b.second > last {
			continue
		}
		t.arrivals += b.arrivals
		t.admitted += b.admitted
		t.deferred += b.deferred
		t.refused += b.refused
		t.ended += b.ended
		t.met += b.met
		t.meant += b.meant
		t.meantEnded += b.meantEnded
	}
	return t
}

func (b bucket) goodput() *float64 { return ratio(b.met, b.meant+b.meantEnded) }

func ratio(part, whole int) *float64 {
	if whole == 0 {
		return nil
	}
	r := float64(part) / float64(whole)
	return &r
}

func (w *windows) over(now time.Time, d time.Duration) api.Window {
	t := w.sum(now, d)
	p := w.percentiles(now, d)
	return api.Window{
		Seconds: int(d / time.Second), Arrivals: t.arrivals, Admitted: t.admitted, Deferred: t.deferred,
		Rejected: t.refused, Ended: t.ended, SLOMet: t.met, Goodput: t.goodput(),
		TTFTP50: p[0], TTFTP95: p[1], TPOTP50: p[2], TPOTP95: p[3],
	}
}

// percentiles returns TTFT p50, p95 and TPOT p50, p95 of the outcomes of the last d, nil where there were none.
func (w *windows) percentiles(now time.Time, d time.Duration) (p [4]*float64) {
	from := now.Add(-d)
	var ttft, tpot []float64
	for _, l := range w.samples {
		if l.at.Before(from) || l.at.After(now) {
			continue
		}
		if !math.IsNaN(l.ttft) {
			ttft = append(ttft, l.ttft)
		}
		if !math.IsNaN(l.tpot) {
			tpot = append(tpot, l.tpot)
		}
	}
	slices.Sort(ttft)
	slices.Sort(tpot)
	return [4]*float64{rank(ttft, 0.5), rank(ttft, 0.95), rank(tpot, 0.5), rank(tpot, 0.95)}
}

// rank is the nearest-rank percentile of sorted values: the smallest value with at least the share q at or below it.
func rank(sorted []float64, q float64) *float64 {
	if len(sorted) == 0 {
		return nil
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	v := sorted[max(i, 0)]
	return &v
}
