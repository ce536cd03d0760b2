package app

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// slimEvery is how often it is looked whether a crowd has left.
	slimEvery = 5 * time.Second
	// paceEvery is how often the pace of collecting is set: soon enough for a crowd that comes at once.
	paceEvery = 500 * time.Millisecond
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

const (
	// headroom is how many bytes may be allocated before memory is collected while little is in use: collecting at twice of
	// little cost a tenth of all that a small request took.
	headroom = 64 << 20
	// leastPercent and mostPercent bound the setting; the runtime's own is 100. With much in use, which is thousands of streams
	// that allocate next to nothing, collecting at half as much again costs little.
	leastPercent, mostPercent = 50, 400
)

// collectAt is the percentage by which the heap may grow over what is in use, in bytes, before memory is collected.
func collectAt(used uint64) int {
	return int(min(max(headroom*100/max(used, 1), leastPercent), mostPercent))
}

// pace sets how often memory is collected. given: the operator has said
// it, by GOGC.
type pace struct {
	given  bool
	before int
	set    int
}

func (p *pace) look() {
	if p.given {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if live[0].Value.Kind() != metrics.KindUint64 {
		return
	}
	// Small changes are not worth stopping everything for.
	want := collectAt(live[0].Value.Uint64())
	if p.set != 0 && want > p.set*3/4 && want < p.set*4/3 {
		return
	}
	if was := debug.SetGCPercent(want); p.set == 0 {
		p.before = was
	}
	p.set = want
}

// end puts back what was set before.
func (p *pace) end() {
	if p.set != 0 {
		debug.SetGCPercent(p.before)
	}
}

// slim gives memory back to the system once a crowd of callers has left. The runtime would do it too, over many minutes in
// which an engine that shares the machine may want it.
func (a *instance) slim(ctx context.Context) error {
	tick := time.NewTicker(slimEvery)
	defer tick.Stop()
	var c crowds
	p := pace{given: os.Getenv("GOGC") != ""}
	defer p.end()
	p.look()
	often := time.NewTicker(paceEvery)
	defer often.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-often.C:
			p.look()
		case <-tick.C:
			if c.left(a.pool.inFlight()) {
				// What pools hold survives one collection.
				runtime.GC()
				debug.FreeOSMemory()
			}
		}
	}
}
