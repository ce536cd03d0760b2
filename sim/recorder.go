package sim

import (
	"time"

	"admitd/sim/model"
)

// recorder keeps what the engine's statistics layer would: counters and histograms made from the model's events. It
// is owned by the driver's goroutine. Times are in real seconds.
type recorder struct {
	requests map[model.ID]*tracked
	// preemptions is what the engine reports: a preemption shows only with the next token of the request it hit.
	preemptions int
	stepAt      time.Duration
	stepTokens  int
	h           map[string]*histogram
	// stale is what a face that refreshes its gauges only now and then still shows.
	stale      model.Stats
	staleSteps int
	lastHit    float64
	// throughput is output tokens a real second between the last two refreshes; it keeps its value when idle.
	throughput float64
	refreshed  time.Duration
	tokens     int
}

// tracked is what the recorder knows about a request in flight.
type tracked struct {
	params
	prompt, cached int
	cap            int
	arrived        time.Duration
	scheduled      time.Duration
	first, last    time.Duration
	preempted      int
	unreported     int
}

// Histogram bounds of the real engine.
var (
	ttftBounds = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	itlBounds  = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	longBounds = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	stepBounds = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
)

// oneTwoFive is 1, 2, 5, 10, ... up to a limit.
func oneTwoFive(limit int) []float64 {
	var out []float64
	for e := 1; ; e *= 10 {
		for _, m := range []int{1, 2, 5} {
			if m*e > limit {
				return out
			}
			out = append(out, float64(m*e))
		}
	}
}

func newRecorder(maxModelLen int) *recorder {
	r := &recorder{requests: make(map[model.ID]*tracked), h: make(map[string]*histogram), stepAt: -1}
	tokens := oneTwoFive(maxModelLen)
	for name, bounds := range map[string][]float64{
		"request_prompt_tokens": tokens, "request_generation_tokens": tokens, "iteration_tokens_total": stepBounds,
		"request_max_num_generation_tokens": tokens, "request_params_n": {1, 2, 5, 10, 20}, "request_params_max_tokens": tokens,
		"time_to_first_token_seconds": ttftBounds, "inter_token_latency_seconds": itlBounds,
		"request_time_per_output_token_seconds": itlBounds, "e2e_request_latency_seconds": longBounds,
		"request_queue_time_seconds": longBounds, "request_inference_time_seconds": longBounds,
		"request_prefill_time_seconds": longBounds, "request_decode_time_seconds": longBounds,
		"sglang_ttft":             {0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400},
		"request_num_preemptions": {1, 2, 3, 4, 5, 10, 20}, "request_prefill_kv_computed_tokens": tokens,
	} {
		r.h[name] = newHistogram(bounds...)
	}
	return r
}

func (r *recorder) submitted(q model.Request, p params, now time.Duration) {
	r.requests[q.ID] = &tracked{params: p, prompt: q.PromptTokens, cap: q.MaxTokens, arrived: now}
}

// cancelled forgets a request: a client that leaves is counted nowhere, as measured on the real engine.
func (r *recorder) cancelled(id model.ID) { delete(r.requests, id) }

// event books one event of the model; speed turns the model's time into real time.
func (r *recorder) event(ev model.Event, speed float64) {
	t := r.requests[ev.ID]
	if t == nil {
		return
	}
	sec := func(d time.Duration) float64 { return d.Seconds() / speed }
	switch ev.Kind {
	case model.Scheduled:
		if !ev.Again {
			t.scheduled, t.cached = ev.At, ev.Cached
			if t.prompt > 0 {
				r.lastHit = float64(ev.Cached) / float64(t.prompt)
			}
		}
	case model.Preempted:
		t.preempted++
		t.unreported++
	case model.Token:
		r.token(t, ev, sec)
	case model.Finished:
		r.finished(t, ev, sec)
		delete(r.requests, ev.ID)
	}
}

