package sim

import (
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	seriesRE = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)
	labelRE  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="([^"]*)"`)
	enums    = map[string]bool{"le": true, "reason": true, "source": true, "finished_reason": true, "sleep_state": true, "generation": true, "engine": true}
)

// exposed is an exposition reduced to what a scraper relies on.
type exposed struct {
	// types are the TYPE lines in order, series the series with their labels (values only where they are an
	// enumeration), values the numbers by full series text.
	types  []string
	series []string
	values map[string]float64
}

func parse(t *testing.T, text string) exposed {
	t.Helper()
	x := exposed{values: map[string]float64{}}
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.HasPrefix(line, "# TYPE "):
			x.types = append(x.types, line[len("# TYPE "):])
		case strings.HasPrefix(line, "# HELP ") || line == "":
		default:
			m := seriesRE.FindStringSubmatch(line)
			if m == nil {
				t.Fatalf("not a sample: %q", line)
			}
			v, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			x.values[strings.TrimSuffix(line, " "+m[3])] = v
			var labels []string
			for _, l := range labelRE.FindAllStringSubmatch(m[2], -1) {
				if enums[l[1]] {
					labels = append(labels, l[0])
				} else {
					labels = append(labels, l[1])
				}
			}
			x.series = append(x.series, m[1]+"{"+strings.Join(labels, ",")+"}")
		}
	}
	return x
}

func recordedScrape(t *testing.T, name string) exposed {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "vllm-0.32.0", "metrics", name))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(b))
}

func (l *lab) scrapeText(t *testing.T) string {
	t.Helper()
	a := l.do(t, "GET", "/metrics", "")
	if a.status != 200 {
		t.Fatalf("/metrics: %d", a.status)
	}
	return string(a.body)
}

// An idle engine exports the recorded families, in the recorded order, with the recorded series and labels.
func TestTheIdleScrapeIsTheRecordedOne(t *testing.T) {
	l := start(t, recorded())
	a := l.do(t, "GET", "/metrics", "")
	if ct := a.header.Get("Content-Type"); ct != "text/plain; version=1.0.0; charset=utf-8" {
		t.Errorf("content type %q", ct)
	}
	got, want := parse(t, string(a.body)), recordedScrape(t, "idle.txt")
	if diff := cmp.Diff(want.types, got.types); diff != "" {
		t.Errorf("families differ (-recorded +simulated):\n%s", diff)
	}
	if diff := cmp.Diff(want.series, got.series); diff != "" {
		t.Errorf("series differ (-recorded +simulated):\n%s", diff)
	}
}

// After requests the HTTP families appear; the engine's families follow a smaller model length.
func TestTheBusyScrapeIsTheRecordedOne(t *testing.T) {
	o := recorded()
	o.KVBlocks, o.BlockSize, o.MaxModelLen, o.MaxNumSeqs = 60, 32, 640, 8
	l := start(t, o)
	l.post(t, "/v1/chat/completions", chat(20, 3, `,"stream":true`))
	l.do(t, "GET", "/nope", "")
	got, want := parse(t, l.scrapeText(t)), recordedScrape(t, "preempting.txt")
	if diff := cmp.Diff(want.types, got.types); diff != "" {
		t.Errorf("families differ (-recorded +simulated):\n%s", diff)
	}
	// The recorded engine had answered one path, this one two: as sets the series are the same.
	if diff := cmp.Diff(set(want.series), set(got.series)); diff != "" {
		t.Errorf("series differ (-recorded +simulated):\n%s", diff)
	}
	config := regexp.MustCompile(`kv_cache_max_concurrency="3.0".*kv_cache_size_tokens="1920".*num_gpu_blocks="60"`)
	if !config.MatchString(l.scrapeText(t)) {
		t.Error("cache_config_info does not state the recorded capacity")
	}
}

func set(list []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	sort.Strings(out)
	return out
}

func TestCountersCountWhatWasServed(t *testing.T) {
	l := start(t, recorded())
	for range 3 {
		l.post(t, "/v1/chat/completions", chat(300, 5, ""))
	}
	l.post(t, "/v1/chat/completions", `{"model":"nope",`+question+`}`)
	got := parse(t, l.scrapeText(t)).values
	const labels = `{engine="0",model_name="smol"}`
	prompt := got["vllm:prompt_tokens_total"+labels]
	for name, want := range map[string]float64{
		"vllm:generation_tokens_total" + labels: 15, "vllm:prefix_cache_queries_total" + labels: prompt,
		// Two of three found the two full blocks of the first.
		"vllm:prefix_cache_hits_total" + labels:                                                     512,
		`vllm:prompt_tokens_by_source_total{engine="0",model_name="smol",source="local_cache_hit"}`: 512,
		`vllm:request_success_total{engine="0",finished_reason="length",model_name="smol"}`:         3,
		"vllm:request_prompt_tokens_sum" + labels:                                                   prompt,
		"vllm:time_to_first_token_seconds_count" + labels:                                           3,
		"vllm:inter_token_latency_seconds_count" + labels:                                           12,
		"vllm:iteration_tokens_total_count" + labels:                                                15,
		"vllm:iteration_tokens_total_sum" + labels:                                                  prompt - 512 + 15,
		`http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"}`:            3,
		`http_requests_total{handler="/v1/chat/completions",method="POST",status="4xx"}`:            1,
		`http_request_duration_seconds_count{handler="/v1/chat/completions",method="POST"}`:         4,
		"vllm:num_requests_running" + labels:                                                        0,
		"vllm:kv_cache_usage_perc" + labels:                                                         0,
		`vllm:request_params_max_tokens_bucket{engine="0",le="5.0",model_name="smol"}`:              3,
		`vllm:request_params_max_tokens_bucket{engine="0",le="2.0",model_name="smol"}`:              0,
		`vllm:admission_rejections_total{model_name="smol",reason="max_num_queued_reqs"}`:           0,
		"vllm:request_prefill_kv_computed_tokens_sum" + labels:                                      prompt - 512,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (there: %v), want %v", name, v, ok, want)
		}
	}
}

func TestPythonFloats(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.0", 1: "1.0", 0.3: "0.3", 16384: "16384.0", 999999: "999999.0", 1227620352: "1.227620352e+09",
		1.7960435029405053e+09: "1.7960435029405053e+09", 15.35: "15.35", 1e6: "1e+06", -3: "-3.0",
	} {
		if got := pyFloat(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
}
