// Package policy decides, from a request's facts and the pool's state, whether a request is admitted.
//
// Goal: small pure rules with a trace that a person can check by hand.
//
// Non-goals: keeping state between calls (gate/admission does), waiting, talking to engines, reading clocks.
//
// Invariants: Decide is a pure function of its arguments; a signal that is not usable never counts as a
// number; every decision carries the steps that led to it, with the values seen and the margins.
package policy

import (
	"time"

	"admitd/gate/reason"
	"admitd/signals"
)

// Verdict is what becomes of a request.
type Verdict string

const (
	// Admit: start now.
	Admit Verdict = "admit"
	// Hold: wait inside the gate, bounded.
	Hold Verdict = "hold"
	// Defer: come back at a stated time (503).
	Defer Verdict = "defer"
	// Reject: not this attempt (429 caller's fault, 529 pool full, 4xx impossible).
	Reject Verdict = "reject"
)

// Request is what a policy may know about one request.
type Request struct {
	// PromptTokens is the estimate of all prompt tokens; OutputTokens the tokens set aside for output, over all sequences.
	PromptTokens int
	OutputTokens int
	Sequences    int
	Class        string
	Tenant       string
	Session      string
	Attempt      int
}

// State is what a policy may know about the pool at one instant. It is a value; nothing in it changes.
type State struct {
	Now time.Time
	// Running, Waiting and KVUsed are the fused view: the last scrape corrected by the ledger's own changes since.
	// Waiting and KVUsed count what the engine has been given, whether it has shown it yet or not. A Contradicted
	// signal's Value is what the ledger makes of it, so it may be used; a Stale one's is the last reading as it was.
	Running signals.Signal
	Waiting signals.Signal
	KVUsed  signals.Signal
	// KVCapacity in tokens, as scraped or read from the engine's log.
	KVCapacity signals.Signal
	// InFlight is the number of requests that the ledger knows to be at the engine, sequences counted.
	InFlight int
	// Unseen is the part of InFlight that was sent after the last good scrape.
	Unseen int
	// Unstarted is the part of InFlight that has produced no token yet.
	Unstarted int
	// Promised is the number of sequences kept free for ticket holders whose time has come; 0 when judging one of them.
	Promised int
	// ReservedTokens is the sum of tokens set aside for requests in flight.
	ReservedTokens int
	// Held is the number of requests waiting in the gate.
	Held int
	// Slots is the engine's limit on running requests; 0 when not known.
	Slots int
}

// Input is one value that a step looked at.
type Input struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// State is the signal's state; "ledger" for a value of the gate's own books, "param" for a setting.
	State string `json:"state"`
	AgeMS int64  `json:"age_ms"`
}

// StepResult says what a step found.
type StepResult string

const (
	// Pass: the step lets the request through.
	Pass StepResult = "pass"
	// Fail: the step decided against admission; later steps are not evaluated.
	Fail StepResult = "fail"
	// Unusable: an input was missing, stale or contradicted; Note says what the policy does then.
	Unusable StepResult = "unusable"
	// NotEvaluated: an earlier step had decided.
	NotEvaluated StepResult = "not_evaluated"
)

// Step is one line of a decision's trace.
type Step struct {
	// Rule is the step's name, for instance "waiting".
	Rule string `json:"rule"`
	// Text is the comparison in plain words, for instance "waiting 3 < limit 2".
	Text   string     `json:"text"`
	Inputs []Input    `json:"inputs,omitempty"`
	Limit  float64    `json:"limit"`
	Result StepResult `json:"result"`
	// Margin is limit minus value in the limit's unit: negative when the limit was passed. 0 when not evaluated.
	Margin float64 `json:"margin"`
	Note   string  `json:"note,omitempty"`
}

// Decision is what a policy says about one request.
type Decision struct {
	Verdict Verdict
	Reason  reason.Code
	// Message is one plain sentence with the number and the limit.
	Message string
	Trace   []Step
	// Counterfactual is the smallest change that would flip a refusal, in plain words; "" when admitted.
	Counterfactual string
}

// Need is a signal that a policy cannot work without.
type Need struct {
	Signal signals.Name
	// Why says what the policy does with it.
	Why string
}

