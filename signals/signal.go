// Package signals turns what an engine exports into canonical, unit-carrying quantities.
//
// Goal: one immutable Snapshot per scrape, in which every quantity has a unit, a source, the time it was
// observed and a state, whatever engine and version it came from.
//
// Non-goals: deciding anything, smoothing for looks, knowing what admitd itself has in flight (the ledger
// in gate/admission does; it also names a signal contradicted).
//
// Invariants: absent is not zero: a missing, NaN, negative or stale reading is a state with a name, never a
// number; a Snapshot is never changed after it is published; counters become rates only between two scrapes
// of the same engine life.
package signals

import (
	"time"
)

// Name is a canonical signal name.
type Name string

// The canonical signals. Units are in the Spec table of this package.
const (
	// Running is the number of requests in the engine's running batch.
	Running Name = "running"
	// Waiting is the number of requests queued inside the engine.
	Waiting Name = "waiting"
	// KVUsed is the fraction, 0 to 1, of KV-cache capacity held by live requests.
	KVUsed Name = "kv_used"
	// KVCapacity is the KV cache's size in tokens.
	KVCapacity Name = "kv_capacity_tokens"
	// PrefixHitRate is the fraction, 0 to 1, of prompt tokens found in the prefix cache over the last window.
	PrefixHitRate Name = "prefix_hit_rate"
	// PreemptionRate is preemptions (or retractions) per second over the last window.
	PreemptionRate Name = "preemption_rate"
	// PrefillRate is prompt tokens per second over the last window.
	PrefillRate Name = "prefill_tokens_rate"
	// DecodeRate is generated tokens per second over the last window.
	DecodeRate Name = "decode_tokens_rate"
	// QueueTime is the mean time in seconds that the requests counted in the last window had waited in the engine's
	// queue. vLLM counts a request when it finishes, so this tells of the past; SGLang when it leaves the queue.
	QueueTime Name = "queue_time_seconds"
	// Awake is 1 while the engine holds its weights and serves, 0 while it sleeps.
	Awake Name = "awake"
)

// Unit names what a value counts.
type Unit string

// Units of the canonical signals.
const (
	UnitRequests        Unit = "requests"
	UnitFraction        Unit = "fraction"
	UnitTokens          Unit = "tokens"
	UnitTokensPerSecond Unit = "tokens/s"
	UnitPerSecond       Unit = "1/s"
	UnitSeconds         Unit = "s"
	UnitBytes           Unit = "bytes"
	UnitBool            Unit = "bool"
)

// State says how far a signal can be trusted.
type State string

const (
	// Live: read recently, and it moves when load does (or there is no load to move it).
	Live State = "live"
	// Flat: read recently, but it has not moved although load has.
	Flat State = "flat"
	// Stale: the last good reading is older than the limit.
	Stale State = "stale"
	// Missing: never read, not exported, or read as NaN, infinite, negative or out of range.
	Missing State = "missing"
	// Contradicted: the reading disagrees with what the gate's own ledger knows.
	Contradicted State = "contradicted"
)

// Signal is one reading. Value means nothing unless Present says so.
type Signal struct {
	Name  Name
	Value float64
	Unit  Unit
	// Source is the metric name on the wire that the value came from, or what was looked for when Missing.
	Source string
	// At is when the engine was asked; zero when Missing.
	At    time.Time
	State State
	// Why says in a few words why State is not Live.
	Why string
	// Exported is true when the engine's page carries the metric, also where no value can be told yet: a first
	// scrape, an empty window, a reading that is not a number.
	Exported bool
}

// Present reports whether Value holds a real reading, however old.
func (s Signal) Present() bool { return s.State != Missing && s.State != "" }

// Age is how long before now the reading was taken; zero when Missing.
func (s Signal) Age(now time.Time) time.Duration {
	if s.At.IsZero() {
		return 0
	}
	return now.Sub(s.At)
}

// Snapshot is what one scrape told, complete: a signal that was not there is in it as Missing.
// It is immutable once published.
type Snapshot struct {
	// Seq grows by one with every scrape attempt of one engine, good or bad.
	Seq uint64
	// At is when the last good scrape was sent to the engine; zero when none was good yet.
	At time.Time
	// Took is how long that scrape lasted.
	Took time.Duration
	// Engine is "vllm", "sglang" or "" while unknown; Version as the engine states it, "" while unknown.
	Engine  string
	Version string
	// Life grows by one each time counters went backwards or the engine was replaced.
	Life uint64
	// LifeWhy says what showed that this life is another one than before, "" for the first and after Reset.
	LifeWhy string
	// Models are the names that the engine's gauges carry, sorted; none while unknown. It must not be changed.
	Models []string
	// Conditions are what keeps the last page from being believed as it stands; none is the rule. It must not be changed.
	Conditions []Condition
	// Failures counts scrapes that failed in a row up to now; Err says how the last one failed, "" when it was good.
	Failures int
	Err      string
	// StaleAfter is the age from which At makes every signal Stale.
	StaleAfter time.Duration
	signals    map[Name]Signal
	tokens     *float64
}

// TokensTotal is the engine's own count of prompt and output tokens since it started; known is false when it does
// not export one. It only grows within one Life: what does not grow while work is in hand is an engine that is stuck.
func (s *Snapshot) TokensTotal() (tokens float64, known bool) {
	if s == nil || s.tokens == nil {
		return 0, false
	}
	return *s.tokens, true
}

// Get returns the signal as it stands at the time now: a reading older than StaleAfter is Stale, a name that
// was never read is Missing. A nil Snapshot has every signal Missing.
func (s *Snapshot) Get(n Name, now time.Time) Signal {
	if s == nil {
		return Signal{Name: n, Unit: UnitOf(n), State: Missing, Why: "no scrape yet"}
	}
	sig, ok := s.signals[n]
	if !ok {
		return Signal{Name: n, Unit: UnitOf(n), State: Missing, Why: "not exported"}
	}
	if sig.Present() && s.StaleAfter > 0 && sig.Age(now) > s.StaleAfter {
		sig.State = Stale
		sig.Why = "older than " + s.StaleAfter.String()
	}
	return sig
}

// All returns every canonical signal as it stands at the time now, in the order of Names.
func (s *Snapshot) All(now time.Time) []Signal {
	out := make([]Signal, 0, len(names))
	for _, n := range names {
		out = append(out, s.Get(n, now))
	}
	return out
}

// NewSnapshot builds a snapshot from readings; meta's own signals are ignored. Tests and the scraper use it.
func NewSnapshot(meta Snapshot, readings ...Signal) *Snapshot {
	meta.signals = make(map[Name]Signal, len(readings))
	for _, r := range readings {
		if r.Unit == "" {
			r.Unit = UnitOf(r.Name)
		}
		meta.signals[r.Name] = r
	}
	return &meta
}

var names = []Name{Running, Waiting, KVUsed, KVCapacity, PrefixHitRate, PreemptionRate, PrefillRate, DecodeRate, QueueTime, Awake}

// Names returns the canonical signal names in display order. The caller may keep the slice.
func Names() []Name { return append([]Name(nil), names...) }

// UnitOf returns the unit of a canonical signal, "" for an unknown name.
func UnitOf(n Name) Unit {
	switch n {
	case Running, Waiting:
		return UnitRequests
	case KVUsed, PrefixHitRate:
		return UnitFraction
	case KVCapacity:
		return UnitTokens
	case PreemptionRate:
		return UnitPerSecond
	case PrefillRate, DecodeRate:
		return UnitTokensPerSecond
	case QueueTime:
		return UnitSeconds
	case Awake:
		return UnitBool
	}
	return ""
}
