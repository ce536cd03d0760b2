package e2e

import (
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"admitd/test/harness"
	"admitd/ui/api"
)

// midUpgrade is a stream of the old admitd, of so many tokens, while the new one of that pid serves.
func midUpgrade(t *testing.T, tokens int) (a *harness.Admitd, pid int, id string, rest io.Reader) {
	t.Helper()
	a = start(t, "policy: admit-all\n", "--speed", "0.2", "--median-output", endless)
	a.WaitReady(readyWithin)
	resp, err := harness.Open(harness.Timeout(t, 2*time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "A long story", tokens, true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	rest = harness.FirstData(t, resp)
	text, code, pid := harness.Upgrade(t, binary, a)
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, text)
	}
	return a, pid, resp.Header.Get("X-Admitd-Request-Id"), rest
}

func TestNewAdmitdThatDiesTakesNeitherStreamNorRecordOfTheOldOneWithIt(t *testing.T) {
	t.Parallel()
	a, pid, id, rest := midUpgrade(t, 400)
	engine := a.Status().Pools[0].Engine.PID
	_ = syscall.Kill(pid, syscall.SIGKILL)
	text, err := io.ReadAll(rest)
	if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("the stream is cut: %v, %q", err, text)
	}
	if code := a.WaitExit(readyWithin); code != 0 {
		t.Errorf("the old admitd ended with exit code %d", code)
	}
	decisions, outcomes, lost := harness.Books(t, a.State)
	if decisions[id] != 1 || outcomes[id] != 1 || lost > 0 {
		t.Errorf("%d decisions, %d outcomes, %d not whole", decisions[id], outcomes[id], lost)
	}
	next := harness.Start(t, harness.Options{Binary: binary, StateDir: a.State, Args: []string{"--engine", "sim", "--model", model},
		EngineArgs: []string{"--load-time", "200ms", "--speed", "0.2", "--median-output", endless}})
	next.WaitReady(readyWithin)
	if now := next.Status().Pools[0].Engine.PID; now != engine {
		t.Errorf("the next admitd runs engine %d, not %d", now, engine)
	}
}

func TestOldAdmitdThatDiesLeavesNoReservationBehind(t *testing.T) {
	t.Parallel()
	a, _, id, rest := midUpgrade(t, 20000)
	if l := a.Status().Pools[0].Ledger; l.InFlight != 1 {
		t.Errorf("%+v", l)
	}
	a.Signal(syscall.SIGKILL)
	if text, _ := io.ReadAll(rest); strings.Contains(string(text), "[DONE]") {
		t.Error("nothing could have ended this stream properly")
	}
	harness.Eventually(t, "settled", func() bool {
		l := a.Status().Pools[0].Ledger
		return l.InFlight == 0 && l.ReservedTokens == 0 && l.Admitted == l.Settled
	})
	var item api.DecisionItem
	a.Get("/api/v1/decisions/"+id, &item)
	if item.Outcome == nil || item.Outcome.Ending != "admitd_lost" {
		t.Errorf("%+v", item.Outcome)
	}
}
