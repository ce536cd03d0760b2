package faults

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"admitd/internal/config"
	"admitd/sim"
	"admitd/supervisor"
	"admitd/test/harness"
)

// Engine bug 27: /health says 503 during a long prefill although tokens come out. Failed probes alone prove nothing.
func TestHealth503WhileTokensComeOutIsNoStall(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.SGLang, faults: []string{"health-503"}, // Eleven seconds of an answer, in which several rows of probes fail.
		args:     []string{"--speed", "0.5"},
		patience: func(o *supervisor.Options) { eager(o); o.HealthInterval = 1200 * time.Millisecond },
	}).ready()
	first := r.pool().Engine
	resp, leave := r.open(300)
	defer leave()
	rest := harness.FirstData(t, resp)
	b, err := io.ReadAll(rest)
	if err != nil || !strings.HasSuffix(string(b), "data: [DONE]\n\n") || strings.Contains(string(b), `"error"`) {
		t.Errorf("the stream did not end well: %v …%s", err, b[max(0, len(b)-200):])
	}
	if n := strings.Count(r.log.String(), "state=stalled"); n > 0 || r.pool().Engine.PID != first.PID {
		t.Errorf("stalled %d times, engine %d, now %d", n, first.PID, r.pool().Engine.PID)
	}
	r.settled()
}

// Engine bug 28: health probes that are not waited for pile up and kill the engine. There is never more than one.
func TestHealthProbesNeverPileUp(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		// A probe takes 15 s at speed 1, 150 ms here; admitd would like to look every 10 ms.
		face: sim.SGLang, faults: []string{"probe-pileup"}, args: []string{"--speed", "100"},
		patience: func(o *supervisor.Options) {
			eager(o)
			o.HealthInterval, o.ReadyInterval = 10*time.Millisecond, 10*time.Millisecond
		},
	}).ready()
	first := r.pool().Engine
	for range 10 {
		if a := r.chat(40, true); !good(a) {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	deadline := time.NewTimer(time.Second)
	defer deadline.Stop()
	<-deadline.C // some probes more, with nothing in hand
	if st := r.pool().Engine; st.PID != first.PID || st.State != supervisor.Ready || st.Restarts != 0 {
		t.Errorf("engine %d, now %+v", first.PID, st)
	}
}

// Engine bug 29: the scheduler is dead, /health says 200 for an hour. With work in hand the token counters tell.
func TestDeadSchedulerWithWorkInHandIsFound(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.SGLang, faults: []string{"dead-scheduler:req=3"}, patience: eager,
		config: func(c *config.Config) {
			c.Engine.StallAfter, c.Engine.StopGrace, c.Engine.DrainTimeout = time.Second, time.Second, time.Second
		},
	}).ready()
	if a := r.chat(5, true); !good(a) {
		t.Fatalf("before: %d %s", a.Status, a.Body)
	}
	a := r.chat(5, true)
	if good(a) && !strings.Contains(a.Body, `"error"`) {
		t.Errorf("the request that hung: %d %s", a.Status, a.Body)
	}
	r.relaunched(1)
	r.settled()
}

// Engine bug 29 with nothing in hand: a process of the engine that has gone makes admitd ask for a token, before a caller must.
func TestDeadSchedulerOfAnIdleEngineIsFoundBeforeACallerHangs(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.SGLang, faults: []string{"dead-scheduler:1h"},
		patience: func(o *supervisor.Options) {
			eager(o)
			// Only tokens that were asked for in vain are to tell.
			o.HealthInterval, o.HealthTimeout, o.HealthFailures, o.StopGrace = 50*time.Millisecond, time.Second, 1<<20, time.Second
		},
		config: func(c *config.Config) { c.Engine.StallAfter = time.Second },
	}).ready()
	first := r.pool().Engine
	scheduler := child(r, "sglang::scheduler_TP0")
	r.kill(scheduler)
	st := r.relaunched(1)
	if st.PID == first.PID || r.pool().Ledger.Arrivals != 0 {
		t.Errorf("%+v after %d arrivals", st, r.pool().Ledger.Arrivals)
	}
}

// Engine bug 30: the event loop stands still for minutes: no scrape, no health, no byte of a stream. That is not yet a reason to
// kill: what is known grows old and is said to be, the policy goes by the books, and everything goes on afterwards.
func TestBlockedEventLoopIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.SGLang, faults: []string{"blocked-loop:req=2+8s"}, args: []string{"--max-num-seqs", "2"},
		policy: "policy: queue-depth\nparams: {max_waiting: 0}\nhold: {max_wait: 0s, max_requests: 0}\n",
		patience: func(o *supervisor.Options) {
			eager(o)
			o.HealthInterval = 100 * time.Millisecond
		},
		config: func(c *config.Config) {
			c.Signals.Timeout, c.Signals.StaleAfter, c.Engine.StallAfter = 200*time.Millisecond, 300*time.Millisecond, patience
		},
	}).ready()
	first := r.pool().Engine
	type ended struct{ harness.Answer }
	done := make(chan ended, 2)
	for range 2 {
		go func() {
			done <- ended{harness.Post(harness.Timeout(t, patience), r.Gate+"/v1/chat/completions", harness.Chat(model, "Hello", 100, true))}
		}()
	}
	r.until("stale", func() bool { return r.signal("running").State == "stale" })
	refusedAfter(t, r.chat(1, false), "queue_depth")
	for range 2 {
		if a := <-done; !good(a.Answer) || !strings.HasSuffix(a.Body, "data: [DONE]\n\n") {
			t.Errorf("a stream that was in hand: %d %v %s", a.Status, a.Err, a.Body)
		}
	}
	r.until("fresh again", func() bool { return r.signal("running").State == "live" || r.signal("running").State == "flat" })
	if st := r.pool().Engine; st.PID != first.PID || st.Restarts != 0 {
		t.Errorf("engine %d, now %+v", first.PID, st)
	}
	if a := r.chat(1, false); !good(a) {
		t.Errorf("afterwards: %d %s", a.Status, a.Body)
	}
	r.settled()
}

// Engine bug 41: 1280 simultaneous requests make /health take longer than ten seconds. The gate never lets so many through.
func TestBurstIsSmoothedBeforeItReachesTheEngine(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.VLLM, faults: []string{"slow-health"}, args: []string{"--max-num-seqs", "16", "--speed", "0.1"},
		// At 100 ms for each request in flight a hundred of them would be too many.
		patience: func(o *supervisor.Options) {
			eager(o)
			o.HealthInterval, o.HealthTimeout, o.HealthFailures = 50*time.Millisecond, 10*time.Second, 1
		},
	}).ready()
	first, most := r.pool().Engine, 0
	stop := make(chan struct{})
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				most = max(most, r.pool().Ledger.InFlight)
			}
		}
	}()
	answers := burst(r, 1280, 5, false)
	close(stop)
	<-looked
	for _, a := range answers {
		if a.Status != http.StatusOK && a.Status != http.StatusServiceUnavailable && a.Status != 529 {
			t.Fatalf("%d %v %s", a.Status, a.Err, a.Body)
		}
	}
	if served := count(answers, good); served < 16 || most > 30 {
		t.Errorf("%d served, at most %d in flight", served, most)
	}
	if st := r.pool().Engine; st.PID != first.PID || strings.Contains(r.log.String(), "state=stalled") {
		t.Errorf("engine %d, now %+v", first.PID, st)
	}
	if err := syscall.Kill(first.PID, 0); err != nil {
		t.Error(err)
	}
	r.settled()
}
