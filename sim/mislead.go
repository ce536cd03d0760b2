package sim

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"admitd/sim/model"
)

// Faults of a metrics page that answers and misleads: values that are not what they are called, and names that moved.
const (
	FaultFrozenAfterAbort Fault = "frozen-after-abort"
	FaultStaleGauges      Fault = "stale-gauges"
	FaultNegativeGauges   Fault = "negative-gauges"
	FaultNegativeLoad     Fault = "negative-load"
	FaultKVRoundsDown     Fault = "kv-rounds-down"
	FaultWildHitRate      Fault = "wild-hit-rate"
	FaultInflatedHits     Fault = "inflated-hits"
	FaultZeroHits         Fault = "zero-hits"
	FaultWrongCacheConfig Fault = "wrong-cache-config"
	FaultOpenMetrics      Fault = "openmetrics"
	FaultOldMetricNames   Fault = "old-metric-names"
	FaultNewMetricNames   Fault = "new-metric-names"
	FaultTwoRanks         Fault = "two-ranks"
)

func misleadFaults() []FaultInfo {
	return []FaultInfo{
		{FaultFrozenAfterAbort, VLLM, []int{7}, "once all requests were aborted the gauges stay as they were, KV at 99 %, until a token comes out"},
		{FaultStaleGauges, SGLang, []int{8}, "the gauges are renewed once in 30 s only; gen_throughput keeps its value"},
		{FaultNegativeGauges, "", []int{19}, "running, waiting and KV use read below zero"},
		{FaultNegativeLoad, VLLM, []int{19}, "/load reads below zero"},
		{FaultKVRoundsDown, VLLM, []int{13}, "KV use below 5 % reads 0"},
		{FaultWildHitRate, SGLang, []int{9}, "cache_hit_rate is the last batch's, and above 1"},
		{FaultInflatedHits, VLLM, []int{10}, "prefix-cache hits are counted again and again, more than were looked up"},
		{FaultZeroHits, VLLM, []int{11}, "the prefix-cache hit counter stays 0 although prompts are cached"},
		{FaultWrongCacheConfig, VLLM, []int{12}, "cache_config_info says four times the KV cache that there is; the log line is right"},
		{FaultOpenMetrics, VLLM, []int{15}, "the Rust front end: OpenMetrics whatever is asked for, no cache_config_info, no /version"},
		{FaultOldMetricNames, VLLM, []int{16}, "metrics have their names of 0.8 (gpu_cache_usage_perc)"},
		{FaultNewMetricNames, VLLM, []int{16}, "the KV metric has a name that nobody knows yet"},
		{FaultTwoRanks, "", []int{18}, "load is spread over two data-parallel ranks, one series each"},
	}
}

// wildHitRate is what wild-hit-rate shows; inflation by how much inflated-hits counts more than was looked up.
const (
	wildHitRate = 1.7
	inflation   = 3
)

// afterAbort is what the gauges show of an engine whose requests were all aborted: the moment before.
func (d *driver) noteAbort(before model.Stats) {
	if d.faults.on(FaultFrozenAfterAbort) && before.Running+before.Waiting > 0 && len(d.calls) == 0 {
		before.Used = before.Usable - before.Usable/100
		d.aborted = &before
	}
}

// stats is the model's state with the requests that no scheduler will ever see.
func (d *driver) stats() model.Stats {
	s := d.engine.Stats()
	for _, c := range d.calls {
		if c.stuck {
			s.Waiting++
		}
	}
	return s
}

// mislead bends what the counters of a scrape say.
func (s *Server) mislead(c *scrape) {
	switch {
	case s.faults.on(FaultInflatedHits):
		c.stats.PrefixHits = inflation * c.stats.PrefixQueries
	case s.faults.on(FaultZeroHits):
		c.stats.PrefixHits, c.stats.CachedTokens = 0, 0
	}
	if s.faults.on(FaultWildHitRate) {
		c.lastHit = wildHitRate
	}
}

// bend applies the faults of single gauges.
func (s *Server) bend(running, waiting, kv float64) (r, w, k float64) {
	switch {
	case s.faults.on(FaultNegativeGauges):
		return -1, -2, -0.1
	case s.faults.on(FaultKVRoundsDown) && kv < 0.05:
		kv = 0
	}
	return running, waiting, kv
}

// renames maps wire names to those of another version.
func (s *Server) renames() map[string]string {
	switch {
	case s.faults.on(FaultOldMetricNames):
		return map[string]string{
			"vllm:kv_cache_usage_perc":        "vllm:gpu_cache_usage_perc",
			"vllm:prefix_cache_queries_total": "vllm:gpu_prefix_cache_queries_total",
			"vllm:prefix_cache_hits_total":    "vllm:gpu_prefix_cache_hits_total",
		}
	case s.faults.on(FaultNewMetricNames):
		return map[string]string{"vllm:kv_cache_usage_perc": "vllm:kv_cache_occupancy_ratio"}
	}
	return nil
}

// rank gives a sample's labels and value on each of two ranks: the load is shared, the second rank's cache is half as
// full. Samples that no rank has of its own stay as they are.
func (x *exposition) rank(name string, labels []string, v float64) []row {
	at := slices.Index(labels, x.rankLabel)
	if x.rankLabel == "" || at < 0 || at%2 != 0 {
		return []row{{labels, v}}
	}
	second := slices.Clone(labels)
	second[at+1] = "1"
	first := float64(int(v) / 2)
	switch {
	case strings.HasSuffix(name, "usage") || strings.HasSuffix(name, "_perc"):
		return []row{{labels, v}, {second, v / 2}}
	case strings.HasSuffix(name, "_info") || strings.HasSuffix(name, "_created") || v != float64(int(v)):
		return []row{{labels, v}, {second, v}}
	}
	return []row{{labels, first}, {second, v - first}}
}

// hybrid makes cache_config_info say what it says of a hybrid model: blocks of one kind, counted as if all were.
func hybrid(labels []string, blocks int) []string {
	for i := 0; i+1 < len(labels); i += 2 {
		switch labels[i] {
		case "num_gpu_blocks":
			labels[i+1] = strconv.Itoa(4 * blocks)
		case "kv_cache_size_tokens":
			labels[i+1] = "None"
		}
	}
	return labels
}

// rustLacks reports whether the Rust front end has no such route.
func (s *Server) rustLacks(path string) bool {
	return s.faults.on(FaultOpenMetrics) &&
		slices.Contains([]string{"/version", "/tokenize", "/detokenize", "/v1/responses", "/v1/messages"}, path)
}

// openMetricsType is the content type of the Rust front end.
const openMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8"

// openMetrics turns a page of Python's client into one of the Rust front end: families by their bare names, no *_created,
// no cache_config_info and no engine_sleep_state, an end mark.
func openMetrics(page []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(page) {
		text := string(line)
		name := strings.TrimPrefix(strings.TrimPrefix(text, "# HELP "), "# TYPE ")
		name = name[:max(0, strings.IndexAny(name, " {"))]
		switch {
		case strings.HasSuffix(name, "_created"), name == "vllm:cache_config_info", name == "vllm:engine_sleep_state":
			continue
		case strings.HasPrefix(text, "# ") && strings.HasSuffix(name, "_total") && name != "vllm:iteration_tokens_total":
			text = strings.Replace(text, name, strings.TrimSuffix(name, "_total"), 1)
		}
		out.WriteString(text)
	}
	out.WriteString("# EOF\n")
	return out.Bytes()
}
