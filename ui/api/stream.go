package api

import "admitd/gate/reason"

// StreamVersion is the "v" of every message. A viewer that sees another one reloads itself.
const StreamVersion = 1

// Message kinds of the websocket.
const (
	KindHello = "hello"
	KindSnap  = "snap"
	KindFrame = "frame"
	KindGap   = "gap"
	KindEvent = "event"
	KindBye   = "bye"
)

// Envelope opens every message. Frames and events are numbered together, without holes, in one sequence a pool;
// hello, snap, gap and bye carry the latest number. The sequence starts at the start time of admitd in tenths of
// a second since the Unix epoch, so that a number kept from before a restart is never mistaken for one of now.
// T is milliseconds since the Unix epoch.
type Envelope struct {
	V    int    `json:"v"`
	Seq  uint64 `json:"seq"`
	T    int64  `json:"t"`
	Kind string `json:"kind"`
}

// Gauge names one column of the gauge rows.
type Gauge struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
}

// Gauges lists the columns of Frame.G, in order. A cell that is not known is null.
var Gauges = []Gauge{
	{"kv_used", "fraction"},     // as scraped
	{"kv_reserved", "fraction"}, // tokens reserved by the ledger over capacity
	{"running", "requests"},     // engine
	{"waiting", "requests"},     // engine
	{"in_flight", "requests"},   // ledger
	{"held", "requests"},        // gate
	{"preemption_rate", "1/s"},
	{"prefill_tokens_rate", "tokens/s"},
	{"decode_tokens_rate", "tokens/s"},
	{"prefix_hit_rate", "fraction"},
	{"ttft_p50_ms", "ms"}, // admitted requests, last 10 s
	{"ttft_p95_ms", "ms"},
	{"tpot_p50_ms", "ms"},
	{"tpot_p95_ms", "ms"},
	{"gpu_memory_used_bytes", "bytes"}, // all devices
	{"gpu_memory_total_bytes", "bytes"},
	{"gpu_memory_engine_bytes", "bytes"}, // held by the engine's own processes
	{"gpu_utilization", "fraction"},      // mean over devices
	{"scrape_age_ms", "ms"},
	{"gpu_age_ms", "ms"},
	{"goodput_1m", "fraction"},
	{"arrivals_rate", "1/s"}, // last 10 s
	{"reserved_tokens", "tokens"},
	{"max_waiting", "requests"}, // the running policy's limits, null where it has none
	{"max_kv_used", "fraction"},
	{"max_in_flight", "requests"},
}

// DecisionFields names the cells of one decision in Frame.D, in order: t is milliseconds before the frame's T;
// verdict, reason, tenant, class are indexes (verdict into Hello.Verdicts, reason into Hello.Reasons, the others
// into the strings interned so far).
var DecisionFields = []string{"id", "t", "verdict", "reason", "status", "tenant", "class", "session", "attempt",
	"prompt_tokens", "output_tokens", "reserved_tokens", "retry_after_ms", "held_ms", "kv_used", "waiting"}

// OutcomeFields names the cells of one outcome in Frame.O, in order. ending is interned; slo_met is 0 or 1.
var OutcomeFields = []string{"id", "ending", "status", "ttft_ms", "tpot_ms", "total_ms", "prompt_tokens", "completion_tokens", "slo_met"}

// Hello is the first message.
type Hello struct {
	Envelope
	BootID         string         `json:"boot_id"`
	Version        string         `json:"version"`
	Pool           string         `json:"pool"`
	Pools          []string       `json:"pools"`
	Policy         PolicyInfo     `json:"policy"`
	Gauges         []Gauge        `json:"gauges"`
	DecisionFields []string       `json:"decision_fields"`
	OutcomeFields  []string       `json:"outcome_fields"`
	Verdicts       []string       `json:"verdicts"`
	Reasons        []reason.Entry `json:"reasons"`
	// Strings interned so far, by index.
	Strings []string `json:"strings"`
	// RingFrom and RingTo are the frame numbers that ?resume= can still reach; FrameMS the frame interval.
	RingFrom uint64 `json:"ring_from"`
	RingTo   uint64 `json:"ring_to"`
	FrameMS  int    `json:"frame_ms"`
	// SLOTTFTMS and SLOTPOTMS are the default class's limits, for the lines in the latency chart; null when none.
	SLOTTFTMS *float64 `json:"slo_ttft_ms"`
	SLOTPOTMS *float64 `json:"slo_tpot_ms"`
	// Simulated is true when the engine is the simulated one: the page says so.
	Simulated bool `json:"simulated"`
}

// Snap brings a viewer up to date when frames cannot be replayed: the whole pool status and recent history.
type Snap struct {
	Envelope
	Status    Status         `json:"status"`
	History   History        `json:"history"`
	Decisions []DecisionItem `json:"decisions"`
	// Events of the recent past, oldest first, so that a page opened after an incident shows it.
	Events []PastEvent `json:"events"`
}

// PastEvent is a journal event from before a viewer came; T in Unix milliseconds.
type PastEvent struct {
	T     int64  `json:"t"`
	Name  string `json:"name"`
	Level string `json:"level"`
	Text  string `json:"text"`
}

// Frame is sent at most ten times a second, when it has something or a second has passed.
type Frame struct {
	Envelope
	// G is one row of gauges.
	G []*float64 `json:"g"`
	// S holds strings interned with this frame; their indexes follow those known so far, the first being SBase.
	S     []string `json:"s,omitempty"`
	SBase int      `json:"sb,omitempty"`
	D     [][]any  `json:"d,omitempty"`
	O     [][]any  `json:"o,omitempty"`
	// N counts all decisions since the last frame by verdict (admit, defer, reject), also when D is a sample.
	N       [3]int `json:"n"`
	Sampled bool   `json:"sampled,omitempty"`
	// Engine state and policy revision as of this frame.
	Engine string `json:"e"`
	Rev    string `json:"r"`
}

// GapMessage says that the frames and events From..To are lost to this viewer. S holds the strings that they
// would have interned, the first one's index being SBase.
type GapMessage struct {
	Envelope
	From  uint64   `json:"from"`
	To    uint64   `json:"to"`
	S     []string `json:"s,omitempty"`
	SBase int      `json:"sb,omitempty"`
}

// EventMessage is a journal event.
type EventMessage struct {
	Envelope
	Name  string `json:"name"`
	Level string `json:"level"`
	Text  string `json:"text"`
}

// Bye precedes a close by the server.
type Bye struct {
	Envelope
	Why string `json:"why"`
}
