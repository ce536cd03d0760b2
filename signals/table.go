package signals

import (
	"strings"
	"time"
)

// Engines that the table knows. Each one's metric names begin with this word and a colon.
const (
	engineVLLM   = "vllm"
	engineSGLang = "sglang"
)

// kind says how a recipe makes a value of what is on the page.
type kind int

const (
	// gauge: the metric's value as it stands; plus adds further gauges that may be absent.
	gauge kind = iota
	// rate: growth of counter names[0] per second.
	rate
	// ratio: growth of counter names[0] over growth of counter names[1], kept within 0 and 1.
	ratio
	// mean: growth of a histogram's sum over growth of its count.
	mean
	// label: the product of labels of an info metric whose own value says nothing.
	label
	// product: the product of the gauges in names.
	product
)

// across says how the values of data-parallel ranks become one.
type across int

const (
	// sum: each rank has its own share (queues, counters, capacities).
	sum across = iota
	// most: the fullest rank is the one that hurts.
	most
	// least: true only where it is true of all ranks.
	least
)

// recipe is one way to read one signal from one engine. Names are wire names; a counter is written without
// _total and looked for with it first.
type recipe struct {
	engine string
	kind   kind
	names  []string
	plus   []string
	labels []string
	// where keeps only series with this label value, {"", ""} keeps all.
	where  [2]string
	across across
	window time.Duration
}

// Windows over which counters become rates: short where a policy reacts to it, long where few events make noise.
const (
	rateWindow = 5 * time.Second
	slowWindow = 60 * time.Second
)

// Names that are not signals themselves.
const startTimeName = "process_start_time_seconds"

// table lists for each signal where it is found, best first. It is data: nothing writes to it.
//
// Whether a number is a fraction or a percentage follows from its name alone: every use metric below is a
// fraction, vLLM's "perc" included. A number above 1 is therefore wrong, not a percentage.
//
// Names by version: vLLM renamed gpu_cache_usage_perc and gpu_prefix_cache_* in 0.9 and removed the old ones
// in 0.12; its V0 engine (0.6, 0.7) had the hit rate as a gauge and time_in_queue_requests. SGLang had the
// queue time under three names, and page_size/num_pages as labels of cache_config_info for three months of 2026.
// SGLang's cache_hit_rate (last batch only) and gen_throughput (sticks when idle) are left out on purpose.
var table = map[Name][]recipe{
	Running: {
		{engine: engineVLLM, kind: gauge, names: []string{"vllm:num_requests_running"}},
		{engine: engineSGLang, kind: gauge, names: []string{"sglang:num_running_reqs"}},
	},
	Waiting: {
		{engine: engineVLLM, kind: gauge, names: []string{"vllm:num_requests_waiting"}},
		{engine: engineVLLM, kind: gauge, names: []string{"vllm:num_requests_waiting_by_reason"}},
		// vLLM counts requests whose grammar is still compiling as waiting; SGLang has them in a queue of their own.
		{engine: engineSGLang, kind: gauge, names: []string{"sglang:num_queue_reqs"}, plus: []string{"sglang:num_grammar_queue_reqs"}},
	},
	KVUsed: {
		{engine: engineVLLM, kind: gauge, names: []string{"vllm:kv_cache_usage_perc"}, across: most},
		{engine: engineVLLM, kind: gauge, names: []string{"vllm:gpu_cache_usage_perc"}, across: most},
		{engine: engineSGLang, kind: gauge, names: []string{"sglang:token_usage"}, across: most},
		{engine: engineSGLang, kind: gauge, names: []string{"sglang:full_token_usage"}, across: most},
	},
	KVCapacity: {
		{engine: engineVLLM, kind: label, names: []string{"vllm:cache_config_info"}, labels: []string{"kv_cache_size_tokens"}},
		// Wrong for hybrid models, where blocks differ in size; the only figure that older versions give.
		{engine: engineVLLM, kind: label, names: []string{"vllm:cache_config_info"}, labels: []string{"block_size", "num_gpu_blocks"}},
		{engine: engineSGLang, kind: gauge, names: []string{"sglang:max_total_num_tokens"}},
		{engine: engineSGLang, kind: product, names: []string{"sglang:page_size", "sglang:num_pages"}},
		{engine: engineSGLang, kind: label, names: []string{"sglang:cache_config_info"}, labels: []string{"page_size", "num_pages"}},
	},
	PrefixHitRate: {
		{engine: engineVLLM, kind: ratio, names: []string{"vllm:prefix_cache_hits", "vllm:prefix_cache_queries"}, window: slowWindow},
		{engine: engineVLLM, kind: ratio, names: []string{"vllm:gpu_prefix_cache_hits", "vllm:gpu_prefix_cache_queries"}, window: slowWindow},
		{engine: engineVLLM, kind: gauge, names: []string{"vllm:gpu_prefix_cache_hit_rate"}, across: least},
		{engine: engineSGLang, kind: ratio, names: []string{"sglang:cached_tokens", "sglang:prompt_tokens"}, window: slowWindow},
	},
	PreemptionRate: {
		{engine: engineVLLM, kind: rate, names: []string{"vllm:num_preemptions"}, window: rateWindow},
		{engine: engineSGLang, kind: rate, names: []string{"sglang:num_retracted_requests"}, window: rateWindow},
	},
	PrefillRate: {
		{engine: engineVLLM, kind: rate, names: []string{"vllm:prompt_tokens"}, window: rateWindow},
		{engine: engineSGLang, kind: rate, names: []string{"sglang:prompt_tokens"}, window: rateWindow},
	},
	DecodeRate: {
		{engine: engineVLLM, kind: rate, names: []string{"vllm:generation_tokens"}, window: rateWindow},
		{engine: engineSGLang, kind: rate, names: []string{"sglang:generation_tokens"}, window: rateWindow},
	},
	QueueTime: {
		{engine: engineVLLM, kind: mean, names: []string{"vllm:request_queue_time_seconds"}, window: slowWindow},
		{engine: engineVLLM, kind: mean, names: []string{"vllm:time_in_queue_requests"}, window: slowWindow},
		{engine: engineSGLang, kind: mean, names: []string{"sglang:queue_time_seconds"}, window: slowWindow},
		{engine: engineSGLang, kind: mean, names: []string{"sglang:queue_time_s"}, window: slowWindow},
		{engine: engineSGLang, kind: gauge, names: []string{"sglang:avg_request_queue_latency"}, across: most},
	},
	Awake: {
		{engine: engineVLLM, kind: gauge, names: []string{"vllm:engine_sleep_state"}, where: [2]string{"sleep_state", "awake"}, across: least},
	},
}

