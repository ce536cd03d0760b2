package gate

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/gate/quota"
)

// counting sees every settlement.
type counting struct {
	admission.Controlling
	settled map[admission.ID]int
	errs    int
}

func (c *counting) Settle(now time.Time, s admission.Settlement) ([]admission.Verdict, error) {
	c.settled[s.ID]++
	vs, err := c.Controlling.Settle(now, s)
	if err != nil {
		c.errs++
	}
	return vs, err
}

// Whatever ends a request, its reservation is given back once and the books add up.
func TestSettledExactlyOnceWhateverTheEnding(t *testing.T) {
	const tries, workers = 240, 12
	seen := &counting{settled: map[admission.ID]int{}}
	var endings, arrivals atomic.Int64
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		switch endings.Add(1) % 8 {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			sse(w, tokenEvent("a"))
			panic(http.ErrAbortHandler)
		case 2:
			sse(w, tokenEvent("a"))
			<-q.Context().Done()
		case 3:
			sse(w, `data: {"error":{"message":"full","code":503}}`+"\n\n"+doneMark)
		case 4:
			w.WriteHeader(http.StatusInternalServerError)
		case 5:
			answerJSON(w, q)
		case 6:
			<-q.Context().Done()
		default:
			answerStream(w, q)
		}
	}, func(s *setup) {
		s.NewID = func() string { return fmt.Sprint("req-", arrivals.Add(1)) }
		s.policy = "policy: concurrency\nparams:\n  max_in_flight: 6\nhold:\n  max_wait: 50ms\n  max_requests: 4\n"
		s.wrap = func(c admission.Controlling) admission.Controlling { seen.Controlling = c; return seen }
	})
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 3))
			for range tries / workers {
				r.careless(rng)
			}
		})
	}
	wg.Wait()
	// Whoever left before the gate saw anything is no arrival.
	r.untilServed()
	n := int(arrivals.Load())
	all, _, _ := r.pool.Journal.Read(0, 0)
	if n < tries/4 || len(outcomesOf(all)) == 0 {
		t.Fatalf("only %d of %d tries arrived, %d were admitted", n, tries, len(outcomesOf(all)))
	}
	r.idle()
	if seen.errs != 0 || len(seen.settled) != len(outcomesOf(all)) {
		t.Errorf("%d settlement errors, %d settled, %d outcomes", seen.errs, len(seen.settled), len(outcomesOf(all)))
	}
	for id, k := range seen.settled {
		if k != 1 {
			t.Errorf("%s was settled %d times", id, k)
		}
	}
	ids := map[string]int{}
	for _, d := range decisionsOf(all) {
		ids[d.ID]++
	}
	if len(ids) != n {
		t.Errorf("%d arrivals have a decision, want %d", len(ids), n)
	}
	r.addsUp(n, len(outcomesOf(all)))
}

// careless sends one request and may leave at any time.
func (r *rig) careless(rng *rand.Rand) {
	body := chatBody
	if rng.IntN(2) == 0 {
		body = streamBody
	}
	abandon, heads, done := r.send(body)
	defer abandon()
	select {
	case <-heads:
	case <-done:
	case <-time.After(time.Duration(rng.IntN(40)) * time.Millisecond):
	}
	abandon()
	<-done
}

