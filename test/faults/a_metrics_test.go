package faults

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"admitd/gate/journal"
	"admitd/sim"
	"admitd/test/harness"
)

const (
	// byQueue refuses whatever could not start at once, by the queue alone.
	byQueue = "policy: queue-depth\nparams: {max_waiting: 0}\nhold: {max_wait: 0s, max_requests: 0}\n"
	// byCache refuses by KV use alone.
	byCache = "policy: kv-threshold\nparams: {max_kv_used: 0.9}\nhold: {max_wait: 0s, max_requests: 0}\n"
)

// slow are arguments of an engine whose answers take their time: two thousand tokens last for minutes.
func slow(more ...string) []string {
	return append([]string{"--speed", "0.3"}, more...)
}

// slowTwo are those of such an engine with two slots.
func slowTwo() []string { return slow("--max-num-seqs", "2") }

// wantFull fails the test unless two long answers fill the engine, for the gate at least, and their end frees it.
func (r *rig) wantFull() {
	r.TB.Helper()
	_, leaveFirst := r.open(2000)
	_, leaveSecond := r.open(2000)
	if a := r.chat(5, false); a.Status == http.StatusOK || a.Header.Get("X-Admitd-Reason") != "queue_depth" {
		r.TB.Errorf("a third request at two full slots: %d %s %s", a.Status, a.Header.Get("X-Admitd-Reason"), a.Body)
	}
	leaveFirst()
	leaveSecond()
	r.settled()
	if a := r.chat(5, false); a.Status != http.StatusOK {
		r.TB.Errorf("after both have left: %d %s", a.Status, a.Body)
	}
}

// value is a reading's value; it fails the test when there is none.
func (r *rig) value(s journal.SignalView) float64 {
	r.TB.Helper()
	if s.Value == nil {
		r.TB.Fatalf("%s is %s: %s", s.Name, s.State, s.Why)
	}
	return *s.Value
}

// saw is a signal as the decision of an answer saw it.
func (r *rig) saw(a harness.Answer, name string) journal.SignalView {
	r.TB.Helper()
	for _, s := range r.record(a).Decision.Signals {
		if string(s.Name) == name {
			return s
		}
	}
	r.TB.Fatalf("the decision saw no %s", name)
	panic("unreachable")
}

// Engine bug 7: all requests are aborted, and the gauges say 99 % until a token comes out, which nobody then asks for.
func TestGaugesFrozenByAnAbortDoNotCloseTheGateForEver(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{faults: []string{"frozen-after-abort"}, args: slow(), policy: byCache}).ready()
	_, leave := r.open(2000)
	r.until("running", func() bool { return r.value(r.signal("running")) == 1 })
	leave()
	r.settled()
	r.until("frozen", func() bool { return r.value(r.signal("kv_used")) > 0.9 })
	a := r.chat(5, false)
	if a.Status != http.StatusOK {
		t.Errorf("nothing is in flight, and the next request gets %d %s", a.Status, a.Body)
	}
	if s := r.saw(a, "kv_used"); r.value(s) != 0 {
		t.Errorf("the decision saw KV use %v (%s)", *s.Value, s.State)
	}
}

// Engine bug 8: SGLang's gauges are up to 30 s old, and its throughput gauge keeps its value when idle.
func TestGateCountsForItselfWhereGaugesAreOld(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{face: sim.SGLang, faults: []string{"stale-gauges"}, args: slowTwo(), policy: byQueue}).ready()
	r.wantFull()
	if s := r.signal("decode_tokens_rate"); s.Source != "sglang:generation_tokens_total" {
		t.Errorf("the decode rate comes from %q", s.Source)
	}
}

// Engine bugs 9 and 10: a hit rate of the last batch, above 1, and one whose hits are counted again and again.
func TestHitRateStaysAFractionAndAdmitsNobody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ face, fault, source string }{
		{sim.SGLang, "wild-hit-rate", "sglang:cached_tokens_total / sglang:prompt_tokens_total"},
		{sim.VLLM, "inflated-hits", "vllm:prefix_cache_hits_total / vllm:prefix_cache_queries_total"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			r := launch(t, setup{face: c.face, faults: []string{c.fault}, policy: byCache, args: slow("--kv-blocks", "128", "--block-size", "16")}).ready()
			long := harness.Chat(model, strings.Repeat("word ", 600), 600, true)
			first, err := harness.Open(harness.Timeout(t, patience), r.Gate+"/v1/chat/completions", long)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = first.Body.Close() }()
			harness.FirstData(t, first)
			r.until("measured", func() bool { return r.signal("prefix_hit_rate").Value != nil })
			if s := r.signal("prefix_hit_rate"); *s.Value < 0 || *s.Value > 1 || s.Source != c.source {
				t.Errorf("hit rate %v from %s", *s.Value, s.Source)
			}
			// The same prompt is in the cache as a whole, and yet its room is asked for.
			if a := harness.Post(harness.Timeout(t, patience), r.Gate+"/v1/chat/completions",
				harness.Chat(model, strings.Repeat("other ", 1000), 600, false)); a.Status == http.StatusOK {
				t.Errorf("a request that does not fit beside the first was let in: %s", a.Body)
			}
		})
	}
}

