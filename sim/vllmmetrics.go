package sim

import (
	"net/http"
	"strconv"
	"time"
)

// slowMetricsDelay is how much longer slow-metrics makes a scrape.
const slowMetricsDelay = 5 * time.Second

// vllmText is the content type of the vLLM face.
const vllmText = "text/plain; version=1.0.0; charset=utf-8"

// metrics serves /metrics of the vLLM face.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	s.serveMetrics(w, r, vllmText, s.vllmExposition)
}

// serveMetrics applies the faults that any face's scrape can have.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request, contentType string, render func() ([]byte, error)) {
	if s.faults.on(FaultSlowMetrics) {
		t := time.NewTimer(slowMetricsDelay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			return
		case <-s.driver.quit:
			return
		}
	}
	body, err := s.scrapeBody(render)
	if s.faults.on(FaultOpenMetrics) {
		body, contentType = openMetrics(body), openMetricsType
	}
	if err != nil || s.faults.on(FaultMetrics500) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte("Internal Server Error"))
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body)
}

func (s *Server) scrapeBody(render func() ([]byte, error)) ([]byte, error) {
	if !s.faults.on(FaultFrozenMetrics) {
		return render()
	}
	s.frozenMu.Lock()
	defer s.frozenMu.Unlock()
	if s.frozen == nil {
		b, err := render()
		if err != nil {
			return nil, err
		}
		s.frozen = b
	}
	return s.frozen, nil
}

// newExposition starts an exposition with the faults of the scrape applied.
func (s *Server) newExposition(base ...string) *exposition {
	x := &exposition{
		base: base, created: unixSeconds(s.started),
		bare: s.faults.on(FaultMissingMetrics), nan: s.faults.on(FaultNaNMetrics), names: s.renames(),
	}
	if s.faults.on(FaultTwoRanks) {
		x.rankLabel = map[string]string{VLLM: "engine", SGLang: "dp_rank"}[s.opt.Dialect]
	}
	return x
}

func (s *Server) scrape() (scrape, error) {
	var c scrape
	d := s.driver
	err := d.do(func() {
		c = d.rec.scrape(d.stats(), d.now(), d.speed)
		c.aborted = d.aborted
	})
	s.mislead(&c)
	return c, err
}

func (s *Server) vllmExposition() ([]byte, error) {
	c, err := s.scrape()
	if err != nil {
		return nil, err
	}
	x := s.newExposition("engine", "0", "model_name", s.opt.ServedNames[0])
	if s.faults.on(FaultNoKVMetric) {
		x.skip = "vllm:kv_cache_usage_perc"
	}
	s.pythonFamilies(x)
	running, waiting, kv := s.gauges(c, c.stats)
	s.gaugeFamilies(x, running, waiting, kv)
	s.counterFamilies(x, c)
	for _, f := range histogramFamilies() {
		x.histogram("vllm:"+f.name, f.help, x.with(), c.h[f.name])
	}
	x.gauge("vllm:cache_config_info", "Configuration of the KV cache", row{s.cacheConfig(), 1})
	s.http.write(x)
	return x.buf.Bytes(), nil
}

