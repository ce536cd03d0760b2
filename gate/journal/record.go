// Package journal keeps the decision record: a ring in memory and, when asked, JSON Lines on disk.
//
// Goal: for every arrival one decision with everything it saw, and one outcome when it is known, in order,
// readable later by explain, replay and the dashboard.
//
// Non-goals: prompt or answer text, secrets, statistics.
//
// Invariants: appending never waits for the disk or for a reader; sequence numbers have no gaps in memory; a
// torn last line on disk is skipped by readers and said once.
package journal

import (
	"sync"
	"time"

	"admitd/gate/admission"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
)

// Kind says what an Entry is.
type Kind string

const (
	// KindDecision: an arrival was decided.
	KindDecision Kind = "decision"
	// KindOutcome: an admitted arrival ended.
	KindOutcome Kind = "outcome"
	// KindEvent: something happened to the pool (reload, engine state, scrape gap).
	KindEvent Kind = "event"
)

// Entry is one line of the journal. Exactly one of the pointers is set, by Kind.
type Entry struct {
	// Seq is set by the journal: 1, 2, 3 ...
	Seq  uint64    `json:"seq"`
	At   time.Time `json:"at"`
	Kind Kind      `json:"kind"`

	Decision *Decision `json:"decision,omitempty"`
	Outcome  *Outcome  `json:"outcome,omitempty"`
	Event    *Event    `json:"event,omitempty"`
}

// SignalView is a signal as a decision saw it. Value is nil when the signal was missing.
type SignalView struct {
	Name   signals.Name  `json:"name"`
	Value  *float64      `json:"value"`
	Unit   signals.Unit  `json:"unit"`
	Source string        `json:"source,omitempty"`
	State  signals.State `json:"state"`
	AgeMS  int64         `json:"age_ms"`
	Why    string        `json:"why,omitempty"`
}

// Decision is one arrival's one decision. It holds sizes and hashes, never text or secrets.
type Decision struct {
	// ID is X-Admitd-Request-Id.
	ID     string `json:"id"`
	Pool   string `json:"pool"`
	Model  string `json:"model"`
	Path   string `json:"path"`
	Stream bool   `json:"stream"`
	Tenant string `json:"tenant"`
	KeyID  string `json:"key_id,omitempty"`
	Class  string `json:"class"`
	// Session is a short hash of the session id, "" when none; SessionSource says how it was recognised.
	Session       string `json:"session,omitempty"`
	SessionSource string `json:"session_source,omitempty"`
	Attempt       int    `json:"attempt"`

	PromptTokens   int  `json:"prompt_tokens_estimated"`
	OutputTokens   int  `json:"output_tokens_estimated"`
	OutputCap      *int `json:"output_cap"`
	ReservedTokens int  `json:"reserved_tokens"`
	Sequences      int  `json:"sequences"`
	BodyBytes      int  `json:"body_bytes"`

	// Verdict is admit, defer or reject: what was answered in the end. HeldMS is how long the gate held it before.
	Verdict      string      `json:"verdict"`
	Reason       reason.Code `json:"reason"`
	Message      string      `json:"message,omitempty"`
	Status       int         `json:"status,omitempty"`
	RetryAfterMS int64       `json:"retry_after_ms,omitempty"`
	Ticket       bool        `json:"ticket,omitempty"`
	HeldMS       int64       `json:"held_ms,omitempty"`
	// DecideUS is how long the decision itself took, in microseconds.
	DecideUS int64 `json:"decide_us"`

	PolicyName     string         `json:"policy"`
	PolicyRev      string         `json:"policy_rev"`
	SnapshotSeq    uint64         `json:"snapshot_seq"`
	Signals        []SignalView   `json:"signals,omitempty"`
	Ledger         admission.View `json:"ledger"`
	Trace          []policy.Step  `json:"trace,omitempty"`
	Counterfactual string         `json:"counterfactual,omitempty"`

	// Late works out Signals, Trace and Counterfactual when somebody asks for them; nil when they are there.
	Late *Late `json:"-"`
}

// Detail is the part of a decision that hardly anybody reads, and that is large.
type Detail struct {
	Signals        []SignalView
	Trace          []policy.Step
	Counterfactual string
}

// Filler knows how to work out a Detail. Its methods are pure, may be called by several goroutines at once, and keep nothing.
type Filler interface {
	// Fill fills an empty Detail, whose slices may have room.
	Fill(*Detail)
	// Seen is one signal's value, as Fill would give it; nil when it was missing.
	Seen(signals.Name) *float64
}

// Late is a Detail that is worked out by its Filler when somebody asks for it.
type Late struct {
	Filler Filler
	once   sync.Once
}

// Seen is the value of a signal as the decision saw it; nil when it was missing. It costs less than Complete.
func (d *Decision) Seen(n signals.Name) *float64 {
	if d.Late != nil {
		return d.Late.Filler.Seen(n)
	}
	for i := range d.Signals {
		if d.Signals[i].Name == n {
			return d.Signals[i].Value
		}
	}
	return nil
}

// Complete returns the decision with all that it saw. It must come before Signals, Trace and Counterfactual are read,
// before the decision is copied, and before it is marshalled. Safe for concurrent use.
func (d *Decision) Complete() *Decision {
	if d.Late != nil {
		d.Late.once.Do(func() {
			var all Detail
			d.Late.Filler.Fill(&all)
			d.Signals, d.Trace, d.Counterfactual = all.Signals, all.Trace, all.Counterfactual
		})
	}
	return d
}

// Outcome is how an admitted arrival ended.
type Outcome struct {
	ID     string `json:"id"`
	Ending string `json:"ending"`
	// Status is what the caller got.
	Status int `json:"status"`
	// TTFTMS is nil when no token came; TPOTMS is nil with fewer than two.
	TTFTMS  *float64 `json:"ttft_ms"`
	TPOTMS  *float64 `json:"tpot_ms"`
	TotalMS float64  `json:"total_ms"`
	// PromptTokens etc. are nil when neither said nor countable. Estimated is true when they were counted from the stream.
	PromptTokens     *int   `json:"prompt_tokens"`
	CachedTokens     *int   `json:"cached_tokens"`
	CompletionTokens *int   `json:"completion_tokens"`
	Estimated        bool   `json:"estimated,omitempty"`
	FinishReason     string `json:"finish_reason,omitempty"`
	Error            string `json:"error,omitempty"`
	// SLOMet is true when the response ended whole and within its class's TTFT and TPOT.
	SLOMet bool `json:"slo_met"`
}

// Event is something that happened to the pool or to admitd.
type Event struct {
	// Name is a stable word: policy_reload, policy_refused, engine_state, scrape_gap, scrape_back, config_refused, start, stop, upgrade,
	// upgrade_failed, capacity_disagrees (log and metrics about the KV cache), head_evicted (a request was taken out of a stalled engine).
	Name string `json:"name"`
	// Level is info, warn or error.
	Level string `json:"level"`
	Pool  string `json:"pool,omitempty"`
	Text  string `json:"text"`
}