// Engine bug 11: the hit counter stays 0 although prompts come from the cache.
func TestCachedTokensAreTakenFromUsageWhereTheCounterIsDead(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{faults: []string{"zero-hits"}}).ready()
	prompt := harness.Chat(model, strings.Repeat("word ", 400), 5, false)
	var last harness.Answer
	for range 3 {
		last = harness.Post(harness.Timeout(t, patience), r.Gate+"/v1/chat/completions", prompt)
	}
	item := r.record(last)
	if item.Outcome == nil || item.Outcome.CachedTokens == nil || *item.Outcome.CachedTokens == 0 {
		t.Fatalf("outcome %+v: its cached tokens are not known", item.Outcome)
	}
	r.until("told by usage", func() bool {
		s := r.signal("prefix_hit_rate")
		return s.Value != nil && *s.Value > 0.3 && strings.Contains(s.Source, "usage")
	})
}

// Engine bug 12: blocks times block size is not the capacity of a hybrid model.
func TestCapacityComesFromTheEnginesOwnLineNotFromItsBlocks(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{faults: []string{"wrong-cache-config"},
		args: []string{"--kv-blocks", "65", "--block-size", "16", "--max-model-len", "1000"}}).ready()
	if got := r.pool().Engine.KVCapacityTokens; got != 1040 {
		t.Errorf("capacity %d, the log says 1040", got)
	}
	if s := r.saw(r.chat(5, false), "kv_capacity_tokens"); r.value(s) != 1040 {
		t.Errorf("the decision saw a capacity of %v from %s", *s.Value, s.Source)
	}
	r.until("told of the disagreement", func() bool { return len(r.events("capacity_disagrees")) > 0 })
	if told := r.events("capacity_disagrees"); len(told) != 1 || !strings.Contains(told[0], "1040") || !strings.Contains(told[0], "4160") {
		t.Errorf("told: %q", told)
	}
}

// Engine bug 13: KV use reads 0 under a light load, by what it means.
func TestKVUseOfNothingUnderALightLoadIsNoAlarm(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{faults: []string{"kv-rounds-down"}, args: slow()}).ready()
	_, leave := r.open(2000)
	defer leave()
	r.until("running", func() bool { return r.value(r.signal("running")) == 1 })
	a := r.chat(5, false)
	if a.Status != http.StatusOK {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if s := r.saw(a, "kv_used"); s.State != "live" || s.Why != "" {
		t.Errorf("the decision saw KV use as %s: %s", s.State, s.Why)
	}
}

// Engine bugs 14 and 17, and pages that hold nonsense: metrics that fail or say nothing later on.
func TestGateGoesOnByItsBooksWhenMetricsFail(t *testing.T) {
	t.Parallel()
	for _, fault := range []sim.Fault{sim.FaultMetrics500, sim.FaultMissingMetrics, sim.FaultNegativeGauges} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			r := launch(t, setup{faults: []string{string(fault) + ":req=2"}, args: slowTwo(), policy: byQueue}).ready()
			if a := r.chat(1, false); a.Status != http.StatusOK {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			r.until("without a reading", func() bool {
				s := r.signal("waiting")
				return s.State == "missing" || s.State == "stale"
			})
			if s := r.signal("waiting"); s.State == "missing" && s.Value != nil {
				t.Errorf("a missing reading became %v", *s.Value)
			}
			r.wantFull()
		})
	}
}

// Engine bug 14: the cause is a folder for Python's metrics that outlives the engine, or is on a network.
func TestEngineGetsAFreshLocalFolderForItsMetrics(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{}).ready()
	env, err := os.ReadFile("/proc/" + itoa(r.pool().Engine.PID) + "/environ")
	if err != nil {
		t.Fatal(err)
	}
	vars := strings.Split(string(env), "\x00")
	at := slices.IndexFunc(vars, func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") })
	if at < 0 || !strings.Contains(vars[at], "/admitd-") {
		t.Errorf("TMPDIR is not a folder of this launch")
	}
	if slices.ContainsFunc(vars, func(v string) bool { return strings.HasPrefix(v, "PROMETHEUS_MULTIPROC_DIR=") }) {
		t.Errorf("the engine inherits a PROMETHEUS_MULTIPROC_DIR")
	}
}