// addsUp compares the counters with what was sent.
func (r *rig) addsUp(decisions, outcomes int) {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	sum := func(name string) (total float64) {
		for _, f := range families {
			if f.GetName() == name {
				for _, m := range f.Metric {
					total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
		return total
	}
	for name, want := range map[string]int{"admitd_decisions_total": decisions, "admitd_decision_seconds": decisions,
		"admitd_outcomes_total": outcomes, "admitd_inflight": 0, "admitd_held": 0, "admitd_reserved_tokens": 0} {
		if got := sum(name); got != float64(want) {
			r.t.Errorf("%s adds up to %v, want %d", name, got, want)
		}
	}
}

// Every arrival has one decision, those that were refused at the door included.
func TestDecisionsAddUpToArrivals(t *testing.T) {
	r := newRig(t, answerJSON, func(s *setup) { s.Keys = oneKey(t, nil) })
	key := "Authorization"
	arrivals := []struct{ method, path, body, secret string }{
		{"POST", chatPath, chatBody, goodSecret}, {"POST", chatPath, chatBody, "wrong"}, {"POST", chatPath, chatBody, ""},
		{"GET", chatPath, "", goodSecret}, {"POST", "/nope", "", goodSecret}, {"POST", "/sleep", "", goodSecret},
		{"POST", chatPath, "{", goodSecret}, {"POST", chatPath, strings.Replace(chatBody, `"m"`, `"x"`, 1), goodSecret},
		{"POST", chatPath + "?key=1", chatBody, goodSecret}, {"POST", "/tokenize", `{"model":"m","prompt":"x"}`, goodSecret},
		{"POST", "/tokenize", `{`, goodSecret}, {"GET", "/v1/models/x", "", goodSecret},
	}
	for _, a := range arrivals {
		r.get(a.method, a.path, a.body, key, "Bearer "+a.secret)
	}
	// Answered by the gate itself: no decisions.
	r.get("GET", "/health", "")
	r.get("GET", "/v1/models", "", key, "Bearer "+goodSecret)
	all := r.await("both outcomes", func(all []journal.Entry) bool { return len(outcomesOf(all)) == 2 })
	if got := len(decisionsOf(all)); got != len(arrivals) {
		t.Errorf("%d decisions for %d arrivals", got, len(arrivals))
	}
	for _, d := range decisionsOf(all) {
		if strings.Contains(d.Path, "nope") || d.ID == "" || d.Verdict == "" || d.Reason == "" {
			t.Errorf("decision %+v", d)
		}
	}
	r.addsUp(len(arrivals), 2)
}

// broken panics where it is told to.
type broken struct {
	admission.Controlling
	arrive, progress bool
}

func (b *broken) Arrive(now time.Time, a admission.Arrival) admission.Verdict {
	if b.arrive && !a.DryRun {
		panic("a defect that quotes " + goodSecret)
	}
	return b.Controlling.Arrive(now, a)
}

func (b *broken) Progress(now time.Time, id admission.ID, n int) {
	if b.progress && n > 1 {
		panic("a defect that quotes " + goodSecret)
	}
	b.Controlling.Progress(now, id, n)
}

func TestAPanicIsAnsweredSettledAndRecorded(t *testing.T) {
	for name, b := range map[string]*broken{"deciding": {arrive: true}, "streaming": {progress: true}, "transport": {}, "body": {}} {
		t.Run(name, func(t *testing.T) {
			more := make(chan struct{})
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
				sse(w, tokenEvent("a"))
				<-more
				sse(w, strings.Repeat(tokenEvent("a"), 40))
			}, func(s *setup) {
				s.wrap = func(c admission.Controlling) admission.Controlling { b.Controlling = c; return b }
			})
			if name == "transport" || name == "body" {
				r.engine.transport = roundTrip(func(*http.Request) (*http.Response, error) {
					if name == "transport" {
						panic("defect")
					}
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: bomb{}}, nil
				})
			}
			resp, err := r.client.Post(r.url+chatPath, "application/json", strings.NewReader(streamBody))
			close(more)
			if err == nil {
				got, readErr := io.ReadAll(resp.Body)
				resp.Body.Close()
				want := map[string]int{"deciding": 500, "streaming": 200, "transport": 503, "body": 503}[name]
				if resp.StatusCode != want || (name == "streaming") != (readErr != nil) {
					t.Errorf("status %d, body %q, error %v", resp.StatusCode, got, readErr)
				}
			} else if name != "streaming" {
				t.Error(err)
			}
			if d := r.decision(1); (name == "deciding") != (d.Reason == "internal_error") {
				t.Errorf("decision %+v", d)
			}
			if name != "deciding" && r.outcome(1).Ending != "engine_error" {
				t.Errorf("outcome %+v", r.outcome(1))
			}
			if strings.Contains(r.logs.String(), goodSecret) {
				t.Errorf("the log quotes the panic: %s", r.logs)
			}
			r.idle()
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

type bomb struct{}

func (bomb) Read([]byte) (int, error) { panic("defect") }
func (bomb) Close() error             { return nil }

func TestMetricsPassTheLinterAndHaveBoundedLabels(t *testing.T) {
	r := newRig(t, answerStream, func(s *setup) {
		s.Classes = map[string]SLO{"batch": {}, "interactive": {TTFT: time.Hour, TPOT: time.Hour}}
		s.DefaultClass = "interactive"
	})
	r.get("POST", chatPath, streamBody)
	for i := range 5 {
		r.get("POST", chatPath, streamBody, "X-Admitd-Class", fmt.Sprintf("made-up-%d", i))
		r.get("POST", fmt.Sprintf("/made-up-%d", i), "")
	}
	r.get("POST", chatPath, streamBody, "X-Admitd-Class", "batch")
	r.outcome(7)
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if strings.Contains(l.GetValue(), "made-up") {
					t.Errorf("%s has label %s", f.GetName(), l)
				}
			}
		}
	}
	for _, want := range []string{"admitd_decisions_total", "admitd_decision_seconds", "admitd_inflight", "admitd_held",
		"admitd_reserved_tokens", "admitd_ttft_seconds", "admitd_tpot_seconds", "admitd_outcomes_total", "admitd_estimate_error_ratio"} {
		if !names[want] {
			t.Errorf("%s is not there", want)
		}
	}
	if n := classCount(families, "admitd_ttft_seconds", "batch"); n != 1 {
		t.Errorf("%d first tokens of class batch, want 1", n)
	}
}

func classCount(families []*dto.MetricFamily, name, class string) uint64 {
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "class" && l.GetValue() == class {
					return m.GetHistogram().GetSampleCount()
				}
			}
		}
	}
	return 0
}

