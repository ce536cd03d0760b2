package faults

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"admitd/gate/dialect"
	"admitd/internal/config"
	"admitd/sim"
	"admitd/test/harness"
)

const admitAll = "policy: admit-all\nhold: {max_wait: 0s, max_requests: 0}\n"

// refusedAfter checks that an answer is a real refusal that tells when to come back.
func refusedAfter(t *testing.T, a harness.Answer, why string) {
	t.Helper()
	wait, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if a.Status != http.StatusServiceUnavailable || a.Header.Get("X-Admitd-Reason") != why || err != nil || wait < 1 || wait > 60 {
		t.Errorf("%d %v %s; want 503 %s with a Retry-After", a.Status, a.Header, a.Body, why)
	}
}

// Engine bug 22: the engine gives a request up and ends it like a good one, with finish reason abort.
func TestAbortByTheEngineIsNoSuccess(t *testing.T) {
	t.Parallel()
	r := attach(t, setup{face: sim.VLLM}).ready()
	r.fault(sim.FaultAbortStream, true)
	for _, stream := range []bool{true, false} {
		a := r.chat(20, stream)
		if a.Status != http.StatusOK || !strings.Contains(a.Body, `"finish_reason":"abort"`) {
			t.Fatalf("stream %v: the fault did not play: %d %s", stream, a.Status, a.Body)
		}
		o := r.record(a).Outcome
		if o.Ending != string(dialect.EndAborted) || o.SLOMet || o.Error == "" {
			t.Errorf("stream %v: outcome %+v; an abort counted as good", stream, o)
		}
	}
	if w := r.pool().Windows[0]; w.Goodput == nil || *w.Goodput != 0 {
		t.Errorf("goodput %v of two aborted requests", w.Goodput)
	}
	r.settled()
}

// Engine bug 23 and section 5.8: SGLang tells a streaming caller of a full queue inside a 200, which no SDK retries.
func TestQueueFullInsideA200BecomesARealRefusal(t *testing.T) {
	t.Parallel()
	for _, face := range []string{sim.VLLM, sim.SGLang} {
		r := attach(t, setup{face: face}).ready()
		r.fault(sim.FaultInBand503, true)
		for _, stream := range []bool{true, false} {
			a := r.chat(20, stream)
			refusedAfter(t, a, "engine_full")
			if o := r.record(a).Outcome; o.Ending != string(dialect.EndRefused) || o.SLOMet {
				t.Errorf("%s, stream %v: outcome %+v", face, stream, o)
			}
		}
		r.settled()
	}
}

// streamsThenLeave opens so many streams of a launched engine, reads each one's first token and leaves them all.
func streamsThenLeave(r *rig, n int) {
	r.TB.Helper()
	for range n {
		resp, leave := r.open(4000)
		harness.FirstData(r.TB, resp)
		leave()
	}
	r.settled()
}

// Engine bug 24: the engine generates on after the caller has left. The books are empty, the engine is not: what it works
// on for nobody keeps its slots, and is told.
func TestRequestsThatOutliveTheirCallersAreCountedAndTold(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.VLLM, faults: []string{"ignore-disconnect"}, args: []string{"--max-num-seqs", "4", "--speed", "0.1"},
		policy: "policy: queue-depth\nparams: {max_waiting: 0}\nhold: {max_wait: 0s, max_requests: 0}\n",
	}).ready()
	streamsThenLeave(r, 4)
	r.until("told", func() bool { return len(r.events("engine_ghosts")) == 1 })
	if text := r.events("engine_ghosts")[0]; !strings.Contains(text, "4 requests that nobody waits for") {
		t.Errorf("told: %s", text)
	}
	// Proof of them lasts for two seconds: a request that comes when the engine was not read for longer waits behind them.
	r.until("refused", func() bool {
		a := harness.Post(harness.Timeout(t, 5*time.Second), r.Gate+"/v1/chat/completions", harness.Chat(model, "Hello", 1, false))
		return a.Err == nil && a.Header.Get("X-Admitd-Reason") == "queue_depth"
	})
}

