package policy

import "admitd/signals"

// newDualGate builds dual-gate, the default.
//
// Idea: two resources bind on real engines, slots (seen as waiting) and KV blocks, and either signal alone is
// blind to the other; a request passes only when both have room. Source: our own combination of queue-depth and
// kv-threshold, after AdmitPerf's finding that each fails alone. Formula: waitingRule, then kvRule; the first to
// fail decides. Parameters: max_waiting, 8 by default; max_kv_used, 0.95 by default.
// When it fails: it knows no deadlines and no sessions; it counts requests, not the work that they bring.
// on_stale: as in its two parts, each for its own signal; but by the ledger a KV signal that cannot be judged for
// want of a capacity is passed over, since the queue still guards the engine.
func newDualGate(s Spec) *ruled {
	return &ruled{
		policy: DualGate, onStale: s.OnStale,
		needs: []Need{
			{Signal: signals.Waiting, Why: "it compares the engine's queue with max_waiting"},
			{Signal: signals.KVUsed, Why: "it compares the engine's KV use with max_kv_used"},
		},
		rules: []rule{
			waitingRule{max: *s.Params.MaxWaiting, onStale: s.OnStale},
			kvRule{max: *s.Params.MaxKVUsed, onStale: s.OnStale, blindPasses: true},
		},
	}
}
