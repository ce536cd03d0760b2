// Package reason is the catalogue of words that say why a request was not simply admitted.
//
// Goal: one table from which response headers, metric labels, journal records, dashboard words and
// docs/reasons.md are made, so that they cannot disagree.
//
// Non-goals: choosing a reason (policy and gate do that), formatting whole response bodies (dialect does).
//
// Invariants: a Code is stable once released; every Code has exactly one Entry; Status is what is sent
// unless the configuration remaps it, the word is never remapped.
package reason

import "slices"

// Code is a stable word, snake_case, from the table in this package.
type Code string

// Retry says whether coming back can help.
type Retry string

const (
	// RetryAfter means the response carries Retry-After (whole seconds, 1 to 60).
	RetryAfter Retry = "after"
	// RetryNever means the same request cannot succeed later: x-should-retry: false.
	RetryNever Retry = "never"
)

// Verdict words, as sent in X-Admitd-Decision and stored in the journal.
const (
	VerdictAdmit  = "admit"
	VerdictDefer  = "defer"
	VerdictReject = "reject"
)

// Codes of the catalogue. OK is the reason of an ordinary admission.
const (
	OK Code = "ok"

	KVPressure         Code = "kv_pressure"
	KVForecast         Code = "kv_forecast"
	QueueDepth         Code = "queue_depth"
	QueueAge           Code = "queue_age"
	SlotsFull          Code = "slots_full"
	Saturated          Code = "saturated"
	TTFTInfeasible     Code = "ttft_infeasible"
	TPOTInfeasible     Code = "tpot_infeasible"
	DeadlineInfeasible Code = "deadline_infeasible"
	SessionWindow      Code = "session_window"
	SessionFanout      Code = "session_fanout"
	TenantConcurrency  Code = "tenant_concurrency"
	TenantRequests     Code = "tenant_requests"
	TenantTokens       Code = "tenant_tokens"
	TooLarge           Code = "too_large"
	OutputCap          Code = "output_cap"
	ModelUnknown       Code = "model_unknown"
	ModelForbidden     Code = "model_forbidden"
	KeyMissing         Code = "key_missing"
	KeyInvalid         Code = "key_invalid"
	KeyExpired         Code = "key_expired"
	EngineLoading      Code = "engine_loading"
	EngineDown         Code = "engine_down"
	EngineStalled      Code = "engine_stalled"
	EngineFull         Code = "engine_full"
	SignalMissing      Code = "signal_missing"
	SignalStale        Code = "signal_stale"
	Draining           Code = "draining"
	HoldExpired        Code = "hold_expired"
	BufferFull         Code = "buffer_full"
	Rule               Code = "rule"

	BadRequest       Code = "bad_request"
	BodyTooLarge     Code = "body_too_large"
	PathUnknown      Code = "path_unknown"
	PathBlocked      Code = "path_blocked"
	MethodNotAllowed Code = "method_not_allowed"
	UpgradeRefused   Code = "upgrade_refused"
	KeyInQuery       Code = "key_in_query"
	HelperRate       Code = "helper_rate"
	InternalError    Code = "internal_error"
)

// Entry describes one Code.
type Entry struct {
	Code    Code   `json:"code"`
	Verdict string `json:"verdict"`
	// Status is the default HTTP status; 0 for OK.
	Status int   `json:"status"`
	Retry  Retry `json:"retry,omitempty"`
	// Label is two or three words for charts and lists.
	Label string `json:"label"`
	// Doc says what happened and what to do, in one plain sentence.
	Doc string `json:"doc"`
}

