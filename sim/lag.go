package sim

import (
	"sync"
	"time"

	"admitd/sim/model"
)

// FaultLaggingGauges shows old gauges.
const FaultLaggingGauges Fault = "lagging-gauges"

func lagFaults() []FaultInfo {
	return []FaultInfo{
		{FaultLaggingGauges, "", []int{42}, "the gauges of /metrics are five seconds old; counters are not"},
	}
}

// gaugeLag is how old lagging gauges are, in real time: a scraper's time is real, too.
const gaugeLag = 5 * time.Second

// lag remembers what earlier scrapes found. It is safe for use by several goroutines.
type lag struct {
	mu   sync.Mutex
	seen []lagging
}

type lagging struct {
	at time.Time
	st model.Stats
}

// behind notes the present and returns what was true a lag ago; an idle engine when nobody asked then.
func (l *lag) behind(now time.Time, st model.Stats) model.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, lagging{now, st})
	first := 0
	for first+1 < len(l.seen) && now.Sub(l.seen[first+1].at) >= gaugeLag {
		first++
	}
	l.seen = l.seen[first:]
	if now.Sub(l.seen[0].at) < gaugeLag {
		return model.Stats{}
	}
	return l.seen[0].st
}

// gauges are the running and waiting requests and the KV use that /metrics shows of the given state.
func (s *Server) gauges(c scrape, st model.Stats) (running, waiting, kv float64) {
	if s.faults.on(FaultLaggingGauges) {
		st = s.lag.behind(time.Now(), st)
	}
	if c.aborted != nil {
		st = *c.aborted
	}
	switch {
	case s.faults.has(FaultQueueHang):
		return 0, 0, 0
	case s.faults.on(FaultPreemptingScrape) && c.inFlight > 0:
		return 0, float64(c.inFlight), 0
	}
	return s.bend(float64(st.Running), float64(st.Waiting), st.KVUsage())
}
