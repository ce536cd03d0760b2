package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"admitd/test/harness"
	"admitd/ui/api"
)

func settled(t *testing.T, a *harness.Admitd) {
	t.Helper()
	a.Until(readyWithin, "settled", func() bool {
		l := a.Status().Pools[0].Ledger
		return l.InFlight == 0 && l.Held == 0 && l.ReservedTokens == 0 && l.Admitted == l.Settled
	})
}

func TestServeFromStartToStop(t *testing.T) {
	t.Parallel()
	a := start(t, "")
	a.WaitReady(readyWithin)
	for _, want := range []string{"SIMULATED ENGINE", "ready: " + model, "dashboard: http://"} {
		a.Until(readyWithin, "saying "+want, func() bool { return strings.Contains(a.Output(), want) })
	}
	for _, stream := range []bool{true, false} {
		ans := harness.Post(harness.Timeout(t, time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "Hello", 16, stream))
		if ans.Status != http.StatusOK || ans.Header.Get("X-Admitd-Decision") != "admit" {
			t.Errorf("stream %v: %d %v %s", stream, ans.Status, ans.Err, ans.Body)
		}
	}
	settled(t, a)
	st := a.Status()
	if !st.Pools[0].Engine.Simulated || !st.Ready {
		t.Errorf("status says simulated %v, ready %v", st.Pools[0].Engine.Simulated, st.Ready)
	}
	pid := st.Pools[0].Engine.PID
	a.Stop()
	if a.ExitCode != 143 {
		t.Errorf("exit code %d after SIGTERM, want 143", a.ExitCode)
	}
	if syscall.Kill(pid, 0) == nil {
		t.Errorf("the engine, pid %d, outlived admitd", pid)
	}
}

// Decisions must add up: what callers saw, the journal, the metrics and the feed.
func TestBurstOf40AgainstFourSlotsAddsUp(t *testing.T) {
	t.Parallel()
	a := start(t, "policy: queue-depth\nparams: {max_waiting: 2}\nhold: {max_wait: 0s, max_requests: 0}\n",
		"--max-num-seqs", "4", "--speed", "0.5")
	a.WaitReady(readyWithin)
	feed := countFeed(t, a)
	var wg sync.WaitGroup
	answers := make([]harness.Answer, 40)
	for i := range answers {
		wg.Go(func() {
			answers[i] = harness.Post(context.Background(), a.Gate+"/v1/chat/completions", harness.Chat(model, fmt.Sprintf("Question %d", i), 400, i%2 == 0))
		})
	}
	wg.Wait()
	counts := map[string]int{}
	for i, ans := range answers {
		verdict := ans.Header.Get("X-Admitd-Decision")
		counts[verdict]++
		switch {
		case ans.Status == http.StatusOK && verdict == "admit":
		case (ans.Status == 503 && verdict == "defer") || (ans.Status == 529 && verdict == "reject"):
			if n, err := strconv.Atoi(ans.Header.Get("Retry-After")); err != nil || n < 1 || n > 60 {
				t.Errorf("call %d: Retry-After %q", i, ans.Header.Get("Retry-After"))
			}
		default:
			t.Errorf("call %d: %d %s %v %s", i, ans.Status, verdict, ans.Err, ans.Body)
		}
	}
	if counts["admit"] < 6 || counts["admit"] == 40 {
		t.Errorf("verdicts %v: with 4 slots and a queue of 2 some must be refused and 6 admitted", counts)
	}
	settled(t, a)
	for verdict, n := range counts {
		if got := a.Metric("admitd_decisions_total", `verdict="`+verdict+`"`); int(got) != n {
			t.Errorf("metrics count %v %s, callers saw %d", got, verdict, n)
		}
	}
	var d api.Decisions
	a.Get("/api/v1/decisions?limit=1000", &d)
	journal := map[string]int{}
	for _, it := range d.Items {
		journal[it.Decision.Verdict]++
		if it.Decision.Verdict == "admit" && it.Outcome == nil {
			t.Errorf("%s was admitted and has no outcome", it.Decision.ID)
		}
	}
	if fmt.Sprint(journal) != fmt.Sprint(counts) {
		t.Errorf("journal %v, callers saw %v", journal, counts)
	}
	a.Until(readyWithin, "counted by the feed", func() bool { return feed() == [3]int{counts["admit"], counts["defer"], counts["reject"]} })
}

func TestKVPolicyOnAnEngineWithoutKVMetricDoesNotStart(t *testing.T) {
	t.Parallel()
	a := start(t, "policy: kv-threshold\nparams: {max_kv_used: 0.9}\n", "--fault", "no-kv-metric")
	if code := a.WaitExit(readyWithin); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
	for _, want := range []string{"kv-threshold", "kv_used", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"} {
		if !strings.Contains(a.Output(), want) {
			t.Errorf("the message lacks %q:\n%s", want, a.Output())
		}
	}
}

