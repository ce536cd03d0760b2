package policy

import "admitd/signals"

// newKVThreshold builds kv-threshold.
//
// Idea: stop before the KV cache is full, since a full cache makes the engine preempt and compute again. Source:
// the plain KV gate of routers and gateways; AdmitPerf measured where it is blind. Formula: see kvRule.
// Parameters: max_kv_used, 0.9 by default, a fraction of the KV cache above 0 and up to 1.
// When it fails: where slots or prefill bind first. On a small model the gauge stays near 0 while dozens wait
// (vLLM 0.32, 4 slots: 0.034 with 8 waiting), and the policy admits everyone. Idle sessions' cached prefixes are
// not in the gauge. Use dual-gate unless KV is known to be the only limit.
// on_stale: ledger compares (reserved + this request) / capacity, and refuses when no capacity is known; refuse
// defers; admit lets through.
func newKVThreshold(s Spec) *ruled {
	return &ruled{
		policy: KVThreshold, onStale: s.OnStale,
		needs: []Need{{Signal: signals.KVUsed, Why: "it compares the engine's KV use with max_kv_used"}},
		rules: []rule{kvRule{max: *s.Params.MaxKVUsed, onStale: s.OnStale}},
	}
}
