package admission

import (
	"time"

	"admitd/signals"
)

// ghostPatience is how long after tokens were last seen to come out for nobody the gauges are still believed: a slow
// engine does not bring one out between every two scrapes.
const ghostPatience = 2 * time.Second

// ghosts are requests that the engine still works on although nobody waits for them: their callers have left and it did
// not notice (vllm#54947, sglang#34894), or they are somebody else's. The engine's gauges count them. What tells them from
// gauges that were left standing (vllm#29928) is that its token counters move while we have nothing in flight.
type ghosts struct {
	// n is what the last scrape showed beyond our own; since is when the first scrape in a row did, zero when none does.
	n     int
	since time.Time
	// tokens is the last count of tokens, if counted; grewAt when it was seen to grow for nobody of ours.
	tokens  float64
	counted bool
	grewAt  time.Time
}

// noteGhosts looks for ghosts in a new scrape, which counted so many tokens; prev is when the one before it was sent.
func (c *Controller) noteGhosts(now, prev time.Time, tokens float64, counted bool) {
	at, g := c.snap.At, &c.ghosts
	nobody := c.books.seqs == 0 && !prev.IsZero() && c.books.lastEnd.Add(endingGrace).Before(prev)
	if counted && g.counted && tokens > g.tokens && nobody {
		g.grewAt = at
	}
	g.tokens, g.counted = tokens, counted
	g.n = 0
	if running, waiting := c.read(signals.Running, now), c.read(signals.Waiting, now); fresh(running) && fresh(waiting) && !c.cfg.Shared {
		t := c.books.tally(at, prev)
		g.n = max(0, gauge(running)+gauge(waiting)-t.atScrape-t.fading)
	}
	switch {
	case g.n == 0:
		g.since = time.Time{}
	case g.since.IsZero():
		g.since = at
	}
}

// haunted reports whether the gauges of an engine that has nothing of ours are to be believed at now.
func (c *Controller) haunted(now time.Time) bool {
	g := c.ghosts
	return g.n > 0 && !g.grewAt.IsZero() && now.Sub(g.grewAt) <= ghostPatience
}

// Ghosts tells how many requests the engine works on for nobody of ours at the time now, and since when; 0 when there is
// no proof of any. An engine that others use as well has none.
func (c *Controller) Ghosts(now time.Time) (n int, since time.Time) {
	if !c.haunted(now) {
		return 0, time.Time{}
	}
	return c.ghosts.n, c.ghosts.since
}