var table = []Entry{
	{OK, VerdictAdmit, 0, "", "admitted", "The request went to the engine."},

	{KVPressure, VerdictDefer, 503, RetryAfter, "KV cache full", "The engine's KV cache is above the policy's limit; come back when running work has freed blocks."},
	{KVForecast, VerdictDefer, 503, RetryAfter, "KV forecast", "Running work is forecast to fill the KV cache; come back later."},
	{QueueDepth, VerdictDefer, 503, RetryAfter, "queue too long", "As many requests wait inside the engine as the policy allows; come back later."},
	{QueueAge, VerdictDefer, 503, RetryAfter, "queue too old", "Requests wait inside the engine for longer than the policy allows; come back later."},
	{SlotsFull, VerdictDefer, 503, RetryAfter, "slots full", "As many requests are in flight as the policy allows; come back later."},
	{Saturated, VerdictReject, 529, RetryAfter, "pool saturated", "The pool is saturated and no relief is in sight within a minute; back off for long or go elsewhere."},
	{TTFTInfeasible, VerdictDefer, 503, RetryAfter, "TTFT infeasible", "The first token would come later than the class allows; come back later."},
	{TPOTInfeasible, VerdictDefer, 503, RetryAfter, "TPOT infeasible", "Tokens would come slower than the class allows; come back later."},
	{DeadlineInfeasible, VerdictReject, 429, RetryNever, "deadline infeasible", "The request cannot finish by its own deadline; give it more time or make it smaller."},
	{SessionWindow, VerdictDefer, 503, RetryAfter, "session window", "As many sessions are active as the policy allows; come back later."},
	{SessionFanout, VerdictReject, 429, RetryAfter, "session fan-out", "This session has as many calls in flight as it may; wait for one to end."},
	{TenantConcurrency, VerdictReject, 429, RetryAfter, "tenant concurrency", "This tenant has as many calls in flight as it may; wait for one to end."},
	{TenantRequests, VerdictReject, 429, RetryAfter, "tenant requests", "This tenant's request rate is used up; wait for the stated time."},
	{TenantTokens, VerdictReject, 429, RetryAfter, "tenant tokens", "This tenant's token budget is used up; wait for the stated time."},
	{TooLarge, VerdictReject, 413, RetryNever, "too large", "The prompt cannot fit the engine's context or KV cache; make it smaller."},
	{OutputCap, VerdictReject, 400, RetryNever, "bad output cap", "The output cap is not a value that the engine can serve; lower it."},
	{ModelUnknown, VerdictReject, 404, RetryNever, "unknown model", "No model of that name is served here; GET /v1/models lists the names."},
	{ModelForbidden, VerdictReject, 403, RetryNever, "model forbidden", "This key may not use that model."},
	{KeyMissing, VerdictReject, 401, RetryNever, "key missing", "Send a key as Authorization: Bearer or x-api-key."},
	{KeyInvalid, VerdictReject, 401, RetryNever, "key invalid", "The key is not known here."},
	{KeyExpired, VerdictReject, 401, RetryNever, "key expired", "The key has expired; ask for a new one."},
	{EngineLoading, VerdictDefer, 503, RetryAfter, "engine loading", "The engine is loading its model; the message names the phase."},
	{EngineDown, VerdictDefer, 503, RetryAfter, "engine down", "The engine is not running; the message says what admitd is doing about it."},
	{EngineStalled, VerdictDefer, 503, RetryAfter, "engine stalled", "The engine holds work but makes no progress; admitd is watching or restarting it."},
	{EngineFull, VerdictDefer, 503, RetryAfter, "engine full", "The engine itself refused the request because its own queue was full."},
	{SignalMissing, VerdictDefer, 503, RetryAfter, "signal missing", "A signal that the policy needs is not there, and the policy says to refuse then."},
	{SignalStale, VerdictDefer, 503, RetryAfter, "signal stale", "A signal that the policy needs is too old or contradicts the ledger, and the policy says to refuse then."},
	{Draining, VerdictDefer, 503, RetryAfter, "draining", "admitd or the engine is stopping; open streams finish, new work is refused."},
	{HoldExpired, VerdictDefer, 503, RetryAfter, "hold expired", "The request was held as long as the policy allows and no room came; come back at the stated time."},
	{BufferFull, VerdictDefer, 503, RetryAfter, "buffers full", "Request bodies being read fill the gate's memory limit; come back in a moment."},
	{Rule, VerdictReject, 429, RetryNever, "rule", "A rule of the operator refused the request; the message names it."},

	{BadRequest, VerdictReject, 400, RetryNever, "bad request", "The body is not what the endpoint takes; the message says where."},
	{BodyTooLarge, VerdictReject, 413, RetryNever, "body too large", "The body is larger than the gate accepts; the message names the limit."},
	{PathUnknown, VerdictReject, 404, RetryNever, "unknown path", "The gate does not know this path and never passes on what it does not know."},
	{PathBlocked, VerdictReject, 404, RetryNever, "path blocked", "The engine has this path, but it is not open to callers; relay.open_paths in the configuration can open it."},
	{MethodNotAllowed, VerdictReject, 405, RetryNever, "wrong method", "The path exists, but not with this method."},
	{UpgradeRefused, VerdictReject, 501, RetryNever, "upgrade refused", "The gate does not relay connection upgrades such as WebSocket."},
	{KeyInQuery, VerdictReject, 400, RetryNever, "key in query", "Keys in the URL end up in logs; send the key as a header."},
	{HelperRate, VerdictReject, 429, RetryAfter, "helper rate", "Too many helper calls such as /tokenize at once; wait for one to end."},
	{InternalError, VerdictReject, 500, RetryNever, "internal error", "A defect in admitd ended this request; the log has its id."},
}

var byCode = func() map[Code]Entry {
	m := make(map[Code]Entry, len(table))
	for _, e := range table {
		m[e.Code] = e
	}
	return m
}()

// All returns the catalogue in its documented order. The caller may keep and change the slice.
func All() []Entry { return append([]Entry(nil), table...) }

// Lookup returns the entry of a code, and false for a code that is not in the catalogue.
func Lookup(c Code) (Entry, bool) {
	e, ok := byCode[c]
	return e, ok
}

// Codes returns all codes, sorted.
func Codes() []Code {
	out := make([]Code, 0, len(table))
	for _, e := range table {
		out = append(out, e.Code)
	}
	slices.Sort(out)
	return out
}
