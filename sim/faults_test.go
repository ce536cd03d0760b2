package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const doneText = "[DONE]"

// last is the data of the last event.
func last(t *testing.T, body []byte) string {
	t.Helper()
	list := events(t, body)
	if len(list) == 0 {
		t.Fatal("no event at all")
	}
	return list[len(list)-1].data
}

func TestStreamFaults(t *testing.T) {
	ask := chat(10, 20, `,"stream":true`)
	for _, tc := range []struct {
		fault Fault
		check func(t *testing.T, body []byte)
	}{
		{FaultCutStream, func(t *testing.T, body []byte) { // F: vllm#52852
			list := events(t, body)
			if len(list) != 1+faultTokens || strings.Contains(string(body), doneText) || strings.Contains(string(body), `"finish_reason":"`) {
				t.Errorf("not cut after %d tokens:\n%s", faultTokens, body)
			}
		}},
		{FaultAbortStream, func(t *testing.T, body []byte) { // F: vllm#57082
			if last(t, body) != doneText || !strings.Contains(string(body), `"finish_reason":"abort"`) {
				t.Errorf("no abort:\n%s", body)
			}
		}},
		{FaultErrorStream, func(t *testing.T, body []byte) {
			want := events(t, capture(t, "stream-on-core-kill.http").body)
			got := events(t, body)
			if len(got) != 1+faultTokens+2 || got[len(got)-2] != want[1] || got[len(got)-1] != want[2] {
				t.Errorf("does not end as the recorded stream of a killed engine:\n%s", body)
			}
		}},
		{FaultGiantEvent, func(t *testing.T, body []byte) {
			widest := 0
			for line := range bytes.SplitSeq(body, []byte("\n")) {
				widest = max(widest, len(line))
			}
			if widest < giantBytes || last(t, body) != doneText {
				t.Errorf("the widest line has %d bytes", widest)
			}
		}},
		{FaultInBand503, func(t *testing.T, body []byte) {
			list := events(t, body)
			if len(list) != 2 || !strings.Contains(list[0].data, `"code": 503`) || list[1].data != doneText {
				t.Errorf("no in-band 503:\n%s", body)
			}
		}},
	} {
		t.Run(string(tc.fault), func(t *testing.T) {
			l := start(t, recorded())
			if err := l.SetFault(tc.fault, true); err != nil {
				t.Fatal(err)
			}
			a := l.post(t, "/v1/chat/completions", ask)
			if a.status != http.StatusOK {
				t.Fatalf("status %d", a.status)
			}
			tc.check(t, a.body)
			if st := l.stats(t); st.Running+st.Waiting+st.Used != 0 {
				t.Errorf("the request is still in the engine: %+v", st)
			}
			if err := l.SetFault(tc.fault, false); err != nil {
				t.Fatal(err)
			}
			if a := l.post(t, "/v1/chat/completions", ask); last(t, a.body) != doneText || len(events(t, a.body)) != 22 {
				t.Errorf("with the fault off again:\n%s", a.body)
			}
		})
	}
}

