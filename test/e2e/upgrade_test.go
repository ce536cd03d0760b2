package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"admitd/gate/journal"
	"admitd/test/harness"
	"admitd/ui/api"
)

// upgrade runs `admitd upgrade` against a running admitd and returns its output, exit code and the pid that serves then.
func upgrade(t *testing.T, a *harness.Admitd, args ...string) (text string, code, pid int) {
	t.Helper()
	args = append([]string{"upgrade", "-o", "json", "--admin", a.Admin, "--state-dir", a.State}, args...)
	cmd := exec.CommandContext(harness.Timeout(t, 2*time.Minute), binary, args...)
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err != nil {
		return progress.String(), exit.ExitCode(), 0
	}
	var step api.UpgradeStep
	if err := json.Unmarshal(out.Bytes(), &step); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	endLater(t, step.PID)
	return progress.String(), 0, step.PID
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// endLater ends a successor, which is nobody's child here, with the test.
func endLater(t *testing.T, pid int) {
	t.Cleanup(func() { end(t, pid) })
}

func end(t *testing.T, pid int) {
	t.Helper()
	if alive(pid) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	eventually(t, fmt.Sprintf("ended: pid %d", pid), func() bool { return !alive(pid) })
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	late := time.NewTimer(2 * time.Minute)
	defer late.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("not %s", what)
		}
	}
}

// call makes one request and says what is wrong with its answer.
func call(client *http.Client, url string, n int, stream bool) (id string, err error) {
	body, err := json.Marshal(harness.Chat(model, fmt.Sprintf("Question %d", n), 8, stream))
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "", err
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, text)
	case stream && !bytes.HasSuffix(text, []byte("data: [DONE]\n\n")):
		return "", fmt.Errorf("the stream is cut: %q", text)
	case !stream && !json.Valid(text):
		return "", fmt.Errorf("the answer is cut: %q", text)
	}
	return resp.Header.Get("X-Admitd-Request-Id"), nil
}

// books counts decisions and outcomes of each request in the record on disk.
func books(t *testing.T, state string) (decisions, outcomes map[string]int, lost int) {
	t.Helper()
	decisions, outcomes = map[string]int{}, map[string]int{}
	notices, err := journal.ReadDir(filepath.Join(state, "journal"), func(e journal.Entry) error {
		switch {
		case e.Decision != nil:
			decisions[e.Decision.ID]++
		case e.Outcome != nil:
			outcomes[e.Outcome.ID]++
			if e.Outcome.Ending != "whole" {
				lost++
			}
		}
		return nil
	})
	if err != nil || len(notices) > 0 {
		t.Errorf("the record: %v %v", err, notices)
	}
	return decisions, outcomes, lost
}

func TestThousandRequestsDuringUpgradesAllSucceedAndAreRecordedOnce(t *testing.T) {
	a := start(t, "policy: admit-all\n", "--max-num-seqs", "64", "--speed", "4")
	a.WaitReady(readyWithin)
	engine := a.Status().Pools[0].Engine.PID
	kept := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	const requests, workers = 1000, 8
	var next, done atomic.Int64
	ids := make([]string, requests)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for n := next.Add(1) - 1; n < requests; n = next.Add(1) - 1 {
				client := kept
				if n%3 == 0 {
					client = fresh
				}
				id, err := call(client, a.Gate, int(n), n%2 == 0)
				if err != nil {
					t.Errorf("request %d: %v", n, err)
				}
				ids[n] = id
				done.Add(1)
			}
		})
	}
	pids := []int{a.PID()}
	for i := range 3 {
		due := int64((i + 1) * requests / 5)
		eventually(t, fmt.Sprintf("%d requests done", due), func() bool { return done.Load() >= due })
		text, code, pid := upgrade(t, a)
		if code != 0 {
			t.Fatalf("upgrade %d: exit code %d\n%s", i+1, code, text)
		}
		pids = append(pids, pid)
	}
	wg.Wait()
	kept.CloseIdleConnections()
	last := pids[len(pids)-1]
	for _, pid := range pids[:len(pids)-1] {
		eventually(t, fmt.Sprintf("gone: the admitd of pid %d", pid), func() bool { return pid == a.PID() && a.Exited() || pid != a.PID() && !alive(pid) })
	}
	if a.ExitCode != 0 {
		t.Errorf("the first admitd ended with exit code %d", a.ExitCode)
	}
	st := a.Status()
	if l := st.Pools[0].Ledger; l.InFlight != 0 || l.ReservedTokens != 0 || l.Admitted != l.Settled {
		t.Errorf("the books of the last admitd: %+v", l)
	}
	if now := st.Pools[0].Engine.PID; now != engine {
		t.Errorf("engine pid %d -> %d", engine, now)
	}
	end(t, last)
	decisions, outcomes, lost := books(t, a.State)
	for n, id := range ids {
		if decisions[id] != 1 || outcomes[id] != 1 {
			t.Errorf("request %d, %s: %d decisions, %d outcomes", n, id, decisions[id], outcomes[id])
		}
	}
	if len(decisions) != requests || len(outcomes) != requests || lost > 0 {
		t.Errorf("%d decisions, %d outcomes, %d of them not whole", len(decisions), len(outcomes), lost)
	}
	if alive(engine) {
		t.Error("the engine outlived the stop")
	}
}

// A long stream that began before two upgrades ends whole, and the admitd that serves then knows of it all the time.
func TestStreamThatOutlivesUpgradesIsCountedAndShownByTheNewAdmitd(t *testing.T) {
	a := start(t, "policy: admit-all\n", "--speed", "0.2")
	a.WaitReady(readyWithin)
	resp, err := harness.Open(harness.Timeout(t, 2*time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "A long story", 150, true))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	rest := harness.FirstData(t, resp)
	id := resp.Header.Get("X-Admitd-Request-Id")
	for range 2 {
		if text, code, _ := upgrade(t, a); code != 0 {
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
	eventually(t, "settled", func() bool { return a.Status().Pools[0].Ledger.InFlight == 0 })
	var item api.DecisionItem
	a.Get("/api/v1/decisions/"+id, &item)
	if item.Outcome == nil || item.Outcome.Ending != "whole" || item.Outcome.CompletionTokens == nil || *item.Outcome.CompletionTokens != 150 {
		t.Errorf("what the new admitd shows of the stream: %+v", item.Outcome)
	}
	if l := a.Status().Pools[0].Ledger; l.ReservedTokens != 0 || l.Admitted != l.Settled {
		t.Errorf("the books: %+v", l)
	}
}

func TestUpgradeThatFailsChangesNothing(t *testing.T) {
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
		{"a program that ends", "upgrade: {timeout: 3s}\n", script("exit 3"), "exit status 3"},
		{"a program that hangs", "upgrade: {timeout: 3s}\n", script("exec cat <&3 >/dev/null"), "was not ready within 3s"},
		{"a file that is no program", "upgrade: {timeout: 3s}\n", file, "is not a program"},
		{"a broken configuration", "upgrade: {timeot: 3s}\n", "", "timeot"},
	} {
		write(c.config)
		var args []string
		if c.binary != "" {
			args = []string{"--binary", c.binary}
		}
		text, code, _ := upgrade(t, a, args...)
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
	if alive(engine) {
		t.Error("the engine outlived the stop: the one that goes on had not taken it back")
	}
}
