package policy

import "admitd/signals"

// newQueueDepth builds queue-depth.
//
// Idea: keep the engine busy and its own queue short; what would wait long waits at the gate or comes back later.
// Source: the plain queue limit that AdmitPerf found hard to beat on small models, and vLLM's own
// --max-num-queued-reqs; here judged before the engine holds the request. Formula: see waitingRule.
// Parameters: max_waiting, 2 by default, in sequences; 0 lets a request in only when it can start at once.
// When it fails: it does not see the KV cache (long prompts preempt each other while nobody waits), nor how much
// work those who wait bring.
// on_stale: ledger counts in flight beyond the slots, or without known slots those with no token yet; refuse
// defers with signal_stale or signal_missing; admit lets through.
func newQueueDepth(s Spec) *ruled {
	return &ruled{
		policy: QueueDepth, onStale: s.OnStale,
		needs: []Need{{Signal: signals.Waiting, Why: "it compares the engine's queue with max_waiting"}},
		rules: []rule{waitingRule{max: *s.Params.MaxWaiting, onStale: s.OnStale}},
	}
}