func TestPolicyReloads(t *testing.T) {
	t.Parallel()
	file := harness.WriteFile(t, "policy.yaml", "policy: admit-all\n")
	a := harness.Start(t, harness.Options{Binary: binary, Args: []string{"--engine", "sim", "--model", model, "--policy", file},
		EngineArgs: []string{"--load-time", "200ms", "--speed", "0.1", "--median-output", endless}})
	a.WaitReady(readyWithin)
	rev := func() string { return a.Status().Pools[0].Policy.Rev }
	first := rev()

	status, body := a.PutPolicy("policy: queue-depth\nparams:\n  max_waitin: 3\n", "")
	if status != http.StatusBadRequest || !strings.Contains(body, `"line":3`) || !strings.Contains(body, "max_waiting") || rev() != first {
		t.Errorf("a broken policy: %d %s, rev %s -> %s", status, body, first, rev())
	}
	if status, body = a.PutPolicy("policy: concurrency\nparams: {max_in_flight: 1}\n", "000000000000"); status != http.StatusPreconditionFailed {
		t.Errorf("a stale If-Match: %d %s", status, body)
	}
	if status, body = a.PutPolicy("policy: concurrency\nparams: {max_in_flight: 1}\nhold: {max_wait: 0s, max_requests: 0}\n", first); status != http.StatusOK {
		t.Fatalf("a good policy: %d %s", status, body)
	}
	// The very next decision is the new policy's.
	resp, err := harness.Open(context.Background(), a.Gate+"/v1/chat/completions", harness.Chat(model, "one", 2000, true))
	if err != nil {
		t.Fatal(err)
	}
	ans := harness.Post(context.Background(), a.Gate+"/v1/chat/completions", harness.Chat(model, "two", 5, false))
	if ans.Status != 503 || !strings.HasPrefix(ans.Header.Get("X-Admitd-Policy"), "concurrency@") || ans.Header.Get("X-Admitd-Reason") != "slots_full" {
		t.Errorf("after the change: %d %v", ans.Status, ans.Header)
	}
	_ = resp.Body.Close()

	// A changed file is noticed by its content; a broken one changes nothing and is told; SIGHUP reads it again.
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("policy: queue-depth\nparams: {max_waiting: 7}\n")
	a.Until(readyWithin, "running the file's policy", func() bool { return a.Status().Pools[0].Policy.Name == "queue-depth" })
	good := rev()
	write("policy: queue-dept\n")
	a.Until(readyWithin, "complaining about the broken file", func() bool { return !a.Status().Config.LastReloadOK })
	if rev() != good || a.Metric("admitd_config_last_reload_successful", "") != 0 {
		t.Errorf("a broken file took effect, or the metric hides it")
	}
	write("policy: queue-depth\nparams: {max_waiting: 9}\n")
	a.Signal(syscall.SIGHUP)
	a.Until(readyWithin, "reloaded on SIGHUP", func() bool { return rev() != good && a.Status().Config.LastReloadOK })
}

// 50 open streams survive 20 policy changes: each is what the engine would have sent without any.
func TestFiftyStreamsSurviveTwentyReloadsByteIdentical(t *testing.T) {
	t.Parallel()
	a := start(t, "policy: admit-all\n", "--max-num-seqs", "64")
	a.WaitReady(readyWithin)
	ask := func(i int) harness.Answer {
		return harness.Post(context.Background(), a.Gate+"/v1/chat/completions", harness.Chat(model, fmt.Sprintf("Story %d", i), 300, true))
	}
	undisturbed := make([]string, 50)
	var wg sync.WaitGroup
	for i := range undisturbed {
		wg.Go(func() { undisturbed[i] = maskIDs(ask(i).Body) })
	}
	wg.Wait()
	pid := a.Status().Pools[0].Engine.PID
	disturbed := make([]string, 50)
	for i := range disturbed {
		wg.Go(func() { disturbed[i] = maskIDs(ask(i).Body) })
	}
	for i := range 20 {
		if status, body := a.PutPolicy(fmt.Sprintf("policy: concurrency\nparams: {max_in_flight: %d}\n", 100+i), ""); status != http.StatusOK {
			t.Fatalf("reload %d: %d %s", i, status, body)
		}
	}
	wg.Wait()
	for i := range disturbed {
		if disturbed[i] != undisturbed[i] || !strings.HasSuffix(disturbed[i], "data: [DONE]\n\n") {
			t.Errorf("stream %d differs after the reloads:\n%q\n%q", i, disturbed[i], undisturbed[i])
		}
	}
	if now := a.Status().Pools[0].Engine.PID; now != pid {
		t.Errorf("engine pid %d -> %d", pid, now)
	}
	settled(t, a)
}

func TestKilledSimulatedEngineComesBack(t *testing.T) {
	t.Parallel()
	a := start(t, "", "--median-output", endless)
	a.WaitReady(readyWithin)
	before := a.Status().Pools[0].Engine
	resp, err := harness.Open(context.Background(), a.Gate+"/v1/chat/completions", harness.Chat(model, "long", 20000, true))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	rest := harness.FirstData(t, resp)
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(rest)
	if end := string(b); !strings.Contains(end, `"error"`) || !strings.HasSuffix(end, "data: [DONE]\n\n") {
		t.Errorf("the open stream did not end honestly: …%q", end[max(0, len(end)-300):])
	}
	a.Until(readyWithin, "ready again", func() bool {
		e := a.Status().Pools[0].Engine
		return e.State == "ready" && e.PID != before.PID && e.Restarts == before.Restarts+1
	})
	settled(t, a)
}

func TestEngineThatCannotStartEndsWithSevenAndAHint(t *testing.T) {
	t.Parallel()
	a := start(t, "", "--fault", "fatal-start")
	if code := a.WaitExit(readyWithin); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	if !strings.Contains(a.Output(), "what to do:") {
		t.Errorf("no hint in:\n%s", a.Output())
	}
}

func TestStateFolderKeepsTokenPrivate(t *testing.T) {
	t.Parallel()
	a := start(t, "")
	a.WaitReady(readyWithin)
	st, err := os.Stat(filepath.Join(a.State, "admin.token"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("admin.token: %v %v", st, err)
	}
	if strings.Contains(a.Output(), a.Token) {
		t.Error("the admin token is in the output")
	}
}
