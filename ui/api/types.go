// Package api holds the shapes of the admin API, shared by the server, the command line and the tests, and
// mirrored by ui/web/src/api.ts.
//
// Goal: one place that says what /api/v1 answers; stable snake_case fields, RFC 3339 times.
//
// Non-goals: behaviour.
//
// Invariants: a quantity that is not known is null, never 0.
package api

import (
	"time"

	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/supervisor"
)

// Status answers GET /api/v1/status.
type Status struct {
	Version   string    `json:"version"`
	BootID    string    `json:"boot_id"`
	Now       time.Time `json:"now"`
	StartedAt time.Time `json:"started_at"`
	// GateAddress is where callers reach the model API.
	GateAddress string `json:"gate_address"`
	// Ready is true when every pool is.
	Ready  bool         `json:"ready"`
	Pools  []PoolStatus `json:"pools"`
	Config ConfigStatus `json:"config"`
	// WebsocketClients counts viewers now; FramesDropped the frames lost to slow viewers since start.
	WebsocketClients int    `json:"websocket_clients"`
	FramesDropped    uint64 `json:"frames_dropped"`
}

// ConfigStatus is the state of the reloader.
type ConfigStatus struct {
	File           string     `json:"file,omitempty"`
	LastReloadOK   bool       `json:"last_reload_ok"`
	LastReloadAt   *time.Time `json:"last_reload_at"`
	LastReloadFrom string     `json:"last_reload_from,omitempty"`
	// Problem is the last refused reload in words, "" when the last one was good.
	Problem string `json:"problem,omitempty"`
}

// PoolStatus is one served model.
type PoolStatus struct {
	Model   string               `json:"model"`
	Aliases []string             `json:"aliases,omitempty"`
	Engine  supervisor.Status    `json:"engine"`
	Policy  PolicyInfo           `json:"policy"`
	Ledger  admission.Digest     `json:"ledger"`
	Signals []journal.SignalView `json:"signals"`
	Scrape  ScrapeStatus         `json:"scrape"`
	GPU     GPU                  `json:"gpu"`
	// Windows are counts over the last 1 and 5 minutes, shortest first.
	Windows []Window `json:"windows"`
}

// ScrapeStatus is the health of the metrics scrape.
type ScrapeStatus struct {
	Seq        uint64 `json:"seq"`
	AgeMS      *int64 `json:"age_ms"`
	TookMS     int64  `json:"took_ms"`
	Failures   int    `json:"failures"`
	Error      string `json:"error,omitempty"`
	Engine     string `json:"engine"`
	Version    string `json:"version"`
	IntervalMS int64  `json:"interval_ms"`
	// Life counts the engines that answered one after the other; LifeWhy says what showed that the last one is another than before.
	Life    uint64 `json:"life"`
	LifeWhy string `json:"life_why,omitempty"`
	// Models are the names that the engine's gauges carry.
	Models []string `json:"models,omitempty"`
	// Conditions keep the last page from being believed as it stands; none is the rule.
	Conditions []ScrapeCondition `json:"conditions,omitempty"`
}

// ScrapeCondition is why a page is not believed: rank_missing or mixed_engines, and words for people.
type ScrapeCondition struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Window is counts over a sliding time window.
type Window struct {
	Seconds  int `json:"seconds"`
	Arrivals int `json:"arrivals"`
	Admitted int `json:"admitted"`
	Deferred int `json:"deferred"`
	Rejected int `json:"rejected"`
	// Ended counts outcomes known in the window, SLOMet those that met their class.
	Ended  int `json:"ended"`
	SLOMet int `json:"slo_met"`
	// Goodput is requests that met their SLO over all requests that were meant to be served and whose fate is
	// known; null when there were none.
	Goodput *float64 `json:"goodput"`
	TTFTP50 *float64 `json:"ttft_p50_ms"`
	TTFTP95 *float64 `json:"ttft_p95_ms"`
	TPOTP50 *float64 `json:"tpot_p50_ms"`
	TPOTP95 *float64 `json:"tpot_p95_ms"`
}

// GPU is the nvml reading.
type GPU struct {
	State   string      `json:"state"`
	Why     string      `json:"why,omitempty"`
	Driver  string      `json:"driver,omitempty"`
	AgeMS   *int64      `json:"age_ms"`
	Devices []GPUDevice `json:"devices"`
}

// GPUDevice is one GPU.
type GPUDevice struct {
	Index            int          `json:"index"`
	Name             string       `json:"name"`
	UUID             string       `json:"uuid"`
	State            string       `json:"state"`
	Why              string       `json:"why,omitempty"`
	MemoryTotalBytes *uint64      `json:"memory_total_bytes"`
	MemoryUsedBytes  *uint64      `json:"memory_used_bytes"`
	MemoryFreeBytes  *uint64      `json:"memory_free_bytes"`
	UnifiedMemory    bool         `json:"unified_memory"`
	Utilization      *float64     `json:"utilization"`
	PowerWatts       *float64     `json:"power_watts"`
	Temperature      *float64     `json:"temperature_celsius"`
	Throttle         []string     `json:"throttle,omitempty"`
	ECCUncorrected   *uint64      `json:"ecc_uncorrected"`
	LastXid          *uint64      `json:"last_xid"`
	Processes        []GPUProcess `json:"processes"`
}

