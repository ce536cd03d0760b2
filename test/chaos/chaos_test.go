// Package chaos runs the whole of admitd, as people do, while everything around it goes wrong at random, and then proves the
// books.
//
// Goal: faults of the engine, its death, policies that change, viewers and callers that come, stall and leave: afterwards
// every arrival has one decision and one ending, tokens settled are those that callers saw, and nothing is left.
//
// Non-goals: saying what is right in each case; the packages' own tests and test/faults do.
package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"admitd/gate/journal"
	"admitd/test/harness"
)

const (
	model    = "Qwen2.5-0.5B"
	patience = 2 * time.Minute
	// usual is how long the chaos lasts in `make test`; ADMITD_CHAOS, as `make chaos` sets it, says another time.
	usual   = 10 * time.Second
	callers = 24
)

var binary string

func TestMain(m *testing.M) {
	path, remove, err := harness.Build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = path
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		remove()
		os.Exit(code)
	}))
}

// troubles are what the engine does wrong for a while, at random times of each of its lives.
var troubles = []string{"in-band-503", "real-503", "cut-stream", "abort-stream", "error-stream", "nan-metrics", "metrics-500", "missing-metrics",
	"frozen-metrics", "slow-metrics", "lagging-gauges", "counter-raises", "giant-event", "ignore-disconnect", "negative-gauges"}

var policies = []string{
	"policy: concurrency\nparams:\n  max_in_flight: 4\nhold:\n  max_wait: 500ms\n  max_requests: 8\n",
	"policy: queue-depth\nparams:\n  max_waiting: 2\n",
	"policy: admit-all\n",
	"policy: saturation\n",
	"policy: dual-gate\nhold:\n  max_wait: 300ms\n  max_requests: 8\n",
}

// schedule draws the faults of one run.
func schedule(rng *rand.Rand, length time.Duration) (args []string) {
	for _, i := range rng.Perm(len(troubles))[:8] {
		at := time.Duration(rng.Int64N(int64(length))).Round(time.Millisecond)
		lasts := 200*time.Millisecond + time.Duration(rng.IntN(1500))*time.Millisecond
		args = append(args, "--fault", fmt.Sprintf("%s:%s+%s", troubles[i], at, lasts))
	}
	return args
}

// idle is what the process holds at rest.
type idle struct{ goroutines, files, heap float64 }

func measure(a *harness.Admitd) idle {
	return idle{goroutines: a.Metric("go_goroutines", ""), files: a.Metric("process_open_fds", ""), heap: a.Metric("go_memstats_heap_alloc_bytes", "")}
}

func TestChaosLeavesTheBooksInOrderAndNothingBehind(t *testing.T) {
	length, seed := usual, uint64(time.Now().UnixNano())
	if text := os.Getenv("ADMITD_CHAOS"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("ADMITD_CHAOS=%q: must be a duration such as 5m", text)
		}
	}
	if text := os.Getenv("ADMITD_CHAOS_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatalf("ADMITD_CHAOS_SEED=%q: must be a number", text)
		}
	}
	t.Logf("seed %d (ADMITD_CHAOS_SEED)", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	record := t.TempDir()
	config := harness.WriteFile(t, "admitd.yaml", "journal:\n  ring: 500\n  dir: "+record+"\n  max_bytes: 1MiB\n  keep_bytes: 1GiB\nengine:\n  max_restarts: 1000\n  drain_timeout: 2s\n  stop_grace: 5s\n")
	a := harness.Start(t, harness.Options{Binary: binary, Args: []string{"--config", config, "--engine", "sim", "--model", model,
		"--policy", harness.WriteFile(t, "policy.yaml", policies[0])},
		EngineArgs: append([]string{"--load-time", "100ms", "--speed", "10", "--max-num-seqs", "6"}, schedule(rng, length/2)...)})
	a.WaitReady(patience)
	before := measure(a)

	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var wg sync.WaitGroup
	crowd := make([]crowd, callers)
	for i := range crowd {
		wg.Go(func() { crowd[i].call(ctx, a, rand.New(rand.NewPCG(seed, uint64(100+i)))) })
	}
	wg.Go(func() { disturb(ctx, t, a, rand.New(rand.NewPCG(seed, 2))) })
	for i := range 4 {
		wg.Go(func() { watch(ctx, a, rand.New(rand.NewPCG(seed, uint64(10+i)))) })
	}
	wg.Wait()

	a.Until(patience, "at rest", func() bool {
		l := a.Status().Pools[0].Ledger
		return l.InFlight == 0 && l.Held == 0 && l.ReservedTokens == 0 && l.Admitted == l.Settled
	})
	a.Until(patience, "back at its idle size", func() bool {
		now := measure(a)
		return now.goroutines <= before.goroutines+10 && now.files <= before.files+10 && now.heap <= before.heap+(64<<20)
	})
	counted := map[string]float64{}
	for _, name := range []string{"admitd_decisions_total", "admitd_outcomes_total"} {
		counted[name] = a.Metric(name, "")
	}
	engine := a.Status().Pools[0].Engine.PID
	a.Stop()
	// As a shell says of SIGTERM.
	if a.ExitCode != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d", a.ExitCode)
	}
	if err := syscall.Kill(engine, 0); engine > 0 && err == nil {
		t.Errorf("the engine, pid %d, is still there", engine)
	}
	var all []answer
	for i := range crowd {
		all = append(all, crowd[i].answers...)
	}
	prove(t, record, all, counted)
}