func TestReal503AndPlainCallersOfStreamFaults(t *testing.T) {
	l := start(t, recorded())
	for _, f := range []Fault{FaultReal503, FaultInBand503} {
		if err := l.SetFault(f, true); err != nil {
			t.Fatal(err)
		}
		if a := l.post(t, "/v1/chat/completions", chat(10, 20, "")); a.status != 503 {
			t.Errorf("%s, plain: %d", f, a.status)
		}
		if f == FaultReal503 {
			if a := l.post(t, "/v1/chat/completions", chat(10, 20, `,"stream":true`)); a.status != 503 {
				t.Errorf("%s, stream: %d", f, a.status)
			}
		}
		if err := l.SetFault(f, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SetFault(FaultCutStream, true); err != nil {
		t.Fatal(err)
	}
	if u := l.chat(t, chat(10, 20, "")); u.Usage.Completion != 20 {
		t.Errorf("a plain caller was cut: %+v", u.Usage)
	}
}

func TestMetricFaults(t *testing.T) {
	const running, kv = `vllm:num_requests_running{engine="0",model_name="smol"}`, `vllm:kv_cache_usage_perc{engine="0",model_name="smol"}`
	o := recorded()
	o.Speed = 1
	l := start(t, o)
	_, lines, _ := l.stream(t, chat(20, 1900, `,"stream":true`))
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	with := func(f Fault, check func()) {
		t.Helper()
		if err := l.SetFault(f, true); err != nil {
			t.Fatal(err)
		}
		check()
		if err := l.SetFault(f, false); err != nil {
			t.Fatal(err)
		}
	}
	healthy := parse(t, l.scrapeText(t))
	if healthy.values[running] != 1 || healthy.values[kv] == 0 {
		t.Fatalf("running %v, KV %v before any fault", healthy.values[running], healthy.values[kv])
	}
	with(FaultMissingMetrics, func() { // F17: HELP and TYPE lines alone
		if x := parse(t, l.scrapeText(t)); len(x.values) != 0 || len(x.types) != len(healthy.types) {
			t.Errorf("%d samples in %d families", len(x.values), len(x.types))
		}
	})
	with(FaultNaNMetrics, func() {
		if v := parse(t, l.scrapeText(t)).values; !math.IsNaN(v[running]) || !math.IsNaN(v[kv]) {
			t.Errorf("running %v, KV %v", v[running], v[kv])
		}
	})
	with(FaultNoKVMetric, func() {
		if text := l.scrapeText(t); strings.Contains(text, "kv_cache_usage_perc") || !strings.Contains(text, running) {
			t.Error("the KV family is there, or others are not")
		}
	})
	with(FaultPreemptingScrape, func() {
		v := parse(t, l.scrapeText(t)).values
		if v[running] != 0 || v[kv] != 0 || v[`vllm:num_requests_waiting{engine="0",model_name="smol"}`] != 1 {
			t.Errorf("running %v, KV %v", v[running], v[kv])
		}
	})
	with(FaultMetrics500, func() {
		if a := l.do(t, "GET", "/metrics", ""); a.status != 500 {
			t.Errorf("status %d", a.status)
		}
	})
	with(FaultFrozenMetrics, func() {
		before := l.scrapeText(t)
		now := l.stats(t).GeneratedTokens
		until(t, "more tokens", func() bool { return l.stats(t).GeneratedTokens > now })
		if l.scrapeText(t) != before {
			t.Error("a frozen scrape moved")
		}
	})
	if l.scrapeText(t) == "" || l.do(t, "GET", "/health", "").status != 200 {
		t.Error("not healthy after the faults")
	}
}

func TestSlowMetricsTakeFiveSecondsLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Faults: []string{"slow-metrics"}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		began := time.Now()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if took := time.Since(began); took != slowMetricsDelay || w.Code != 200 {
			t.Errorf("status %d after %v", w.Code, took)
		}
	})
}

// TestF6_StallWithHealth200: health and metrics answer, tokens do not; after the stall the stream goes on where it was.
func TestStallWithHealth200(t *testing.T) {
	l := start(t, recorded())
	if err := l.SetFault(FaultStall, true); err != nil {
		t.Fatal(err)
	}
	resp, lines, _ := l.stream(t, chat(10, 20, `,"stream":true`))
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	before := l.stats(t)
	if a := l.do(t, "GET", "/health", ""); a.status != 200 {
		t.Errorf("health %d", a.status)
	}
	if after := l.stats(t); after.GeneratedTokens != before.GeneratedTokens || after.Arriving != 1 {
		t.Errorf("the engine moved: %+v", after)
	}
	if err := l.SetFault(FaultStall, false); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil || last(t, rest) != doneText {
		t.Errorf("after the stall: %v", err)
	}
}

// A timed stall begins by itself, in the middle of a stream, without a request to notice it.
func TestATimedStallBeginsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := recorded()
		o.Speed, o.Faults = 1, []string{"stall:5s"}
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req := httptest.NewRequestWithContext(ctx, "POST", "/v1/chat/completions", strings.NewReader(chat(10, 1000, "")))
		req.Header.Set("Content-Type", "application/json")
		s.ServeHTTP(httptest.NewRecorder(), req)
		st, err := s.Stats()
		if err != nil {
			t.Fatal(err)
		}
		// Fifty tokens a second for five seconds, then none for the fifty-five that follow.
		if st.GeneratedTokens < 240 || st.GeneratedTokens > 260 {
			t.Errorf("%d tokens came out", st.GeneratedTokens)
		}
	})
}

func TestParseFault(t *testing.T) {
	for _, tc := range []struct {
		in, err string
		want    armed
	}{
		{"stall", "", armed{}},
		{"stall:5s", "", armed{after: 5 * time.Second}},
		{"cut-stream:req=10", "", armed{requests: 10}},
		{"stall:", `fault "stall:": "" is neither a duration such as 5s nor req=N`, armed{}},
		{"stall:-1s", `fault "stall:-1s": "-1s" is neither a duration such as 5s nor req=N`, armed{}},
		{"stall:req=0", `fault "stall:req=0": "0" is not a request number: use req=1 or more`, armed{}},
		{"sleepy", "unknown fault \"sleepy\": `admitd sim --faults` lists them", armed{}},
	} {
		_, a, err := parseFault(tc.in)
		if got := errorText(err); got != tc.err || a != tc.want {
			t.Errorf("%q: %+v, %s", tc.in, a, got)
		}
	}
}

