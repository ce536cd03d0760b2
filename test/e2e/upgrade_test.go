package e2e

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"admitd/test/harness"
	"admitd/ui/api"
)

func TestThousandRequestsDuringUpgradesAllSucceedAndAreRecordedOnce(t *testing.T) {
	t.Parallel()
	a := start(t, "policy: admit-all\n", "--max-num-seqs", "64", "--speed", "4")
	a.WaitReady(readyWithin)
	harness.UpgradeUnderLoad(t, binary, a, model, 1000, 3)
}

// A long stream that began before two upgrades ends whole, and the admitd that serves then knows of it all the time.
func TestStreamThatOutlivesUpgradesIsCountedAndShownByTheNewAdmitd(t *testing.T) {
	t.Parallel()
	const tokens = 500 // they last longer than two upgrades
	a := start(t, "policy: admit-all\n", "--speed", "0.1", "--median-output", endless)
	a.WaitReady(readyWithin)
	resp, err := harness.Open(harness.Timeout(t, 2*time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "A long story", tokens, true))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	rest := harness.FirstData(t, resp)
	id := resp.Header.Get("X-Admitd-Request-Id")
	for range 2 {
		if text, code, _ := harness.Upgrade(t, binary, a); code != 0 {
			t.Fatalf("exit code %d\n%s", code, text)
		}
		if l := a.Status().Pools[0].Ledger; l.InFlight != 1 || l.ReservedTokens < 150 {
			t.Errorf("the new admitd does not count the old one's stream: %+v", l)
		}
	}
	text, err := io.ReadAll(rest)
	if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("the stream is cut: %v, %q", err, text)
	}
	harness.Eventually(t, "settled", func() bool { return a.Status().Pools[0].Ledger.InFlight == 0 })
	var item api.DecisionItem
	a.Get("/api/v1/decisions/"+id, &item)
	if item.Outcome == nil || item.Outcome.Ending != "whole" || item.Outcome.CompletionTokens == nil || *item.Outcome.CompletionTokens != tokens {
		t.Errorf("what the new admitd shows of the stream: %+v", item.Outcome)
	}
	if l := a.Status().Pools[0].Ledger; l.ReservedTokens != 0 || l.Admitted != l.Settled {
		t.Errorf("the books: %+v", l)
	}
}

// A restart goes back to the file; an upgrade is none.
func TestPolicyOfTheAdminAPIStaysOverAnUpgrade(t *testing.T) {
	t.Parallel()
	a := start(t, "policy: admit-all\n")
	a.WaitReady(readyWithin)
	if status, body := a.PutPolicy("policy: concurrency\nparams: {max_in_flight: 3}\n", ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	before := a.Status().Pools[0].Policy
	if text, code, _ := harness.Upgrade(t, binary, a); code != 0 {
		t.Fatalf("exit code %d\n%s", code, text)
	}
	if now := a.Status().Pools[0].Policy; now.Rev != before.Rev || now.Name != "concurrency" {
		t.Errorf("policy %s@%s -> %s@%s", before.Name, before.Rev, now.Name, now.Rev)
	}
}

func TestUpgradeThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	file := harness.WriteFile(t, "admitd.yaml", "upgrade: {timeout: 3s}\n")
	a := harness.Start(t, harness.Options{Binary: binary, Args: []string{"--engine", "sim", "--model", model, "--config", file}, EngineArgs: []string{"--load-time", "200ms", "--speed", "0.2"}})
	a.WaitReady(readyWithin)
	engine := a.Status().Pools[0].Engine.PID
	resp, err := harness.Open(harness.Timeout(t, 2*time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "A long story", 100, true))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	rest := harness.FirstData(t, resp)
	script := func(text string) string {
		path := harness.WriteFile(t, "admitd", "#!/bin/sh\n"+text+"\n")
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, config, binary, want string }{
		{"a program that ends", "upgrade: {timeout: 60s}\n", script("exit 3"), "exit status 3"},
		{"a program that hangs", "upgrade: {timeout: 3s}\n", script("exec cat <&3 >/dev/null"), "was not ready within 3s"},
		{"a file that is no program", "upgrade: {timeout: 60s}\n", file, "is not a program"},
		{"a broken configuration", "upgrade: {timeot: 3s}\n", "", "timeot"},
	} {
		write(c.config)
		var args []string
		if c.binary != "" {
			args = []string{"--binary", c.binary}
		}
		text, code, _ := harness.Upgrade(t, binary, a, args...)
		if code == 0 || !strings.Contains(text, c.want) {
			t.Errorf("%s: exit code %d, want %q in\n%s", c.name, code, c.want, text)
		}
		ans := harness.Post(harness.Timeout(t, time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "still there?", 4, false))
		if ans.Status != http.StatusOK {
			t.Errorf("%s: afterwards %d %v %s", c.name, ans.Status, ans.Err, ans.Body)
		}
	}
	if now := a.Status().Pools[0].Engine.PID; now != engine || a.Exited() {
		t.Errorf("engine pid %d -> %d, ended %v", engine, now, a.Exited())
	}
	if text, err := io.ReadAll(rest); err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("the stream is cut: %v, %q", err, text)
	}
	settled(t, a)
	a.Stop()
	if harness.Alive(engine) {
		t.Error("the engine outlived the stop: the one that goes on had not taken it back")
	}
}
