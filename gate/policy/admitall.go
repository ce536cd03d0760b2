package policy

// newAdmitAll builds admit-all.
//
// Idea: no admission control; every request goes to the engine at once. Source: the baseline of every comparison.
// Formula: none. Parameters: none. When it fails: always under overload; the engine queues, preempts and every
// caller times out. Use it to measure what the other policies gain and cost, or behind a gate of your own.
// on_stale: of no effect, since no signal is read.
func newAdmitAll(s Spec) *ruled { return &ruled{policy: AdmitAll, onStale: s.OnStale} }