func TestFaultOfTheOtherFaceIsRefused(t *testing.T) {
	o := recorded()
	o.Faults = []string{"stale-gauges"}
	const want = `simulated engine: fault "stale-gauges" is one of sglang: use --dialect sglang`
	if _, err := New(o); errorText(err) != want {
		t.Errorf("%v, want %s", err, want)
	}
	l := start(t, recorded())
	if err := l.SetFault(FaultStaleGauges, true); err == nil {
		t.Error("switched on at the other face")
	}
}

func TestCatalogueNamesEachFaultOnceWithItsFaceAndBugs(t *testing.T) {
	seen := map[Fault]bool{}
	for _, f := range Faults() {
		if seen[f.Name] || f.Text == "" || !f.On(VLLM) && !f.On(SGLang) || !slices.IsSorted(f.Bugs) {
			t.Errorf("%+v", f)
		}
		seen[f.Name] = true
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A fault that is taken is one of the list, with times that can be, and written out in full it is the same.
func FuzzParseFault(f *testing.F) {
	for _, i := range Faults() {
		f.Add(string(i.Name) + ":req=3+20s")
	}
	f.Add("stall:5s")
	f.Add("late-hang")
	f.Add("stall:2562047h47m16.854775807s+1ns")
	f.Fuzz(func(t *testing.T, s string) {
		name, a, err := parseFault(s)
		if err != nil {
			if name != "" || a != (armed{}) {
				t.Fatalf("%q is refused and still %q %+v", s, name, a)
			}
			return
		}
		if _, known := faultInfo(name); !known || a.after < 0 || a.requests < 0 || a.lasts < 0 || a.after > 0 && a.requests > 0 {
			t.Fatalf("%q became %q %+v", s, name, a)
		}
		full := fmt.Sprintf("%s:%s", name, a.after)
		if a.requests > 0 {
			full = fmt.Sprintf("%s:req=%d", name, a.requests)
		}
		if a.lasts > 0 {
			full += "+" + a.lasts.String()
		}
		if n, again, err := parseFault(full); n != name || again != a || err != nil {
			t.Fatalf("%q is %+v, written out as %s it is %+v, %v", s, a, full, again, err)
		}
	})
}

func TestFaultsBeginWithTheRequestTheyName(t *testing.T) {
	o := recorded()
	o.Faults = []string{"real-503:req=3"}
	l := start(t, o)
	for i, want := range []int{200, 200, 503, 503} {
		if a := l.post(t, "/v1/chat/completions", chat(5, 2, "")); a.status != want {
			t.Errorf("request %d: %d, want %d", i+1, a.status, want)
		}
	}
}

func TestStartFaultsEndTheStart(t *testing.T) {
	for name, want := range map[string]string{
		"fatal-start": "No available memory for the cache blocks", "exit1-start": "Engine core initialization failed. See root cause above.",
	} {
		var out bytes.Buffer
		s, err := New(Options{Faults: []string{name}, Output: &out})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Run(t.Context(), "nowhere", func() (net.Listener, error) {
			t.Error("a failed start listens")
			return nil, errors.New("never")
		})
		var failed *StartError
		if !errors.As(err, &failed) || string(failed.Fault) != name || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
}

func TestSlowStartTakesLonger(t *testing.T) {
	for fault, want := range map[string]time.Duration{"": 10 * time.Second, "slow-start": 40 * time.Second, "slow-start:90s": 100 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			o := Options{LoadTime: 10 * time.Second}
			if fault != "" {
				o.Faults = []string{fault}
			}
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			began := time.Now()
			if err := s.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began).Round(time.Millisecond); took != want {
				t.Errorf("%q loads for %v, want %v", fault, took, want)
			}
		})
	}
}

// Faults may be switched while requests are served.
func TestFaultsAreSafeToSwitchUnderLoad(t *testing.T) {
	l := start(t, recorded())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				l.post(t, "/v1/chat/completions", chat(5, 10, `,"stream":true`))
			}
		})
	}
	for range 20 {
		for _, f := range []Fault{FaultErrorStream, FaultStall} {
			for _, on := range []bool{true, false} {
				if err := l.SetFault(f, on); err != nil {
					t.Error(err)
				}
			}
		}
	}
	wg.Wait()
	if err := l.SetFault("nonsense", true); err == nil {
		t.Error("an unknown fault was taken")
	}
}