// Engine bugs 14, 16 and 17, at the start: what the policy needs cannot be read, and that is said by name.
func TestStartWithoutTheSignalsThatThePolicyNeedsEndsByName(t *testing.T) {
	t.Parallel()
	for fault, want := range map[sim.Fault]string{
		sim.FaultNewMetricNames: "vllm:kv_cache_usage_perc",
		sim.FaultMissingMetrics: "needs waiting",
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			r := launch(t, setup{faults: []string{string(fault)}, wanted: errors.New(want)})
			<-r.Ended
		})
	}
}

// Engine bug 15: the Rust front end answers in OpenMetrics whatever is asked for, and lacks half of the families.
func TestOpenMetricsAreRead(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{faults: []string{"openmetrics"}, args: slow()}).ready()
	_, leave := r.open(2000)
	defer leave()
	r.until("counting tokens", func() bool { s := r.signal("decode_tokens_rate"); return s.Value != nil && *s.Value > 0 })
	for _, name := range []string{"running", "waiting", "kv_used", "preemption_rate"} {
		if s := r.signal(name); s.State != "live" {
			t.Errorf("%s is %s: %s", name, s.State, s.Why)
		}
	}
	if s := r.saw(r.chat(1, false), "kv_capacity_tokens"); s.State != "live" {
		t.Errorf("without cache_config_info the log line is left, and the capacity is %s: %s", s.State, s.Why)
	}
}

// Engine bug 16: metrics were renamed between versions.
func TestMetricsOfOtherVersions(t *testing.T) {
	t.Parallel()
	t.Run("old names are known", func(t *testing.T) {
		t.Parallel()
		r := launch(t, setup{faults: []string{"old-metric-names"}, policy: byCache}).ready()
		if s := r.signal("kv_used"); s.State != "live" || s.Source != "vllm:gpu_cache_usage_perc" {
			t.Errorf("KV use is %s from %s: %s", s.State, s.Source, s.Why)
		}
	})
	t.Run("new names are missing, not zero", func(t *testing.T) {
		t.Parallel()
		r := launch(t, setup{faults: []string{"new-metric-names"}, args: slowTwo(), policy: byQueue}).ready()
		if s := r.signal("kv_used"); s.State != "missing" || s.Value != nil || !strings.Contains(s.Source, "vllm:kv_cache_usage_perc") {
			t.Errorf("KV use is %s from %s: %v", s.State, s.Source, s.Value)
		}
		r.wantFull()
	})
}

// Engine bug 18: one series for each rank, of which a map by name keeps the last.
func TestRanksAddUp(t *testing.T) {
	t.Parallel()
	for _, face := range []string{sim.VLLM, sim.SGLang} {
		t.Run(face, func(t *testing.T) {
			t.Parallel()
			r := launch(t, setup{face: face, faults: []string{"two-ranks"}, args: slow()}).ready()
			for range 3 {
				r.open(2000)
			}
			r.until("counting all three", func() bool { return r.value(r.signal("running")) == 3 })
			if s := r.signal("kv_used"); r.value(s) <= 0 {
				t.Errorf("KV use %v", *s.Value)
			}
		})
	}
}

// Engine bug 19: the load counter goes below zero for good.
func TestNegativeLoadIsNeverAskedFor(t *testing.T) {
	t.Parallel()
	r := attach(t, setup{faults: []string{"negative-load"}}).ready()
	if a := r.chat(5, false); a.Status != http.StatusOK {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := harness.Post(harness.Timeout(t, patience), r.Gate+"/load", "{}"); a.Status != http.StatusNotFound {
		t.Errorf("/load is passed on: %d %s", a.Status, a.Body)
	}
	if page := r.enginePage(); strings.Contains(page, `handler="/load"`) || !strings.Contains(page, `handler="/v1/chat/completions"`) {
		t.Errorf("the engine was asked for /load, or counts nothing:\n%s", page)
	}
}

// Gauges that stand still, that say in the middle of an overload that nothing runs, and a page that comes seconds late.
func TestBooksHoldWhereMetricsStandStillLieOrComeLate(t *testing.T) {
	t.Parallel()
	for _, fault := range []sim.Fault{sim.FaultFrozenMetrics, sim.FaultPreemptingScrape, sim.FaultSlowMetrics} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			r := launch(t, setup{faults: []string{string(fault) + ":req=2"}, args: slowTwo(), policy: byQueue}).ready()
			if a := r.chat(1, false); a.Status != http.StatusOK {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			r.wantFull()
			if age := r.pool().Scrape.Failures; fault == sim.FaultSlowMetrics && age == 0 {
				r.until("failing to read in time", func() bool { return r.pool().Scrape.Failures > 0 })
			}
		})
	}
}