// GPUProcess is one process holding GPU memory.
type GPUProcess struct {
	PID int `json:"pid"`
	// Name is what the driver calls it, "" where it does not tell.
	Name      string  `json:"name,omitempty"`
	UsedBytes *uint64 `json:"used_bytes"`
	Ours      bool    `json:"ours"`
}

// PolicyInfo names the running policy.
type PolicyInfo struct {
	Name string    `json:"name"`
	Rev  string    `json:"rev"`
	File string    `json:"file,omitempty"`
	At   time.Time `json:"at"`
	// Source says what put it there: start, file, sighup, api, revert, or fallback when a policy did not fit the engine.
	Source string `json:"source"`
	// Note comes with an API change.
	Note string `json:"note,omitempty"`
}

// PolicyDocument answers GET /api/v1/policy (ETag = "rev").
type PolicyDocument struct {
	PolicyInfo
	Text string      `json:"text"`
	Spec policy.Spec `json:"spec"`
	// Needs lists the signals it cannot do without, and whether the engine exports them now.
	Needs []PolicyNeed `json:"needs"`
}

// PolicyNeed is one signal that a policy needs.
type PolicyNeed struct {
	Signal string `json:"signal"`
	Why    string `json:"why"`
	State  string `json:"state"`
}

// PolicyHistory answers GET /api/v1/policy/history, newest first.
type PolicyHistory struct {
	Revisions []PolicyRevision `json:"revisions"`
}

// PolicyRevision is one past or present revision.
type PolicyRevision struct {
	PolicyInfo
	Text string `json:"text"`
}

// DryRun answers POST /api/v1/policy/dry-run (body: the policy text). It re-judges the recorded window, open loop:
// a flipped decision would have changed what came after it.
type DryRun struct {
	Rev    string       `json:"rev"`
	Window int          `json:"window_decisions"`
	From   *time.Time   `json:"from"`
	To     *time.Time   `json:"to"`
	Old    VerdictCount `json:"old"`
	New    VerdictCount `json:"new"`
	// Flips lists up to 20 decisions that would differ, oldest first; FlipCount all of them.
	FlipCount int    `json:"flip_count"`
	Flips     []Flip `json:"flips"`
	// Skipped counts arrivals that no policy judges (bad key, bad body).
	Skipped int `json:"skipped"`
	// AfterFirstFlip is the share of judged arrivals that came after the first flip: what they say is first-order only.
	AfterFirstFlip float64 `json:"after_first_flip"`
	Caveat         string  `json:"caveat"`
}

// VerdictCount counts verdicts.
type VerdictCount struct {
	Admit  int `json:"admit"`
	Defer  int `json:"defer"`
	Reject int `json:"reject"`
}

// Flip is one decision that a draft policy would have made differently.
type Flip struct {
	ID        string      `json:"id"`
	At        time.Time   `json:"at"`
	Old       string      `json:"old"`
	New       string      `json:"new"`
	NewReason reason.Code `json:"new_reason"`
	Message   string      `json:"message"`
}

// Decisions answers GET /api/v1/decisions.
type Decisions struct {
	// Items are newest first.
	Items []DecisionItem `json:"items"`
	// Next is the value for after= that continues towards newer entries; Oldest the oldest seq still in the ring.
	Next   uint64 `json:"next"`
	Oldest uint64 `json:"oldest"`
}

// DecisionItem is a decision with its outcome when known. GET /api/v1/decisions/{id} answers one.
type DecisionItem struct {
	Seq      uint64           `json:"seq"`
	At       time.Time        `json:"at"`
	Decision journal.Decision `json:"decision"`
	Outcome  *journal.Outcome `json:"outcome"`
	Reason   reason.Entry     `json:"reason_entry"`
	Session  []SessionSibling `json:"session_siblings,omitempty"`
}

// SessionSibling is another decision of the same session, for "what the session did".
type SessionSibling struct {
	ID      string      `json:"id"`
	At      time.Time   `json:"at"`
	Verdict string      `json:"verdict"`
	Reason  reason.Code `json:"reason"`
	Attempt int         `json:"attempt"`
}

// EngineLogs answers GET /api/v1/engine/logs.
type EngineLogs struct {
	Lines []supervisor.Line `json:"lines"`
	Lost  bool              `json:"lost"`
	Next  uint64            `json:"next"`
}

// History answers GET /api/v1/history: gauge rows on one time axis.
type History struct {
	Gauges []Gauge      `json:"gauges"`
	T      []int64      `json:"t_ms"`
	Rows   [][]*float64 `json:"rows"`
}

// ReloadResult answers POST /api/v1/reload and PUT /api/v1/policy.
type ReloadResult struct {
	Changed bool   `json:"changed"`
	Rev     string `json:"rev"`
	Text    string `json:"text"`
	// Diff is one line per semantic change, for instance "params.max_waiting 2 -> 4".
	Diff []string `json:"diff,omitempty"`
}

// Problem is an application/problem+json error.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Errors lists places in a policy or config text.
	Errors []Place `json:"errors,omitempty"`
	// Fields lists settings that a hot reload cannot change (409).
	Fields []string `json:"fields,omitempty"`
}

// Place is one error in a text.
type Place struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Field  string `json:"field,omitempty"`
	Text   string `json:"text"`
}
