package admission

import (
	"math"
	"time"
)

// rateMemory is the time over which the release rate forgets.
const rateMemory = 20 * time.Second

// releaseRate measures endings per second: exponentially forgotten endings over equally forgotten time, where only
// time with something in flight counts, since an idle engine can release nothing.
type releaseRate struct {
	count, span float64
	last        time.Time
}

// pass lets time go by up to now; busy says whether something was in flight meanwhile. Call it before that changes.
func (r *releaseRate) pass(now time.Time, busy bool) { *r = r.at(now, busy) }

// at is the rate as it will be at the time now; nothing changes.
func (r releaseRate) at(now time.Time, busy bool) releaseRate {
	if r.last.IsZero() {
		r.last = now
	}
	d := now.Sub(r.last).Seconds()
	if d <= 0 {
		return r
	}
	r.last = now
	if busy {
		keep := math.Exp(-d / rateMemory.Seconds())
		r.count *= keep
		r.span = r.span*keep + d
	}
	return r
}

func (r *releaseRate) ended(n int) { r.count += float64(n) }

// perSecond is 0 while too little was seen to tell.
func (r releaseRate) perSecond() float64 {
	if r.count <= 0 || r.span <= 0 {
		return 0
	}
	// Endings in the first moments would read as a huge rate.
	return r.count / math.Max(r.span, 1)
}
