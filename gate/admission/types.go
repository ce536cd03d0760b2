// Package admission is the controller around one policy: ledger, hold queue and tickets.
//
// Goal: check and reserve in one step; fuse the last scrape with the ledger's own changes since; settle every
// reservation exactly once; tell refused callers spaced times to come back.
//
// Non-goals: time, randomness, sockets, logs, goroutines. Time is an argument, effects are return values; the
// same code runs behind a lock in the gate, in replay and under virtual time in the benchmark.
//
// Invariants: the sum of reservations equals the sum over requests in flight; a request is in exactly one of
// held, in flight, ended; a scrape that contradicts the ledger never opens the gate; a policy change touches
// no request in flight.
package admission

import (
	"time"

	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
)

// ID names one arrival; the caller makes it unique.
type ID string

// Arrival is a request that asks to be admitted.
type Arrival struct {
	ID     ID
	Facts  dialect.Facts
	Tenant string
	// Class is the resolved SLO class.
	Class string
	// HoldDeadline is the latest instant up to which the caller is worth holding; zero means the policy's own limit.
	HoldDeadline time.Time
	// DryRun asks what would be decided; nothing is reserved, held or scheduled.
	DryRun bool
}

// Verdict is the controller's final or interim answer for one arrival.
type Verdict struct {
	ID       ID
	Decision policy.Decision
	// PolicyName and PolicyRev name the revision that judged the arrival, wholly.
	PolicyName string
	PolicyRev  string
	// PromptTokens, OutputTokens and ReservedTokens are the estimate that the decision used.
	PromptTokens   int
	OutputTokens   int
	ReservedTokens int
	// State is what the policy saw.
	State policy.State
	// SnapshotSeq is the scrape that the state was built on.
	SnapshotSeq uint64
	// RetryAfter is when to come back, for Defer and for Reject where waiting helps; 0 otherwise. Exact; the
	// gate rounds up to whole seconds.
	RetryAfter time.Duration
	// Ticket is the value of X-Admitd-Ticket for a deferred caller; "" otherwise.
	Ticket string
	// HeldFor is how long the request had been held when it was decided; 0 when it never was.
	HeldFor time.Duration
	// HoldUntil is set when Decision.Verdict is Hold.
	HoldUntil time.Time

	// judge and request explain an admission that was not explained at once.
	judge   policy.Policy
	request policy.Request
}

// Explained is Decision with its trace. Most requests are admitted, and nobody asks why: those are explained only here,
// which a policy being pure gives what it would have said then.
func (v *Verdict) Explained() policy.Decision {
	if v.judge == nil {
		return v.Decision
	}
	return v.judge.Decide(v.request, v.State)
}

// Settlement ends a request that was admitted.
type Settlement struct {
	ID     ID
	Ending dialect.Ending
	// PromptTokens and CompletionTokens as the engine said, or as counted when Estimated.
	PromptTokens     int
	CompletionTokens int
	// CachedTokens is the part of PromptTokens that the engine said came from its prefix cache; 0 also when it did not say.
	CachedTokens int
	Estimated    bool
}

// Reservation is one request in flight, for Dump.
type Reservation struct {
	ID             ID        `json:"id"`
	Tenant         string    `json:"tenant"`
	AdmittedAt     time.Time `json:"admitted_at"`
	FirstTokenAt   time.Time `json:"first_token_at"`
	PromptTokens   int       `json:"prompt_tokens"`
	ReservedTokens int       `json:"reserved_tokens"`
	Generated      int       `json:"generated_tokens"`
	// Sequences is how many of them the engine runs for it; 0 in a record that does not say counts as 1.
	Sequences int `json:"sequences"`
}

