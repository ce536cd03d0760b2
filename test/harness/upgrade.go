package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"admitd/gate/journal"
	"admitd/ui/api"
)

// Upgrade runs `admitd upgrade` against a running admitd and returns its output, exit code and the pid that serves then.
func Upgrade(t testing.TB, binary string, a *Admitd, args ...string) (text string, code, pid int) {
	t.Helper()
	args = append([]string{"upgrade", "-o", "json", "--admin", a.Admin, "--state-dir", a.State}, args...)
	cmd := exec.CommandContext(Timeout(t, 2*time.Minute), binary, args...)
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
	EndLater(t, step.PID)
	return progress.String(), 0, step.PID
}

// Alive reports whether there is such a process.
func Alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// EndLater ends a successor, which is nobody's child here, with the test.
func EndLater(t testing.TB, pid int) {
	t.Cleanup(func() { End(t, pid) })
}

// End stops a program that is nobody's child here, and waits for its end.
func End(t testing.TB, pid int) {
	t.Helper()
	if Alive(pid) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	Eventually(t, fmt.Sprintf("ended: pid %d", pid), func() bool { return !Alive(pid) })
}

// Eventually polls for a condition, also when the program that was started first has ended.
func Eventually(t testing.TB, what string, cond func() bool) {
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

// Call makes one small request, the n-th, and says what is wrong with its answer.
func Call(client *http.Client, url, model string, n int, stream bool) (id string, err error) {
	body, err := json.Marshal(Chat(model, fmt.Sprintf("Question %d", n), 8, stream))
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

// Books counts decisions and outcomes of each request in the record on disk.
func Books(t testing.TB, state string) (decisions, outcomes map[string]int, lost int) {
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

// UpgradeUnderLoad sends requests, streamed and not, on kept connections and on fresh ones, while admitd is upgraded several
// times, and proves that each succeeded, that each is recorded once, and that the engine is still the same.
func UpgradeUnderLoad(t testing.TB, binary string, a *Admitd, model string, requests, upgrades int) {
	t.Helper()
	engine := a.Status().Pools[0].Engine.PID
	kept := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var next, done atomic.Int64
	ids := make([]string, requests)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := int(next.Add(1) - 1); n < requests; n = int(next.Add(1) - 1) {
				client := kept
				if n%3 == 0 {
					client = fresh
				}
				id, err := Call(client, a.Gate, model, n, n%2 == 0)
				if err != nil {
					t.Errorf("request %d: %v", n, err)
				}
				ids[n] = id
				done.Add(1)
			}
		})
	}
	pids := []int{a.PID()}
	for i := range upgrades {
		due := int64((i + 1) * requests / (upgrades + 2))
		Eventually(t, fmt.Sprintf("at %d requests", due), func() bool { return done.Load() >= due })
		text, code, pid := Upgrade(t, binary, a)
		if code != 0 {
			t.Fatalf("upgrade %d: exit code %d\n%s", i+1, code, text)
		}
		pids = append(pids, pid)
	}
	wg.Wait()
	kept.CloseIdleConnections()
	Eventually(t, "gone: the first admitd", a.Exited)
	for _, pid := range pids[1 : len(pids)-1] {
		Eventually(t, fmt.Sprintf("gone: the admitd of pid %d", pid), func() bool { return !Alive(pid) })
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
	End(t, pids[len(pids)-1])
	checkBooks(t, a.State, ids)
	if Alive(engine) {
		t.Error("the engine outlived the stop")
	}
}

func checkBooks(t testing.TB, state string, ids []string) {
	t.Helper()
	decisions, outcomes, lost := Books(t, state)
	for n, id := range ids {
		if decisions[id] != 1 || outcomes[id] != 1 {
			t.Errorf("request %d, %s: %d decisions, %d outcomes", n, id, decisions[id], outcomes[id])
		}
	}
	if len(decisions) != len(ids) || len(outcomes) != len(ids) || lost > 0 {
		t.Errorf("%d requests: %d decisions, %d outcomes, %d of them not whole", len(ids), len(decisions), len(outcomes), lost)
	}
}