// Policy is one admission rule set, immutable and safe for concurrent use.
//
// Decide answers Admit, or Defer with the reason: turning a Defer into a hold, a time or a rejection needs a
// clock and a queue, which only the controller has.
type Policy interface {
	// Name as written in the policy file.
	Name() string
	// Needs lists the signals without which it cannot start.
	Needs() []Need
	// Decide judges one request. Pure.
	Decide(Request, State) Decision
	// Admits reports whether Decide would answer Admit. Pure; it allocates nothing, so that who admits need not say why
	// until somebody asks.
	Admits(Request, *State) bool
}

// OnStale is what a policy does when a signal it reads is not usable.
type OnStale string

const (
	// StaleLedger: judge by the gate's own ledger alone (default).
	StaleLedger OnStale = "ledger"
	// StaleRefuse: defer with signal_stale or signal_missing.
	StaleRefuse OnStale = "refuse"
	// StaleAdmit: let the request through.
	StaleAdmit OnStale = "admit"
)

// Compiled is a policy ready to serve, with where it came from. Immutable.
type Compiled struct {
	Policy Policy
	// Rev is the first 12 hex digits of the SHA-256 of Source.
	Rev string
	// Source is the YAML text exactly as given.
	Source []byte
	// File is where it was read from; "" for one that came over the admin API or is built in.
	File string
	Spec Spec
}

// Spec is the decoded policy file, defaults filled in. Strict: an unknown key is an error with line and column.
type Spec struct {
	// Policy is the policy's name: admit-all, concurrency, queue-depth, kv-threshold, dual-gate or saturation.
	Policy      string  `yaml:"policy" json:"policy"`
	Description string  `yaml:"description,omitempty" json:"description,omitempty"`
	OnStale     OnStale `yaml:"on_stale" json:"on_stale"`
	// Params by policy; those that the policy does not know are errors.
	Params Params    `yaml:"params" json:"params"`
	Hold   HoldSpec  `yaml:"hold" json:"hold"`
	Retry  RetrySpec `yaml:"retry_after" json:"retry_after"`
	// Codes maps a reason to the HTTP status sent for it, where the default of the catalogue is not wanted.
	Codes map[reason.Code]int `yaml:"codes,omitempty" json:"codes,omitempty"`
}

// Params holds the parameters of all policies; a nil one was not given.
type Params struct {
	// MaxInFlight: most requests at the engine (concurrency). At least 1.
	MaxInFlight *int `yaml:"max_in_flight,omitempty" json:"max_in_flight,omitempty"`
	// MaxWaiting: most requests waiting inside the engine (queue-depth, dual-gate). At least 0.
	MaxWaiting *int `yaml:"max_waiting,omitempty" json:"max_waiting,omitempty"`
	// MaxKVUsed: highest KV use, a fraction above 0 and up to 1 (kv-threshold, dual-gate).
	MaxKVUsed *float64 `yaml:"max_kv_used,omitempty" json:"max_kv_used,omitempty"`
	// WaitingScale and KVScale: saturation = max(waiting/waiting_scale, kv_used/kv_scale). Above 0.
	WaitingScale *float64 `yaml:"waiting_scale,omitempty" json:"waiting_scale,omitempty"`
	KVScale      *float64 `yaml:"kv_scale,omitempty" json:"kv_scale,omitempty"`
	// MaxSaturation: saturation at which refusals begin (saturation). Above 0.
	MaxSaturation *float64 `yaml:"max_saturation,omitempty" json:"max_saturation,omitempty"`
}

// HoldSpec bounds waiting inside the gate. MaxWait 0 means no hold: a request is deferred at once.
type HoldSpec struct {
	MaxWait     time.Duration `yaml:"max_wait" json:"max_wait_ns"`
	MaxRequests int           `yaml:"max_requests" json:"max_requests"`
}

// RetrySpec bounds Retry-After. Both ends lie in 1 to 60 s: only those values do all SDKs honour.
type RetrySpec struct {
	Min time.Duration `yaml:"min" json:"min_ns"`
	Max time.Duration `yaml:"max" json:"max_ns"`
}