func (r *recorder) token(t *tracked, ev model.Event, sec func(time.Duration) float64) {
	r.preemptions += t.unreported
	t.unreported = 0
	if ev.At != r.stepAt {
		r.closeStep()
		r.stepAt = ev.At
	}
	r.stepTokens++
	if ev.Tokens == 1 {
		r.stepTokens += t.prompt - t.cached
		t.first = ev.At
		r.h["time_to_first_token_seconds"].observe(sec(ev.At - t.arrived))
		r.h["sglang_ttft"].observe(sec(ev.At - t.arrived))
	} else {
		r.h["inter_token_latency_seconds"].observe(sec(ev.At - t.last))
	}
	t.last = ev.At
}

// closeStep books the tokens of the step before.
func (r *recorder) closeStep() {
	if r.stepTokens > 0 {
		r.h["iteration_tokens_total"].observe(float64(r.stepTokens))
	}
	r.stepTokens = 0
}

func (r *recorder) finished(t *tracked, ev model.Event, sec func(time.Duration) float64) {
	r.h["request_prompt_tokens"].observe(float64(t.prompt))
	r.h["request_generation_tokens"].observe(float64(ev.Tokens))
	r.h["request_params_n"].observe(float64(t.n))
	r.h["request_max_num_generation_tokens"].observe(float64(t.cap))
	if t.maxTokens > 0 {
		r.h["request_params_max_tokens"].observe(float64(t.maxTokens))
	}
	if ev.Tokens > 1 {
		r.h["request_time_per_output_token_seconds"].observe(sec(t.last-t.first) / float64(ev.Tokens-1))
	}
	r.h["e2e_request_latency_seconds"].observe(sec(ev.At - t.arrived))
	r.h["request_queue_time_seconds"].observe(sec(t.scheduled - t.arrived))
	r.h["request_inference_time_seconds"].observe(sec(t.last - t.scheduled))
	r.h["request_prefill_time_seconds"].observe(sec(t.first - t.scheduled))
	r.h["request_decode_time_seconds"].observe(sec(t.last - t.first))
	r.h["request_num_preemptions"].observe(float64(t.preempted))
	r.h["request_prefill_kv_computed_tokens"].observe(float64(t.prompt - t.cached))
}

// Refresh rules of SGLang's gauges: at a prefill, every so many decode steps, and when idle.
const (
	decodeLogInterval = 40
	// idleRefresh is the least time between refreshes without any step.
	idleRefresh = 30 * time.Second
)

// refresh updates the stale view where the rules say so.
func (r *recorder) refresh(s model.Stats, prefill bool, now time.Duration, speed float64) {
	if !prefill && s.Steps-r.staleSteps < decodeLogInterval && s.Running+s.Waiting > 0 {
		return
	}
	if d := (now - r.refreshed).Seconds() / speed; d > 0 && s.GeneratedTokens > r.tokens {
		r.throughput = float64(s.GeneratedTokens-r.tokens) / d
	}
	r.stale, r.staleSteps, r.refreshed, r.tokens = s, s.Steps, now, s.GeneratedTokens
}

// scrape is a copy of everything for one exposition.
type scrape struct {
	stats, stale model.Stats
	// aborted is what the gauges show although it is over, nil for nothing.
	aborted     *model.Stats
	preemptions int
	inFlight    int
	lastHit     float64
	throughput  float64
	h           map[string]*histogram
}

func (r *recorder) scrape(s model.Stats, now time.Duration, speed float64) scrape {
	if s.Running+s.Waiting == 0 && (now-r.refreshed).Seconds()/speed >= idleRefresh.Seconds() {
		r.refresh(s, true, now, speed)
	}
	c := scrape{stats: s, stale: r.stale, preemptions: r.preemptions, inFlight: len(r.requests), lastHit: r.lastHit, throughput: r.throughput, h: make(map[string]*histogram, len(r.h))}
	for name, h := range r.h {
		c.h[name] = h.copy()
	}
	if r.stepTokens > 0 {
		c.h["iteration_tokens_total"].observe(float64(r.stepTokens))
	}
	return c
}
