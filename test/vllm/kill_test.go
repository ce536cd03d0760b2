//go:build vllm

package vllm

import (
	"context"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"admitd/test/harness"
)

// TestKilledEngineComesBack kills each process of a real vLLM in turn, with a stream open: the stream ends honestly,
// the gate says why it refuses, nothing of the old engine is left, and a new one serves, all under the same admitd.
func TestKilledEngineComesBack(t *testing.T) {
	a := start(t, "", "--max-num-seqs", strconv.Itoa(slots))
	a.WaitReady(readyWithin)
	for _, victim := range []string{"leader", "VLLM::EngineCore", "VLLM::Worker"} {
		t.Run("kill -9 "+victim, func(t *testing.T) { killOne(t, a, victim) })
	}
}

func killOne(t *testing.T, a *harness.Admitd, victim string) {
	before := a.Status().Pools[0].Engine
	old := processGroup(t, before.PID)
	resp, err := harness.Open(context.Background(), a.Gate+"/v1/chat/completions", withoutEnd(harness.Chat(model, "Count to one thousand.", 1800, true)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	rest := harness.FirstData(t, resp)
	if err := syscall.Kill(pick(t, old, before.PID, victim), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(rest)
	if end := string(b); !strings.Contains(end, `"error"`) || !strings.HasSuffix(end, "data: [DONE]\n\n") {
		t.Errorf("the open stream did not end with an error and a terminal mark: …%q", end[max(0, len(end)-400):])
	}
	sawReason := ""
	a.Until(60*time.Second, "refusing while the engine is gone", func() bool {
		ans := harness.Post(harness.Timeout(t, 30*time.Second), a.Gate+"/v1/chat/completions", harness.Chat(model, "Hello", 4, false))
		sawReason = ans.Header.Get("X-Admitd-Reason")
		return ans.Status == http.StatusServiceUnavailable && ans.Header.Get("Retry-After") != ""
	})
	if sawReason != "engine_down" && sawReason != "engine_loading" && sawReason != "engine_stalled" {
		t.Errorf("refused with %q", sawReason)
	}
	a.Until(readyWithin, "ready with another engine", func() bool {
		st := a.Status()
		return st.Ready && st.Pools[0].Engine.PID != before.PID
	})
	after := a.Status().Pools[0].Engine
	if after.PID == before.PID || after.Restarts != before.Restarts+1 {
		t.Errorf("pid %d -> %d, restarts %d -> %d", before.PID, after.PID, before.Restarts, after.Restarts)
	}
	for pid, name := range old {
		if alive(pid, name) {
			t.Errorf("process %d (%s) of the old engine is still there", pid, name)
		}
	}
	ans := harness.Post(harness.Timeout(t, time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "Hello", 4, false))
	if ans.Status != http.StatusOK {
		t.Errorf("after the restart: %d %s", ans.Status, ans.Body)
	}
	settled(t, a)
}

func withoutEnd(body map[string]any) map[string]any {
	body["ignore_eos"] = true
	return body
}

// processGroup lists pid and command of every process in the engine's group.
func processGroup(t *testing.T, leader int) map[int]string {
	t.Helper()
	out := map[int]string{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if group, err := syscall.Getpgid(pid); err == nil && group == leader {
			out[pid] = command(pid)
		}
	}
	return out
}

func command(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return strings.ReplaceAll(string(b), "\x00", " ")
}

func alive(pid int, was string) bool {
	now := command(pid)
	return now != "" && now == was
}

func pick(t *testing.T, group map[int]string, leader int, victim string) int {
	t.Helper()
	if victim == "leader" {
		return leader
	}
	for pid, name := range group {
		if strings.HasPrefix(name, victim) {
			return pid
		}
	}
	t.Fatalf("no %s among %v", victim, group)
	return 0
}