// spellings returns the wire names under which one name of a recipe may appear, best first.
func (r recipe) spellings(name string) []string {
	switch r.kind {
	case rate, ratio:
		return []string{name + "_total", name}
	case mean:
		return []string{name + "_sum", name + "_count"}
	}
	return []string{name}
}

// Tried lists the metric names that are looked for to read a signal, over all engines, best first. It is nil
// for a name that is not canonical.
func Tried(n Name) []string { return triedBy(n, "") }

// triedBy is Tried for one engine, or for all of them when engine is "".
func triedBy(n Name, engine string) []string {
	var out []string
	seen := map[string]bool{}
	for _, r := range table[n] {
		if engine != "" && r.engine != engine {
			continue
		}
		for _, name := range r.names {
			for _, s := range r.spellings(name) {
				if r.kind == label {
					s += r.labelText()
				}
				if !seen[s] {
					seen[s] = true
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// labelText names the labels of a label recipe for people.
func (r recipe) labelText() string {
	text := "{"
	var textSb169 strings.Builder
	for i, l := range r.labels {
		if i > 0 {
			textSb169.WriteString("*")
		}
		textSb169.WriteString(l)
	}
	text += textSb169.String()
	return text + "}"
}

// wantedNames returns every wire name that any recipe reads as true, and further names under which a family of
// theirs is declared as false. All other lines of a page are skipped unread.
func wantedNames() map[string]bool {
	want := map[string]bool{startTimeName: true}
	for _, name := range createdNames() {
		want[name] = true
	}
	for _, recipes := range table {
		for _, r := range recipes {
			for _, name := range append(append([]string(nil), r.names...), r.plus...) {
				if _, seen := want[name]; !seen {
					want[name] = false
				}
				for _, s := range r.spellings(name) {
					want[s] = true
				}
			}
		}
	}
	return want
}
