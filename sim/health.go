package sim

import (
	"context"
	"time"
)

// Faults of /health and of the HTTP server that answers it.
const (
	FaultHealth503   Fault = "health-503"
	FaultProbePileup Fault = "probe-pileup"
	FaultBlockedLoop Fault = "blocked-loop"
	FaultSlowHealth  Fault = "slow-health"
)

func healthFaults() []FaultInfo {
	return []FaultInfo{
		{FaultHealth503, SGLang, []int{27}, "/health answers 503 while anything is in flight, although tokens come out"},
		{FaultProbePileup, SGLang, []int{28}, "/health takes 15 s, also for a prober that has left; two at once kill the engine"},
		{FaultBlockedLoop, SGLang, []int{30}, "the event loop stands still: no request is answered, no stream goes on; the model works on"},
		{FaultSlowHealth, "", []int{41}, "/health takes 10 ms for every request in flight"},
	}
}

const (
	// probeStay is how long a probe of probe-pileup stays in the engine, healthPerRequest what slow-health takes for each
	// request in flight; both in simulated time.
	probeStay        = 15 * time.Second
	healthPerRequest = 10 * time.Millisecond
)

// unblocked waits until the event loop works; false when the caller left first.
func (s *Server) unblocked(ctx context.Context) bool {
	return !s.faults.on(FaultBlockedLoop) || s.faults.over(ctx, FaultBlockedLoop) == nil
}

// ails plays the faults of a health probe. ok is what it is to answer, played whether one of them speaks at all.
func (s *Server) ails(ctx context.Context) (ok, played bool) {
	st, err := s.Stats()
	inFlight := st.Running + st.Waiting + st.Arriving
	switch {
	case err != nil || s.dead.Load() || s.draining.Load():
	case s.faults.on(FaultHealth503) && inFlight > 0:
		return false, true
	case s.faults.on(FaultProbePileup):
		return s.pileUp(ctx), true
	case s.faults.on(FaultSlowHealth):
		// Whoever left hears nothing.
		_ = wait(ctx, s.driver.real(time.Duration(inFlight)*healthPerRequest))
	case s.faults.on(FaultDeadScheduler), s.faults.on(FaultLateHang), s.faults.has(FaultQueueHang):
		return true, true
	}
	return false, false
}

// pileUp is one probe of an engine that cannot bear two.
func (s *Server) pileUp(ctx context.Context) (ok bool) {
	stay := s.driver.real(probeStay)
	if s.probes.Add(1) > 1 {
		s.engineLine(true, "Scheduler hit an exception: Traceback (most recent call last):")
		s.faults.set(FaultExit0Crash, armed{}, true)
	}
	time.AfterFunc(stay, func() { s.probes.Add(-1) })
	return wait(ctx, stay) == nil
}