// The class belongs to the key, unless the key may choose.
func TestClassOfAKey(t *testing.T) {
	for may, want := range map[bool]string{false: "slow", true: "fast"} {
		r := newRig(t, answerJSON, func(s *setup) {
			s.Classes = map[string]SLO{"slow": {}, "fast": {}, DefaultClass: {}}
			s.Keys = oneKey(t, func(k *quota.Key) { k.Class, k.MayChooseClass = "slow", may })
		})
		r.get("POST", chatPath, chatBody, "X-Api-Key", goodSecret, "X-Admitd-Class", "fast")
		if d := r.decision(1); d.Class != want || d.Tenant != "acme" || d.KeyID != "k1" {
			t.Errorf("may choose %v: decision %+v", may, d)
		}
	}
}

// What was decided on is in the record, and nothing of what was said.
func TestDecisionRecordHoldsWhatWasSeen(t *testing.T) {
	r := newRig(t, answerStream, func(s *setup) { s.policy = oneAtATime })
	r.get("POST", chatPath, strings.Replace(streamBody, "hello there", "a secret plan", 1), "X-Admitd-Session", "task-7")
	o := r.outcome(1)
	d := r.decision(1).Complete()
	if d.Pool != "m" || d.Path != chatPath || !d.Stream || d.PromptTokens == 0 || d.ReservedTokens < d.PromptTokens ||
		len(d.Signals) == 0 || len(d.Trace) == 0 || d.PolicyRev == "" || d.Session == "" || d.Session == "task-7" {
		t.Errorf("decision %+v", d)
	}
	for _, s := range d.Signals {
		if s.State == "missing" && s.Value != nil {
			t.Errorf("a missing signal has the value %v", *s.Value)
		}
	}
	if o.TTFTMS == nil || o.TPOTMS == nil || *o.TTFTMS > o.TotalMS || o.FinishReason != "stop" {
		t.Errorf("outcome %+v", o)
	}
	text, _ := json.Marshal(d)
	if strings.Contains(string(text), "secret plan") || strings.Contains(string(text), "task-7") {
		t.Errorf("the record quotes the caller: %s", text)
	}
}

func TestSLOIsJudgedByTheWholeResponse(t *testing.T) {
	for name, tc := range map[string]struct {
		slo  SLO
		body string
		want bool
	}{
		"no limits":            {SLO{}, streamBody, true},
		"wide":                 {SLO{TTFT: time.Hour, TPOT: time.Hour}, streamBody, true},
		"first token too late": {SLO{TTFT: time.Nanosecond}, streamBody, false},
		"whole, wide":          {SLO{TTFT: time.Hour, TPOT: time.Hour}, chatBody, true},
		"whole, too late":      {SLO{TTFT: time.Nanosecond, TPOT: time.Nanosecond}, chatBody, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
				if tc.body == streamBody {
					answerStream(w, q)
					return
				}
				answerJSON(w, q)
			}, func(s *setup) { s.Classes = map[string]SLO{DefaultClass: tc.slo} })
			r.get("POST", chatPath, tc.body)
			if o := r.outcome(1); o.SLOMet != tc.want {
				t.Errorf("outcome %+v, want %v", o, tc.want)
			}
		})
	}
}
