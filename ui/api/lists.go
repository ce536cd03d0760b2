package api

import (
	"encoding/json"
	"time"

	"admitd/gate/journal"
	"admitd/gate/reason"
)

// Websocket subprotocols. A browser cannot set headers on a websocket, so the page offers two of them:
// StreamProtocol, which the server answers with, and TokenProtocol followed by the admin token in unpadded
// base64url (or the token itself where its characters are letters, digits, '-', '.' and '_').
const (
	StreamProtocol = "admitd.v1"
	TokenProtocol  = "admitd.token."
)

// Signals answers GET /api/v1/signals.
type Signals struct {
	Pool    string               `json:"pool"`
	Scrape  ScrapeStatus         `json:"scrape"`
	Signals []journal.SignalView `json:"signals"`
}

// Tenants answers GET /api/v1/tenants: sums over the decisions still in the ring, busiest tenant first.
type Tenants struct {
	Pool string `json:"pool"`
	// From is the time of the oldest decision counted; nil when there is none.
	From    *time.Time  `json:"from"`
	Tenants []TenantRow `json:"tenants"`
	// Others sums the tenants that did not make the list; nil when all did.
	Others *TenantRow `json:"others"`
}

// Counts sums decisions and outcomes of one tenant or session.
type Counts struct {
	Arrivals int `json:"arrivals"`
	Admitted int `json:"admitted"`
	Deferred int `json:"deferred"`
	Rejected int `json:"rejected"`
	// InFlight counts admitted arrivals whose outcome is not known yet.
	InFlight int `json:"in_flight"`
	Ended    int `json:"ended"`
	SLOMet   int `json:"slo_met"`
	// Goodput as in Window, over all arrivals counted here.
	Goodput *float64 `json:"goodput"`
	// Retries counts arrivals with an attempt number above 0.
	Retries int `json:"retries"`
	// ReservedTokens sums what was set aside; PromptTokens and CompletionTokens what the outcomes said.
	ReservedTokens   int64 `json:"reserved_tokens"`
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	// EstimateBias is estimated over real prompt tokens, summed over outcomes that said them; nil when none did.
	EstimateBias *float64  `json:"estimate_bias"`
	TTFTP95      *float64  `json:"ttft_p95_ms"`
	FirstAt      time.Time `json:"first_at"`
	LastAt       time.Time `json:"last_at"`
}

// TenantRow is one tenant.
type TenantRow struct {
	Tenant string `json:"tenant"`
	// Sessions counts the different sessions seen.
	Sessions int `json:"sessions"`
	Counts
	LastVerdict string      `json:"last_verdict"`
	LastReason  reason.Code `json:"last_reason"`
}

// Sessions answers GET /api/v1/sessions: sums over the decisions still in the ring, latest session first.
type Sessions struct {
	Pool     string       `json:"pool"`
	From     *time.Time   `json:"from"`
	Sessions []SessionRow `json:"sessions"`
	Others   *SessionRow  `json:"others"`
}

// SessionRow is one session.
type SessionRow struct {
	Session string `json:"session"`
	// Source says how the session was recognised.
	Source string `json:"source,omitempty"`
	Tenant string `json:"tenant"`
	Class  string `json:"class"`
	Counts
	// MaxAttempt is the highest attempt number seen.
	MaxAttempt  int         `json:"max_attempt"`
	LastVerdict string      `json:"last_verdict"`
	LastReason  reason.Code `json:"last_reason"`
}

// Poll answers GET /api/v1/frame?since=: the messages that the websocket would have sent, in order. Without
// since, or when since is out of the ring's reach, they are hello, snap (and gap); else the frames and events
// after since, possibly none, preceded by hello when the answer is the first one of this admitd.
type Poll struct {
	Messages []json.RawMessage `json:"messages"`
	// Next is the value for since= that continues.
	Next uint64 `json:"next"`
	// More is true when the answer was cut at its limit: ask again at once.
	More bool `json:"more"`
}

// LogEvent is one line of GET /api/v1/engine/logs?follow=1 (application/x-ndjson). Lost is true on a line of its
// own, with no text, where older lines had already been dropped.
type LogEvent struct {
	Seq  uint64    `json:"seq"`
	At   time.Time `json:"at"`
	Text string    `json:"text"`
	Lost bool      `json:"lost,omitempty"`
}

// PolicyText is the JSON form of the body of PUT policy and POST policy/dry-run; text/yaml is the other form.
type PolicyText struct {
	Text string `json:"text"`
	// Note is kept in the history; at most 500 bytes.
	Note string `json:"note,omitempty"`
}

// RevertRequest is the body of POST policy/revert. Rev "" means the revision before the running one.
type RevertRequest struct {
	Rev string `json:"rev,omitempty"`
}

// Accepted answers a request that has been taken on but is not done yet (202).
type Accepted struct {
	Text string `json:"text"`
}

// ViewerMessage is what a websocket viewer may send: Rate is the number of deliveries a second that it wants, 1 to
// 10 (a hidden tab asks for 1).
type ViewerMessage struct {
	Rate int `json:"rate"`
}

// UpgradeRequest asks for an upgrade; Binary "" is the present program's own path.
type UpgradeRequest struct {
	Binary string `json:"binary,omitempty"`
}

// UpgradeStep is one line of the answer to POST upgrade.
type UpgradeStep struct {
	Text string `json:"text"`
	// Done marks the last line; OK says whether a new admitd serves then, and PID which.
	Done bool `json:"done,omitempty"`
	OK   bool `json:"ok,omitempty"`
	PID  int  `json:"pid,omitempty"`
}