// Engine bug 24, the other half: whoever leaves, its request ends at an engine that listens, stream or not.
func TestLeavingEndsTheRequestAtTheEngine(t *testing.T) {
	t.Parallel()
	r := attach(t, setup{face: sim.VLLM, options: func(o *sim.Options) { o.Speed = 0.1 }}).ready()
	for _, stream := range []bool{true, false} {
		ctx, leave := context.WithCancel(context.Background())
		ended := make(chan harness.Answer, 1)
		go func() {
			ended <- harness.Post(ctx, r.Gate+"/v1/chat/completions", harness.Chat(model, "Hello", 4000, stream))
		}()
		r.until("running", func() bool { st, err := r.engine.Stats(); return err == nil && st.Running == 1 })
		leave()
		<-ended
		r.until("ended at the engine", func() bool { st, err := r.engine.Stats(); return err == nil && st.Running+st.Waiting == 0 })
	}
	r.settled()
}

// Engine bug 25: SGLang loses the abort of a caller that left. Requests carry a name of ours, and are ended by it.
func TestLostAbortIsRepeatedByName(t *testing.T) {
	t.Parallel()
	r := attach(t, setup{face: sim.SGLang, options: func(o *sim.Options) { o.Speed, o.MaxNumSeqs = 0.1, 16 }}).ready()
	r.fault(sim.FaultLostAbort, true)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			body := harness.Chat(model, "Hello "+strconv.Itoa(i), 4000, true)
			body["rid"] = "" // a name that begins every name
			resp, err := harness.Open(ctx, r.Gate+"/v1/chat/completions", body)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			harness.FirstData(t, resp)
		})
	}
	wg.Wait()
	r.until("free of ghosts", func() bool { st, err := r.engine.Stats(); return err == nil && st.Running+st.Waiting == 0 })
	r.settled()
	// A name that is somebody else's beginning would end that one, too.
	long, leave := r.open(4000)
	defer leave()
	rest := harness.FirstData(t, long)
	leaveOneOfTwo(r)
	if line, err := rest.ReadString('\n'); err != nil {
		t.Errorf("another caller's stream ended as well: %q %v", line, err)
	}
}

// leaveOneOfTwo opens one more stream and leaves it while others go on.
func leaveOneOfTwo(r *rig) {
	r.TB.Helper()
	resp, leave := r.open(4000)
	harness.FirstData(r.TB, resp)
	leave()
	r.until("one less", func() bool { return r.pool().Ledger.InFlight == 1 })
	r.until("one running", func() bool { st, err := r.engine.Stats(); return err == nil && st.Running == 1 })
}

// burst sends so many requests at once and returns their answers.
func burst(r *rig, n, tokens int, stream bool) []harness.Answer {
	answers := make([]harness.Answer, n)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			answers[i] = harness.Post(harness.Timeout(r.TB, patience), r.Gate+"/v1/chat/completions", harness.Chat(model, "Hello "+strconv.Itoa(i), tokens, stream))
		})
	}
	wg.Wait()
	return answers
}

func count(answers []harness.Answer, is func(harness.Answer) bool) (n int) {
	for _, a := range answers {
		if is(a) {
			n++
		}
	}
	return n
}

func good(a harness.Answer) bool { return a.Err == nil && a.Status == http.StatusOK }

// Engine bug 26: SGLang hangs for good once its own queue overflows. The gate never lets it come to that, whatever the policy.
func TestEngineWhoseQueueMustNotOverflowIsNeverFilled(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.SGLang, faults: []string{"queue-hang"}, policy: admitAll,
		args: []string{"--speed", "0.5", "--max-num-seqs", "4", "--max-queued-requests", "4"},
	}).ready()
	answers := burst(r, 60, 30, true)
	served := count(answers, good)
	for _, a := range answers {
		if !good(a) {
			refusedAfter(t, a, "slots_full")
		}
	}
	// Its queue takes four, one of which is kept for a probe: of a burst it can have begun none.
	if served < 3 || served == len(answers) {
		t.Errorf("%d of %d served", served, len(answers))
	}
	if a := r.chat(5, true); !good(a) {
		t.Errorf("after the burst: %d %s", a.Status, a.Body)
	}
	r.settled()
}

