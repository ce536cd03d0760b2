package supervisor

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Phases of a start, in the order of the pages: what PhaseTime.Name can be.
const (
	phaseLaunched   = "launched"
	phaseEngineInit = "engine_init"
	phaseWeights    = "weights"
	phaseCompile    = "compile"
	phaseKVCache    = "kv_cache"
	phaseGraphs     = "graphs"
	phaseWarmup     = "warmup"
	phaseHTTP       = "http"
	phaseProbe      = "probe"
)

// mark says that a line containing text begins a phase.
type mark struct {
	text  string
	phase string
}

// marks returns the phase table of an engine in the order in which a start runs through it. A phase is never left for an
// earlier one, because several processes print and their lines interleave.
func marks(k Kind) []mark {
	if k == SGLang {
		return []mark{
			{"Init torch distributed begin", phaseEngineInit},
			{"Load weight begin", phaseWeights},
			{"KV Cache is allocated", phaseKVCache},
			{"Memory pool end", phaseKVCache},
			{"Capture cuda graph begin", phaseGraphs},
			{"CUDA graph begin", phaseGraphs},
			{"Started server process", phaseHTTP},
			{"Application startup complete", phaseWarmup},
			{"The server is fired up and ready to roll", phaseProbe},
		}
	}
	return []mark{
		{"Initializing a V1 LLM engine", phaseEngineInit},
		{"Starting to load model", phaseWeights},
		{"Loading safetensors checkpoint shards", phaseWeights},
		{"Loading model weights took", phaseWeights},
		{"Dynamo bytecode transform time", phaseCompile},
		{"torch.compile takes", phaseCompile},
		{"Available KV cache memory", phaseKVCache},
		{"KV cache size:", phaseKVCache},
		{"Capturing CUDA graph", phaseGraphs},
		{"Graph capturing finished", phaseWarmup},
		{"init engine (profile, create kv cache, warmup model) took", phaseWarmup},
		{"Starting vLLM server on", phaseHTTP},
		{"Starting vLLM API server", phaseHTTP},
		{"Application startup complete", phaseProbe},
	}
}

// order is the rank of each phase for an engine; SGLang warms up after its HTTP server has begun.
func order(k Kind) []string {
	if k == SGLang {
		return []string{phaseLaunched, phaseEngineInit, phaseWeights, phaseCompile, phaseKVCache, phaseGraphs, phaseHTTP, phaseWarmup, phaseProbe}
	}
	return []string{phaseLaunched, phaseEngineInit, phaseWeights, phaseCompile, phaseKVCache, phaseGraphs, phaseWarmup, phaseHTTP, phaseProbe}
}

// facts is what the lines of one launch have shown.
type facts struct {
	phases []PhaseTime
	// capacity is the KV cache in tokens over all engine cores, 0 when no line said.
	capacity int
	slots    int
	version  string
	// cause is the first recognised failure, the first permanent one if there is any.
	cause *signature
	// deaths counts lines that speak of the engine's death.
	deaths int
}

// tracker turns lines into facts. Pure: time comes in. Not safe for concurrent use.
type tracker struct {
	facts
	marks []mark
	rank  map[string]int
	at    int
	sigs  []signature
	// perCore is the KV capacity each engine core reported, by the name and pid it prints.
	perCore map[string]int
	re      patterns
	kind    Kind
}

// patterns are the quantities that a start prints.
type patterns struct {
	capacity, core, sglTokens, sglSlots, version *regexp.Regexp
}

func newPatterns() patterns {
	return patterns{
		capacity: regexp.MustCompile(`\b[A-Z]{2,6} KV cache size: ([0-9][0-9,]*) tokens`),
		core:     regexp.MustCompile(`^\((EngineCore[^)]*)\)`),
		// Two forms: the pool's own line, and the scheduler's summary.
		sglTokens: regexp.MustCompile(`(?:KV Cache is allocated\..*?#tokens: |\bmax_total_num_tokens=)([0-9]+)`),
		sglSlots:  regexp.MustCompile(`\bmax_running_requests=([0-9]+)`),
		version:   regexp.MustCompile(`(?:█.*\bversion |vLLM (?:API )?server version v?|LLM engine \(v)([0-9]+\.[0-9]+[0-9A-Za-z.+-]*)`),
	}
}

