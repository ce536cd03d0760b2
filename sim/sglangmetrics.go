package sim

import (
	"math"
	"net/http"
)

const sglangText = "text/plain; version=0.0.4; charset=utf-8"

func (s *Server) sglangMetrics(w http.ResponseWriter, r *http.Request) {
	s.serveMetrics(w, r, sglangText, s.sglangExposition)
}

// sglangExposition writes SGLang's families. Its gauges are as old as that engine's: renewed at a prefill, every 40
// decode steps and when idle. Its client library runs in multiprocess mode and has no *_created families.
func (s *Server) sglangExposition() ([]byte, error) {
	c, err := s.scrape()
	if err != nil {
		return nil, err
	}
	base := []string{"model_name", s.opt.ServedNames[0], "engine_type", "unified", "tp_rank", "0", "pp_rank", "0", "moe_ep_rank", "0"}
	if s.faults.on(FaultTwoRanks) {
		base = append(base, "dp_rank", "0")
	}
	x := s.newExposition(base...)
	x.plain = true
	if s.faults.on(FaultNoKVMetric) {
		x.skip = "sglang:token_usage"
	}
	s.sglangGauges(x, c)
	one := func(v int) row { return row{x.with(), float64(v)} }
	st := c.stats
	x.counter("sglang:num_retracted_requests", "Requests retracted for lack of KV cache.", one(st.Preemptions))
	x.counter("sglang:prompt_tokens", "Prompt tokens processed.", one(st.PromptTokens))
	x.counter("sglang:generation_tokens", "Tokens generated.", one(st.GeneratedTokens))
	x.counter("sglang:cached_tokens", "Prompt tokens that came from the cache.", row{x.with("cache_source", "device"), float64(st.CachedTokens)})
	x.counter("sglang:num_requests", "Requests finished.", one(st.Stopped+st.Lengthened))
	x.counter("sglang:num_aborted_requests", "Requests aborted.", one(st.Cancelled))
	for _, h := range []struct{ name, from, help string }{
		{"sglang:time_to_first_token_seconds", "sglang_ttft", "Time to the first token in seconds."},
		{"sglang:inter_token_latency_seconds", "inter_token_latency_seconds", "Time between tokens in seconds."},
		{"sglang:e2e_request_latency_seconds", "e2e_request_latency_seconds", "Time from arrival to end in seconds."},
		{"sglang:queue_time_seconds", "request_queue_time_seconds", "Time spent waiting in seconds."},
		{"sglang:prompt_tokens_histogram", "request_prompt_tokens", "Prompt tokens per finished request."},
		{"sglang:generation_tokens_histogram", "request_generation_tokens", "Generated tokens per finished request."},
		{"sglang:uncached_prompt_tokens_histogram", "request_prefill_kv_computed_tokens", "Computed prompt tokens per finished request."},
	} {
		x.histogram(h.name, h.help, x.with(), c.h[h.from])
	}
	return x.buf.Bytes(), nil
}

func (s *Server) sglangGauges(x *exposition, c scrape) {
	old := c.stale
	page := s.cfg.BlockTokens
	running, waiting, usage := s.gauges(c, old)
	used, evictable := float64(old.Used*page), float64(old.Cached*page)
	free := float64(s.KVTokens()) - used - evictable
	for _, g := range []struct {
		name, help string
		v          float64
	}{
		{"num_running_reqs", "Requests running.", running},
		{"num_queue_reqs", "Requests waiting.", waiting},
		{"num_grammar_queue_reqs", "Requests waiting for a grammar.", 0},
		{"token_usage", "KV-cache usage as a fraction.", usage},
		{"full_token_usage", "KV-cache usage of full attention layers as a fraction.", usage},
		{"num_used_tokens", "KV-cache tokens in use.", used},
		{"kv_used_tokens", "KV-cache tokens in use.", used},
		{"kv_available_tokens", "KV-cache tokens that are free.", free},
		{"kv_evictable_tokens", "KV-cache tokens that hold a prefix nobody uses.", evictable},
		{"max_total_num_tokens", "Capacity of the KV cache in tokens.", float64(s.KVTokens())},
		{"page_size", "Tokens in a page.", float64(page)},
		{"num_pages", "Pages of KV cache.", float64(s.cfg.Blocks)},
		{"context_len", "Longest context in tokens.", float64(s.cfg.MaxModelLen)},
		{"cache_hit_rate", "Cache hit rate of the last prefill batch.", c.lastHit},
		{"gen_throughput", "Output tokens a second; keeps its last value when idle.", c.throughput},
		{"new_token_ratio", "Share of the output limit that is reserved.", 0.7},
		{"utilization", "Share of the slots in use.", running / float64(s.cfg.MaxSeqs)},
		{"fwd_occupancy", "Not a number while idle, as on the real engine.", math.NaN()},
	} {
		x.gauge("sglang:"+g.name, g.help, row{x.with(), g.v})
	}
}