// pythonFamilies are what Python's client exports about its process. The values are made up, and say so.
func (s *Server) pythonFamilies(x *exposition) {
	gen := func(v ...float64) []row {
		rows := make([]row, len(v))
		for i := range v {
			rows[i] = row{[]string{"generation", strconv.Itoa(i)}, v[i]}
		}
		return rows
	}
	plain := *x
	plain.plain = true
	plain.nan = false
	plain.buf.Reset()
	plain.counter("python_gc_objects_collected", "Objects collected during gc", gen(14266, 3826, 1052)...)
	plain.counter("python_gc_objects_uncollectable", "Uncollectable objects found during GC", gen(0, 0, 0)...)
	plain.counter("python_gc_collections", "Number of times this generation was collected", gen(1959, 178, 11)...)
	plain.gauge("python_info", "Python platform information", row{[]string{
		"implementation", "simulated", "major", "3", "minor", "11", "patchlevel", "7", "version", "3.11.7"}, 1})
	plain.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", row{nil, 4.9e9})
	plain.gauge("process_resident_memory_bytes", "Resident memory size in bytes.", row{nil, 1.2e9})
	plain.gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", row{nil, unixSeconds(s.started)})
	plain.counter("process_cpu_seconds", "Total user and system CPU time spent in seconds.", row{nil, 15.35})
	plain.gauge("process_open_fds", "Number of open file descriptors.", row{nil, 34})
	plain.gauge("process_max_fds", "Maximum number of open file descriptors.", row{nil, 20000})
	x.buf.Write(plain.buf.Bytes())
	one := row{x.with(), 0}
	x.counter("vllm:estimated_flops_per_gpu", "Estimated floating point operations per GPU.", one)
	x.counter("vllm:estimated_read_bytes_per_gpu", "Estimated bytes read from memory per GPU.", one)
	x.counter("vllm:estimated_write_bytes_per_gpu", "Estimated bytes written to memory per GPU.", one)
}

func (s *Server) gaugeFamilies(x *exposition, running, waiting, kv float64) {
	x.gauge("vllm:num_requests_running", "Requests in the running batch.", row{x.with(), running})
	x.gauge("vllm:num_requests_waiting", "Requests that wait to be processed.", row{x.with(), waiting})
	x.gauge("vllm:num_requests_waiting_by_reason", "Waiting requests by what they wait for; the reasons sum to the waiting requests.",
		row{x.with("reason", "capacity"), waiting}, row{x.with("reason", "deferred"), 0})
	x.gauge("vllm:engine_sleep_state", "1 for the sleep state the engine is in.",
		row{x.with("sleep_state", "awake"), 1}, row{x.with("sleep_state", "weights_offloaded"), 0}, row{x.with("sleep_state", "discard_all"), 0})
	x.gauge("vllm:kv_cache_usage_perc", "KV-cache usage as a fraction, 1 is full.", row{x.with(), kv})
}

func (s *Server) counterFamilies(x *exposition, c scrape) {
	one := func(v int) row { return row{x.with(), float64(v)} }
	by := func(label string, names []string, values ...int) []row {
		rows := make([]row, len(names))
		for i, n := range names {
			rows[i] = row{x.with(label, n), 0}
			if i < len(values) {
				rows[i].value = float64(values[i])
			}
		}
		return rows
	}
	st := c.stats
	x.counter("vllm:prefix_cache_queries", "Tokens looked up in the prefix cache.", one(st.PrefixQueries))
	x.counter("vllm:prefix_cache_hits", "Tokens found in the prefix cache.", one(st.PrefixHits))
	x.counter("vllm:external_prefix_cache_queries", "Tokens looked up in an external prefix cache.", one(0))
	x.counter("vllm:external_prefix_cache_hits", "Tokens found in an external prefix cache.", one(0))
	x.counter("vllm:mm_cache_queries", "Items looked up in the multi-modal cache.", one(0))
	x.counter("vllm:mm_cache_hits", "Items found in the multi-modal cache.", one(0))
	x.counter("vllm:num_preemptions", "Preemptions so far.", one(c.preemptions))
	x.counter("vllm:prompt_tokens", "Prompt tokens processed.", one(st.PromptTokens))
	x.counter("vllm:prompt_tokens_by_source", "Prompt tokens by where their KV came from.",
		by("source", []string{"local_compute", "local_cache_hit", "external_kv_transfer"}, st.PromptTokens-st.CachedTokens, st.CachedTokens)...)
	x.counter("vllm:prompt_tokens_cached", "Prompt tokens that came from a cache.", one(st.CachedTokens))
	x.counter("vllm:prompt_tokens_cached_by_source", "Cached prompt tokens by the tier that had them.",
		by("source", []string{"device", "host", "p2p", "disk", "external_unspecified"}, st.PrefixHits)...)
	x.counter("vllm:generation_tokens", "Tokens generated.", one(st.GeneratedTokens))
	x.counter("vllm:request_success", "Finished requests by how they ended.",
		by("finished_reason", []string{"stop", "length", "abort", "error", "repetition"}, st.Stopped, st.Lengthened)...)
	name := s.opt.ServedNames[0]
	x.counter("vllm:admission_rejections", "Requests refused by a queue limit, by limit.",
		row{[]string{"model_name", name, "reason", "max_num_queued_reqs"}, float64(st.RefusedInFlight)},
		row{[]string{"model_name", name, "reason", "max_num_queued_tokens"}, float64(st.RefusedTokens)})
}

