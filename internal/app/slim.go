package app

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"
)

const (
	// slimEvery is how often it is looked whether a crowd has left.
	slimEvery = 5 * time.Second
	// crowd is the least number of requests at once after which memory is given back.
	crowd = 100
)

// crowds remembers how many requests there were at once.
type crowds struct{ peak int }

// left reports, once for each crowd, that most of one has gone.
func (c *crowds) left(now int) bool {
	if c.peak = max(c.peak, now); c.peak < crowd || now > c.peak/4 {
		return false
	}
	c.peak = now
	return true
}

// slim gives memory back to the system once a crowd of callers has left. The runtime would do it too, over many minutes in
// which an engine that shares the machine may want it.
func (a *instance) slim(ctx context.Context) error {
	tick := time.NewTicker(slimEvery)
	defer tick.Stop()
	var c crowds
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if c.left(a.pool.inFlight()) {
				// What pools hold survives one collection.
				runtime.GC()
				debug.FreeOSMemory()
			}
		}
	}
}