// Engine bug 26, were it to come to that after all: nothing is answered, gauges read 0 and /health 200. What is owed to callers
// and does not come is a stall, whatever the engine says of itself.
func TestHungEngineThatSaysItIsIdleIsRestarted(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.SGLang, faults: []string{"queue-hang"}, args: []string{"--max-num-seqs", "2", "--max-queued-requests", "2"}, policy: admitAll, patience: eager,
		config: func(c *config.Config) {
			c.Engine.StallAfter, c.Engine.StopGrace, c.Engine.DrainTimeout = time.Second, time.Second, time.Second
		},
	}).ready()
	overflow(r, 5)
	answers := burst(r, 2, 30, true)
	r.relaunched(1)
	for _, a := range answers {
		if good(a) && !strings.Contains(a.Body, `"error"`) {
			t.Errorf("an answer that looks whole: %s", a.Body)
		}
	}
	if a := r.chat(5, true); !good(a) {
		t.Errorf("after the restart: %d %s", a.Status, a.Body)
	}
	r.settled()
}

// Engine bug 37: the engine's own limit speaks only after seconds.
func TestLateRefusalOfTheEngineIsStillARealOne(t *testing.T) {
	t.Parallel()
	r := attach(t, setup{face: sim.VLLM, policy: admitAll, options: func(o *sim.Options) { o.MaxNumSeqs, o.MaxQueuedReqs, o.Speed = 2, 4, 5 }}).ready()
	r.fault(sim.FaultLate503, true)
	answers := burst(r, 20, 400, true)
	late := count(answers, func(a harness.Answer) bool { return a.Header.Get("X-Admitd-Reason") == "engine_full" })
	if late == 0 {
		t.Fatal("the engine's limit was never reached")
	}
	for _, a := range answers {
		if !good(a) {
			refusedAfter(t, a, "engine_full")
		}
	}
	r.settled()
}

// Engine bug 37, so that it does not come to that: where the limit is known, the gate's own is tighter and speaks at once.
func TestEngineWithAQueueLimitNeverHasToRefuse(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.VLLM, faults: []string{"late-503"}, args: []string{"--max-num-seqs", "2", "--max-num-queued-reqs", "4"}, policy: admitAll,
	}).ready()
	for _, a := range burst(r, 40, 30, true) {
		if !good(a) {
			refusedAfter(t, a, "slots_full")
		}
	}
	r.settled()
}

// overflow sends so many long requests to a launched engine from beside the gate, as another user of the machine's GPU
// could, until its queue runs over.
func overflow(r *rig, requests int) {
	r.TB.Helper()
	beside := besideTheGate(r)
	ctx, cancel := context.WithCancel(context.Background())
	r.TB.Cleanup(cancel)
	for range requests {
		go func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/v1/completions",
				strings.NewReader(`{"model":"m","prompt":"long","max_tokens":20000,"ignore_eos":true}`))
			if err != nil {
				return
			}
			req.Header.Set("Content-Type", "application/json")
			if resp, err := beside(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
	}
	r.until("hung: its gauges say 0", func() bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/v1/loads", http.NoBody)
		if err != nil {
			return false
		}
		resp, err := beside(req)
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return strings.Contains(string(b), `"total_waiting_reqs":2`)
	})
}

// besideTheGate reaches a launched engine directly, with the key that only its environment has.
func besideTheGate(r *rig) func(*http.Request) (*http.Response, error) {
	r.TB.Helper()
	st := r.pool().Engine
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", st.PID))
	if err != nil {
		r.TB.Fatal(err)
	}
	key := ""
	for entry := range strings.SplitSeq(string(env), "\x00") {
		if v, ok := strings.CutPrefix(entry, "VLLM_API_KEY="); ok {
			key = v
		}
	}
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(st.Address, "unix:"))
	}}
	return func(req *http.Request) (*http.Response, error) {
		req.Header.Set("Authorization", "Bearer "+key)
		return tr.RoundTrip(req)
	}
}