// HeldRequest is one request waiting inside the gate, for Dump.
type HeldRequest struct {
	ID     ID        `json:"id"`
	Tenant string    `json:"tenant"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	// Returned is true for a ticket holder that came back in its window.
	Returned     bool        `json:"returned"`
	PromptTokens int         `json:"prompt_tokens"`
	Reason       reason.Code `json:"reason"`
}

// Depth chooses how much Dump tells.
type Depth int

const (
	// Totals: counts and sums only.
	Totals Depth = iota
	// PerTenant: counts by tenant too.
	PerTenant
	// PerRequest: every reservation and held request too.
	PerRequest
)

// Digest is a copy of the controller's books at one instant.
type Digest struct {
	At             time.Time `json:"at"`
	InFlight       int       `json:"in_flight"`
	Held           int       `json:"held"`
	ReservedTokens int       `json:"reserved_tokens"`
	Slots          int       `json:"slots"`
	Arrivals       uint64    `json:"arrivals"`
	Admitted       uint64    `json:"admitted"`
	Deferred       uint64    `json:"deferred"`
	Rejected       uint64    `json:"rejected"`
	Settled        uint64    `json:"settled"`
	// Withdrawn counts held callers that went away. Arrivals = admitted + deferred + rejected + withdrawn + held.
	Withdrawn uint64 `json:"withdrawn"`
	// TicketsHonoured counts tickets used in their window, TicketsEarly returns before the slot, TicketsIgnored
	// forged, foreign, used and lapsed ones; Promised is the number of slots promised and not yet used or lapsed.
	TicketsHonoured uint64 `json:"tickets_honoured"`
	TicketsEarly    uint64 `json:"tickets_early"`
	TicketsIgnored  uint64 `json:"tickets_ignored"`
	Promised        int    `json:"promised"`
	// ExpectedOutput is the learnt number of output tokens per sequence that is set aside when no cap is lower.
	ExpectedOutput int `json:"expected_output_tokens"`
	// ReleaseRate is endings per second over the recent past; 0 when none was seen.
	ReleaseRate float64 `json:"release_rate"`
	// EstimateCorrection is the learnt factor on the prompt estimate (1 = the cold estimate).
	EstimateCorrection float64        `json:"estimate_correction"`
	ByTenant           map[string]int `json:"by_tenant,omitempty"`
	Requests           []Reservation  `json:"requests,omitempty"`
	// HeldRequests in the order in which they will be admitted.
	HeldRequests []HeldRequest `json:"held_requests,omitempty"`
}

// View is the part of the ledger that a journal record keeps of the moment of decision.
type View struct {
	InFlight       int `json:"in_flight"`
	Unseen         int `json:"unseen"`
	Unstarted      int `json:"unstarted"`
	Promised       int `json:"promised"`
	Held           int `json:"held"`
	ReservedTokens int `json:"reserved_tokens"`
	Slots          int `json:"slots"`
}

// Controlling is the controller's interface, so that the gate, the benchmark and tests agree on it. None of the
// methods may be called by two goroutines at once.
type Controlling interface {
	// Arrive judges one arrival. An Admit verdict has reserved; a Hold verdict is answered later by one of the
	// verdicts that the other methods return.
	Arrive(now time.Time, a Arrival) Verdict
	// Withdraw tells that a held caller went away. It reports whether the request was still held.
	Withdraw(now time.Time, id ID) bool
	// Progress tells that an admitted request has produced generated tokens in all (the first one counts as first
	// token). A first token can make room: NextWake then asks for a Tick at once.
	Progress(now time.Time, id ID, generated int)
	// Settle ends an admitted request. The second settlement of an id does nothing and returns ErrNotInFlight.
	Settle(now time.Time, s Settlement) ([]Verdict, error)
	// Observe takes a new scrape and returns the held requests that can be decided now.
	Observe(now time.Time, snap *signals.Snapshot) []Verdict
	// Tick decides held requests whose time is up. Call it at NextWake.
	Tick(now time.Time) []Verdict
	// NextWake is when Tick has something to do; zero when nothing is held.
	NextWake() time.Time
	// SetPolicy swaps the policy for decisions from now on; held requests are judged again by the new one.
	SetPolicy(now time.Time, p *policy.Compiled) []Verdict
	// Close refuses everything held with the reason given and lets nothing in until Open.
	Close(now time.Time, why reason.Code, message string) []Verdict
	Open(now time.Time)
	Dump(now time.Time, d Depth) Digest
}