type histogramFamily struct{ name, help string }

// histogramFamilies are the engine's histograms in the order of the wire.
func histogramFamilies() []histogramFamily {
	return []histogramFamily{
		{"request_prompt_tokens", "Prompt tokens per finished request."},
		{"request_generation_tokens", "Generated tokens per finished request."},
		{"iteration_tokens_total", "Tokens per engine step."},
		{"request_max_num_generation_tokens", "Output limit per finished request."},
		{"request_params_n", "The n parameter."},
		{"request_params_max_tokens", "The max_tokens parameter."},
		{"time_to_first_token_seconds", "Time to the first token in seconds."},
		{"inter_token_latency_seconds", "Time between tokens in seconds."},
		{"request_time_per_output_token_seconds", "Mean time per output token of a request in seconds."},
		{"e2e_request_latency_seconds", "Time from arrival to end in seconds."},
		{"request_queue_time_seconds", "Time spent waiting in seconds."},
		{"request_inference_time_seconds", "Time spent running in seconds."},
		{"request_prefill_time_seconds", "Time spent in prefill in seconds."},
		{"request_decode_time_seconds", "Time spent in decode in seconds."},
		{"request_num_preemptions", "Preemptions per finished request."},
		{"request_prefill_kv_computed_tokens", "Prompt tokens computed, cached ones excluded."},
	}
}

// cacheConfig are the labels of cache_config_info: all of the real engine's, with the values that this one has.
func (s *Server) cacheConfig() []string {
	c := s.cfg
	tokens := c.Blocks * c.BlockTokens
	block := strconv.Itoa(c.BlockTokens)
	py := map[bool]string{true: "True", false: "False"}
	override := "None"
	if s.opt.KVBlocks > 0 {
		override = strconv.Itoa(c.Blocks)
	}
	labels := []string{
		"_block_size_resolved", "True", "block_size", block, "cache_dtype", "auto", "cache_hit_alignment_tokens", "None",
		"effective_attention_block_size", block, "enable_mamba_shared_prefix_checkpoint", "False",
		"enable_prefix_caching", py[!c.NoPrefixCache], "engine", "0", "gpu_memory_utilization", "0.92", "hash_block_size", "None",
		"is_attention_free", "False", "kv_cache_dtype_skip_layers", "[]", "kv_cache_layout", "None",
		"kv_cache_max_concurrency", pyFloat(float64(tokens) / float64(c.MaxModelLen)), "kv_cache_memory_bytes", "None",
		"kv_cache_size_tokens", strconv.Itoa(tokens), "kv_offloading_backend", "native", "kv_offloading_size", "None",
		"kv_sharing_fast_prefill", "False", "mamba_block_size", "None", "mamba_cache_dtype", "auto", "mamba_cache_mode", "none",
		"mamba_page_size_padded", "None", "mamba_ssm_cache_dtype", "float32", "num_cpu_blocks", "None",
		"num_gpu_blocks", strconv.Itoa(c.Blocks), "num_gpu_blocks_override", override, "prefix_cache_retention_interval", "0",
		"prefix_caching_hash_algo", "sha256", "prefix_match_unit", "None", "replayssm_buffer_len", "16",
		"skip_page_size_padded", "None", "sliding_window", "None", "swa_bounded_replay", "True", "use_kda_recoverssm", "False",
		"use_replayssm", "False", "user_specified_block_size", py[s.opt.BlockSize > 0],
	}
	if s.faults.on(FaultWrongCacheConfig) {
		return hybrid(labels, c.Blocks)
	}
	return labels
}
