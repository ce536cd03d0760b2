//go:build vllm

package vllm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"admitd/supervisor"
	"admitd/test/harness"
)

// adoptWithin is far more than an adoption takes and far less than a start of a real engine.
const adoptWithin = 20 * time.Second

// TestRealEngineOutlivesAdmitd kills admitd under load, then admitd and the engine, then admitd while the engine loads.
func TestRealEngineOutlivesAdmitd(t *testing.T) {
	state := t.TempDir()
	begin := func() *harness.Admitd {
		return startIn(t, state, "policy: admit-all\n", "--max-num-seqs", "32")
	}
	a := begin()
	a.WaitReady(readyWithin)
	rec, _ := harness.ReadRecord(state)
	t.Cleanup(func() { harness.EndEngines(t, rec.Mark) })
	t.Run("admitd dies with 20 open streams", func(t *testing.T) { a = dieUnderLoad(t, a, begin) })
	t.Run("admitd and the engine's leader die", func(t *testing.T) {
		before := a.Status().Pools[0].Engine
		old := processGroup(t, before.PID)
		a.Kill()
		if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		a = begin()
		a.Until(readyWithin, "loading another engine", func() bool {
			r, _ := harness.ReadRecord(state)
			return r.Leader.PID > 0 && r.Leader.PID != before.PID
		})
		for pid, name := range old {
			if alive(pid, name) {
				t.Errorf("process %d (%s) of the old engine is still there", pid, name)
			}
		}
	})
	t.Run("admitd dies while the engine loads", func(t *testing.T) {
		a.Until(readyWithin, "loading the weights", func() bool {
			e := a.Status().Pools[0].Engine
			return e.Phase == "weights" || e.State == supervisor.Ready
		})
		pid := a.Status().Pools[0].Engine.PID
		a.Kill()
		a = begin()
		a.WaitReady(readyWithin)
		e := a.Status().Pools[0].Engine
		if e.PID != pid || !strings.Contains(e.Text, "adopted") || e.KVCapacityTokens == 0 {
			t.Errorf("engine %d, %q, capacity %d; want %d adopted with all its facts", e.PID, e.Text, e.KVCapacityTokens, pid)
		}
		answers(t, a)
	})
	a.Stop()
}

func dieUnderLoad(t *testing.T, a *harness.Admitd, begin func() *harness.Admitd) *harness.Admitd {
	before := a.Status().Pools[0].Engine
	group := processGroup(t, before.PID)
	var streams [20]*bufio.Reader
	for i := range streams {
		body := withoutEnd(harness.Chat(model, fmt.Sprintf("Tell story number %d.", i), 1500, true))
		resp, err := harness.Open(context.Background(), a.Gate+"/v1/chat/completions", body)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		streams[i] = harness.FirstData(t, resp)
	}
	a.Kill()
	began := time.Now()
	b := begin()
	b.WaitReady(adoptWithin)
	t.Logf("ready %s after the new admitd was started", time.Since(began).Round(time.Millisecond))
	var wg sync.WaitGroup
	for i, r := range streams {
		wg.Go(func() {
			if rest, err := io.ReadAll(r); err == nil || strings.Contains(string(rest), "[DONE]") {
				t.Errorf("stream %d looks whole: %v", i, err)
			}
		})
	}
	wg.Wait()
	now := b.Status().Pools[0].Engine
	if now.PID != before.PID || !strings.Contains(now.Text, "adopted") || now.Restarts != 0 {
		t.Errorf("engine %d, %q, %d restarts; want %d adopted", now.PID, now.Text, now.Restarts, before.PID)
	}
	if now.KVCapacityTokens != before.KVCapacityTokens || now.Slots != before.Slots || now.MaxModelLen != before.MaxModelLen || now.Version != before.Version {
		t.Errorf("facts %+v\nwere %+v", now, before)
	}
	for pid, name := range group {
		if !alive(pid, name) {
			t.Errorf("process %d (%s) of the engine has gone", pid, name)
		}
	}
	for pid, name := range processGroup(t, now.PID) {
		if group[pid] == "" {
			t.Errorf("process %d (%s) is new", pid, name)
		}
	}
	answers(t, b)
	b.Until(30*time.Second, "rid of the dead one's requests", func() bool { return engineRunning(b) == 0 })
	settled(t, b)
	return b
}

func answers(t *testing.T, a *harness.Admitd) {
	t.Helper()
	for i := range 5 {
		ans := harness.Post(harness.Timeout(t, time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "Hello "+strconv.Itoa(i), 4, i%2 == 0))
		if ans.Err != nil || ans.Status != http.StatusOK {
			t.Errorf("call %d: %d %v %s", i, ans.Status, ans.Err, ans.Body)
		}
	}
}
