package sim

import (
	"context"
	"net/http"
	"time"
)

// Faults of an engine towards its callers: those that leave, and those that its own queue has no room for.
const (
	FaultIgnoreDisconnect Fault = "ignore-disconnect"
	FaultLostAbort        Fault = "lost-abort"
	FaultQueueHang        Fault = "queue-hang"
	FaultLate503          Fault = "late-503"
)

func callerFaults() []FaultInfo {
	return []FaultInfo{
		{FaultIgnoreDisconnect, VLLM, []int{24}, "a request whose caller has left is generated to its end"},
		{FaultLostAbort, SGLang, []int{25}, "a request whose caller has left is generated to its end unless /abort_request names its rid"},
		{FaultQueueHang, SGLang, []int{26}, "once --max-queued-requests overflows nothing is answered any more; gauges read 0, /health stays 200"},
		{FaultLate503, VLLM, []int{37}, "a request over --max-num-queued-reqs hears of it only after five seconds"},
	}
}

// lateRefusal is how long late-503 thinks before it refuses, in simulated time.
const lateRefusal = 5 * time.Second

// outstays reports whether a request goes on although its caller has left.
func (s *Server) outstays(ctx context.Context) bool {
	return ctx.Err() != nil && (s.faults.on(FaultIgnoreDisconnect) || s.faults.on(FaultLostAbort))
}

// overflow plays what happens to a request that the engine's own queue has no room for; false means that it gets no
// answer.
func (s *Server) overflow(ctx context.Context, bad *apiError) (answered bool) {
	if bad.Status != http.StatusServiceUnavailable {
		return true
	}
	if s.faults.on(FaultQueueHang) {
		s.faults.trip(FaultQueueHang)
		// Wakes the owner of the model, which stands still from now on; a closed one does so already.
		_ = s.driver.do(func() {})
		select {
		case <-ctx.Done():
		case <-s.driver.quit:
		}
		return false
	}
	return !s.faults.on(FaultLate503) || wait(ctx, s.driver.real(lateRefusal)) == nil
}
