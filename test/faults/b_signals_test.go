package faults

import (
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"admitd/internal/config"
	"admitd/sim"
	"admitd/test/harness"
)

// Engine bug 42: the waiting gauge lags by seconds, and a burst would pass before it moves. Arrivals see each other in the books.
func TestBurstWithinTheLagOfTheGaugesSeesItself(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.VLLM, faults: []string{"lagging-gauges"}, args: []string{"--max-num-seqs", "4", "--speed", "0.5"},
		policy: "policy: queue-depth\nparams: {max_waiting: 2}\nhold: {max_wait: 0s, max_requests: 0}\n",
	}).ready()
	var mu sync.Mutex
	var open []*http.Response
	refused := 0
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			resp, err := harness.Open(harness.Timeout(t, patience), r.Gate+"/v1/chat/completions", harness.Chat(model, "Hello", 60, true))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if resp.StatusCode == http.StatusOK {
				open = append(open, resp)
				return
			}
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("X-Admitd-Reason") != "queue_depth" {
				t.Errorf("%s %v", resp.Status, resp.Header)
			}
			refused++
			_ = resp.Body.Close()
		})
	}
	wg.Wait()
	if len(open) != 6 || refused != 34 {
		t.Errorf("%d admitted and %d refused; four run and two wait", len(open), refused)
	}
	for _, resp := range open {
		if b, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(b), "data: [DONE]\n\n") {
			t.Errorf("an admitted stream: %v …%s", err, b[max(0, len(b)-200):])
		}
		_ = resp.Body.Close()
	}
	r.settled()
}

// Section 5.8: gauges that are not a number are no numbers, nor are they 0: the books stand in for them.
func TestNaNGaugesAreMissingNotZero(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.VLLM, faults: []string{"nan-metrics:req=2"}, args: slowTwo(),
		policy: "policy: queue-depth\nparams: {max_waiting: 0}\nhold: {max_wait: 0s, max_requests: 0}\n",
		config: func(c *config.Config) { c.Signals.StaleAfter = time.Second },
	}).ready()
	for range 2 {
		resp, leave := r.open(4000)
		defer leave()
		harness.FirstData(t, resp)
	}
	r.until("without the gauge", func() bool {
		s := r.signal("running")
		return s.Value == nil || s.State == "stale"
	})
	for _, name := range []string{"running", "waiting", "kv_used"} {
		if s := r.signal(name); s.State == "live" || s.State == "flat" || s.Value != nil && math.IsNaN(*s.Value) {
			t.Errorf("%s reads %+v", name, s)
		}
	}
	a := r.chat(1, false)
	refusedAfter(t, a, "queue_depth")
}

// Section 5.8: an orphan that holds the engine's stdout does not keep the engine's end from being noticed.
func TestOrphanHoldingStdoutDoesNotHideTheCrash(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{face: sim.VLLM, faults: []string{"orphan"}, patience: eager}).ready()
	first, orphan := r.pool().Engine, child(r, "sleep")
	r.kill(first.PID)
	st := r.relaunched(1)
	if st.PID == first.PID || alive(orphan) {
		t.Errorf("engine %d, then %d; the orphan lives: %v", first.PID, st.PID, alive(orphan))
	}
	if x := st.LastExit; x == nil || x.Wanted || !strings.Contains(x.Text, "killed") {
		t.Errorf("last exit %+v", x)
	}
}
