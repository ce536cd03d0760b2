package supervisor

import (
	"fmt"
	"math"
	"time"
)

// RestartPolicy says when a crashed engine is launched again: capped exponential backoff with jitter, within a budget.
// Zero values take the defaults.
type RestartPolicy struct {
	// First is the pause after the first crash; default 1 s. It doubles with each further one.
	First time.Duration
	// Max caps the pause; default 1 min.
	Max time.Duration
	// Jitter is the part of the pause that is random, 0 to 1; default 0.2. Negative means none.
	Jitter float64
	// Budget is how many crashes within Window are survived, and how many launches in a row may fail to become ready
	// whatever time they take; the next one gives up. Default 5. Negative means never restart.
	Budget int
	// Window is the time over which Budget counts; default 10 min.
	Window time.Duration
}

func (p RestartPolicy) defaults() RestartPolicy {
	if p.First <= 0 {
		p.First = time.Second
	}
	if p.Max <= 0 {
		p.Max = time.Minute
	}
	if p.Max < p.First {
		p.Max = p.First
	}
	if p.Jitter == 0 {
		p.Jitter = 0.2
	}
	p.Jitter = min(max(p.Jitter, 0), 1)
	if p.Budget == 0 {
		p.Budget = 5
	}
	if p.Window <= 0 {
		p.Window = 10 * time.Minute
	}
	return p
}

// crashes is what the policy knows of the past.
type crashes struct {
	// times of the crashes that may still count, oldest first.
	times []time.Time
	// unready counts launches in a row that ended before they were ready.
	unready int
}

// verdict is what to do after a crash.
type verdict struct {
	giveUp bool
	why    string
	delay  time.Duration
}

// crashed records a crash at now and says what follows. wasReady tells whether this launch had become ready; rnd is in
// [0,1). The pause grows with the crashes in the window or the failed launches in a row, whichever is more, so that a
// model which takes minutes to fail is not retried at the first pause for ever.
func (p RestartPolicy) crashed(c *crashes, now time.Time, wasReady bool, rnd float64) verdict {
	keep := c.times[:0]
	for _, t := range c.times {
		if now.Sub(t) < p.Window {
			keep = append(keep, t)
		}
	}
	c.times = append(keep, now)
	if wasReady {
		c.unready = 0
	} else {
		c.unready++
	}
	budget := max(p.Budget, 0)
	switch {
	case len(c.times) > budget:
		return verdict{giveUp: true, why: fmt.Sprintf("%d crashes within %s; the limit is %d", len(c.times), p.Window, budget)}
	case c.unready > budget:
		return verdict{giveUp: true, why: fmt.Sprintf("%d launches in a row did not become ready; the limit is %d", c.unready, budget)}
	}
	n := max(len(c.times), c.unready)
	pause := math.Min(float64(p.First)*math.Pow(2, float64(n-1)), float64(p.Max))
	pause *= 1 - p.Jitter*rnd
	return verdict{delay: time.Duration(pause)}
}