// newTracker starts a launch at now, in the phase launched.
func newTracker(k Kind, now time.Time) *tracker {
	t := &tracker{marks: marks(k), rank: map[string]int{}, sigs: signatures(k), perCore: map[string]int{}, re: newPatterns(), kind: k}
	for i, p := range order(k) {
		t.rank[p] = i
	}
	t.phases = []PhaseTime{{Name: phaseLaunched, Began: now}}
	return t
}

// resumeTracker goes on with a launch where its record stands.
func resumeTracker(k Kind, r record) *tracker {
	t := newTracker(k, r.At)
	if len(r.Phases) > 0 {
		t.phases = append([]PhaseTime(nil), r.Phases...)
	}
	t.at = t.rank[t.phases[len(t.phases)-1].Name]
	t.capacity, t.slots, t.version = r.Capacity, r.Slots, r.Engine
	return t
}

// newProbeTracker starts at now in the phase probe, which is all that is seen of an engine that somebody else launches.
func newProbeTracker(now time.Time) *tracker {
	t := newTracker(External, now)
	t.at, t.phases = t.rank[phaseProbe], []PhaseTime{{Name: phaseProbe, Began: now}}
	return t
}

// advance enters a phase unless the launch is already there or past it.
func (t *tracker) advance(now time.Time, phase string) bool {
	rank, ok := t.rank[phase]
	if !ok || rank <= t.at {
		return false
	}
	t.at = rank
	last := &t.phases[len(t.phases)-1]
	last.Took = now.Sub(last.Began)
	t.phases = append(t.phases, PhaseTime{Name: phase, Began: now})
	return true
}

// line reads one line of output and reports whether it changed the facts.
func (t *tracker) line(now time.Time, text string) bool {
	changed := t.failure(text)
	for _, m := range t.marks {
		if strings.Contains(text, m.text) {
			changed = t.advance(now, m.phase) || changed
		}
	}
	if t.kind == SGLang {
		return t.sglQuantities(text) || changed
	}
	// The plain searches spare most lines the regular expressions.
	if t.version == "" && (strings.Contains(text, "version ") || strings.Contains(text, "LLM engine (v")) {
		if m := t.re.version.FindStringSubmatch(text); m != nil {
			t.version, changed = m[1], true
		}
	}
	if !strings.Contains(text, " KV cache size: ") {
		return changed
	}
	if m := t.re.capacity.FindStringSubmatch(text); m != nil {
		changed = t.addCapacity(text, number(m[1])) || changed
	}
	return changed
}

// addCapacity sums over engine cores (data parallel ranks each have their own cache); the last line of each counts.
func (t *tracker) addCapacity(text string, tokens int) bool {
	core := ""
	if m := t.re.core.FindStringSubmatch(text); m != nil {
		core = m[1]
	}
	t.perCore[core] = tokens
	sum := 0
	for _, n := range t.perCore {
		sum += n
	}
	changed := sum != t.capacity
	t.capacity = sum
	return changed
}

// sglQuantities reads SGLang's numbers. Every rank prints the same ones, so they are not summed.
func (t *tracker) sglQuantities(text string) bool {
	changed := false
	if !strings.Contains(text, "#tokens: ") && !strings.Contains(text, "max_running_requests=") && !strings.Contains(text, "max_total_num_tokens=") {
		return false
	}
	if m := t.re.sglTokens.FindStringSubmatch(text); m != nil {
		n := number(m[1])
		changed = n != t.capacity
		t.capacity = n
	}
	if m := t.re.sglSlots.FindStringSubmatch(text); m != nil {
		n := number(m[1])
		changed = changed || n != t.slots
		t.slots = n
	}
	return changed
}

// failure looks for a signature of the table.
func (t *tracker) failure(text string) bool {
	for i := range t.sigs {
		s := &t.sigs[i]
		if !s.matches(text) {
			continue
		}
		if s.dead {
			t.deaths++
		}
		if t.cause == nil || s.permanent && !t.cause.permanent {
			t.cause = s
			return true
		}
		return s.dead
	}
	return false
}

// finish ends the current phase at now.
func (t *tracker) finish(now time.Time) {
	last := &t.phases[len(t.phases)-1]
	if last.Took == 0 {
		last.Took = now.Sub(last.Began)
	}
}

// copy returns the facts with their own slice.
func (t *tracker) copy() facts {
	f := t.facts
	f.phases = append([]PhaseTime(nil), f.phases...)
	return f
}

// number reads a decimal with thousands separators; 0 when it is none or too large.
func number(s string) int {
	n, err := strconv.Atoi(strings.ReplaceAll(s, ",", ""))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