// disturb kills engines, changes policies and reloads, until the time is up.
func disturb(ctx context.Context, t *testing.T, a *harness.Admitd, rng *rand.Rand) {
	every := time.NewTicker(150 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		switch rng.IntN(24) {
		case 0:
			if pid := a.Status().Pools[0].Engine.PID; pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		case 1, 2:
			a.Signal(syscall.SIGHUP)
		case 3:
			if code, text := a.PutPolicy("policy: nonsense\n", ""); code != 422 && code != 400 {
				t.Errorf("a broken policy was answered %d: %s", code, text)
			}
		case 4, 5, 6, 7:
			// One that needs what the engine does not tell just now is refused, and that is right.
			a.PutPolicy(policies[rng.IntN(len(policies))], "")
		}
	}
}

// watch is a viewer of the dashboard that comes, reads or does not, and leaves.
func watch(ctx context.Context, a *harness.Admitd, rng *rand.Rand) {
	for ctx.Err() == nil {
		conn, resp, err := websocket.DefaultDialer.DialContext(ctx, strings.Replace(a.Admin, "http", "ws", 1)+"/api/v1/stream", nil)
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close()
		}
		if err != nil {
			continue
		}
		stay := context.AfterFunc(ctx, func() { _ = conn.Close() })
		if rng.IntN(3) == 0 {
			wait(ctx, time.Second)
		} else {
			for range rng.IntN(20) {
				if _, _, err := conn.ReadMessage(); err != nil {
					break
				}
			}
		}
		stay()
		_ = conn.Close()
	}
}

// wait is a pause that the end of the chaos cuts short.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// prove compares the record on disk with the metrics and with what callers saw.
func prove(t *testing.T, dir string, answers []answer, counted map[string]float64) {
	t.Helper()
	decisions, outcomes := map[string]*journal.Decision{}, map[string]*journal.Outcome{}
	admitted := 0
	notices, err := journal.ReadDir(dir, func(e journal.Entry) error {
		switch {
		case e.Decision != nil:
			if decisions[e.Decision.ID] != nil {
				t.Errorf("%s was decided twice", e.Decision.ID)
			}
			decisions[e.Decision.ID] = e.Decision
			if e.Decision.Verdict == "admit" {
				admitted++
			}
		case e.Outcome != nil:
			if outcomes[e.Outcome.ID] != nil {
				t.Errorf("%s ended twice", e.Outcome.ID)
			}
			outcomes[e.Outcome.ID] = e.Outcome
		}
		return nil
	})
	if err != nil || len(notices) > 0 {
		t.Errorf("the record cannot be read: %v %v", err, notices)
	}
	if len(outcomes) != admitted {
		t.Errorf("%d admitted, %d outcomes", admitted, len(outcomes))
	}
	for id, d := range decisions {
		if (d.Verdict == "admit") != (outcomes[id] != nil) {
			t.Errorf("%s was decided %s, its outcome is %+v", id, d.Verdict, outcomes[id])
		}
	}
	if got := counted["admitd_decisions_total"]; got != float64(len(decisions)) {
		t.Errorf("the metrics count %v decisions, the record %d", got, len(decisions))
	}
	if got := counted["admitd_outcomes_total"]; got != float64(len(outcomes)) {
		t.Errorf("the metrics count %v outcomes, the record %d", got, len(outcomes))
	}
	whole := 0
	for _, s := range answers {
		whole += compare(t, s, decisions[s.id], outcomes[s.id])
	}
	endings := map[string]int{}
	for _, o := range outcomes {
		endings[o.Ending]++
	}
	t.Logf("%d decisions, %d admitted, %d answers seen, %d whole; endings %v", len(decisions), admitted, len(answers), whole, endings)
	if whole == 0 || len(decisions) == admitted {
		t.Error("the chaos let nothing through whole, or refused nothing: it proves little")
	}
}

// compare holds the record of one request against what its caller saw, and tells whether it was whole.
func compare(t *testing.T, s answer, d *journal.Decision, o *journal.Outcome) int {
	t.Helper()
	switch {
	case d == nil:
		t.Errorf("%s was answered %d and has no decision", s.id, s.status)
	case s.verdict != d.Verdict && o == nil:
		t.Errorf("%s was told %q, the record says %q", s.id, s.verdict, d.Verdict)
	case s.whole && s.status == 200 && (o == nil || o.Ending != "whole"):
		t.Errorf("%s saw a whole answer, the outcome is %+v", s.id, o)
	case s.whole && s.status == 200 && (o.CompletionTokens == nil || *o.CompletionTokens != s.tokens):
		t.Errorf("%s was told of %d tokens, the outcome is %+v", s.id, s.tokens, o)
	case s.whole && s.status == 200:
		return 1
	case !slices.Contains([]int{200, 400, 404, 413, 429, 500, 503, 529}, s.status):
		t.Errorf("%s was answered %d", s.id, s.status)
	}
	return 0
}
