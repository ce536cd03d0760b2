package e2e

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"admitd/supervisor"
	"admitd/test/harness"
)

// world is one state folder over the lives of several admitds.
type world struct {
	t     *testing.T
	state string
	args  []string
	// mark is in the environment of every engine launched from the state folder.
	mark string
}

func newWorld(t *testing.T, engineArgs ...string) *world {
	w := &world{t: t, state: t.TempDir(), args: engineArgs}
	t.Cleanup(func() { harness.EndEngines(t, w.mark) })
	return w
}

// start runs one more admitd.
func (w *world) start() *harness.Admitd {
	w.t.Helper()
	a := harness.Start(w.t, harness.Options{
		Binary: binary, Args: []string{"--engine", "sim", "--model", model}, EngineArgs: w.args, StateDir: w.state,
	})
	if w.mark == "" {
		a.Until(readyWithin, "launching", func() bool {
			r, ok := harness.ReadRecord(w.state)
			w.mark = r.Mark
			return ok && r.Mark != ""
		})
	}
	return a
}

// loading waits for a phase of the start, or a later one.
func loading(a *harness.Admitd, phase string) {
	a.Until(readyWithin, "in phase "+phase, func() bool {
		e := a.Status().Pools[0].Engine
		return e.Phase == phase || e.State == supervisor.Ready ||
			slices.ContainsFunc(e.Phases, func(p supervisor.PhaseTime) bool { return p.Name == phase })
	})
}

// stream opens a long answer and reads its beginning.
func stream(t *testing.T, a *harness.Admitd) *bufio.Reader {
	resp, err := harness.Open(context.Background(), a.Gate+"/v1/chat/completions", harness.Chat(model, "Count.", 4000, true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return harness.FirstData(t, resp)
}

// states bring an admitd into each state of the machine. kept says that the engine is worth keeping in it.
func states() []struct {
	name    string
	kept    bool
	reach   func(*testing.T, *world, *harness.Admitd)
	stopped bool
} {
	type step = func(*testing.T, *world, *harness.Admitd)
	phase := func(name string) step {
		return func(_ *testing.T, _ *world, a *harness.Admitd) { loading(a, name) }
	}
	ready := func(_ *testing.T, _ *world, a *harness.Admitd) { a.WaitReady(readyWithin) }
	return []struct {
		name    string
		kept    bool
		reach   step
		stopped bool
	}{
		{name: "starting", reach: func(*testing.T, *world, *harness.Admitd) {}},
		{name: "launched", kept: true, reach: func(_ *testing.T, w *world, a *harness.Admitd) {
			a.Until(readyWithin, "recorded", func() bool {
				r, _ := harness.ReadRecord(w.state)
				return r.Leader.PID > 0
			})
		}},
		{name: "engine_init", kept: true, reach: phase("engine_init")},
		{name: "weights", kept: true, reach: phase("weights")},
		{name: "compile", kept: true, reach: phase("compile")},
		{name: "kv_cache", kept: true, reach: phase("kv_cache")},
		{name: "graphs", kept: true, reach: phase("graphs")},
		{name: "http", kept: true, reach: phase("http")},
		{name: "ready", kept: true, reach: ready},
		{name: "draining", kept: true, stopped: true, reach: func(t *testing.T, w *world, a *harness.Admitd) {
			ready(t, w, a)
			stream(t, a)
			a.Signal(syscall.SIGTERM)
			a.Until(readyWithin, "draining", func() bool { return a.Status().Pools[0].Engine.State == supervisor.Draining })
		}},
		{name: "stopping", stopped: true, reach: func(t *testing.T, w *world, a *harness.Admitd) {
			ready(t, w, a)
			r, _ := harness.ReadRecord(w.state)
			// One that does not hear SIGTERM at once.
			if err := syscall.Kill(r.Leader.PID, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			a.Signal(syscall.SIGTERM)
			a.Until(readyWithin, "stopping", func() bool {
				r, _ := harness.ReadRecord(w.state)
				return r.Stopping
			})
		}},
	}
}

// Whatever is killed, and whenever: in the end there is one engine that serves, or none and a word about it.
func TestKillMatrix(t *testing.T) {
	for _, s := range states() {
		for _, victim := range []string{"engine", "admitd", "both"} {
			t.Run(s.name+"/"+victim, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, "--load-time", "500ms", "--speed", "0.2", "--median-output", endless)
				a := w.start()
				s.reach(t, w, a)
				if victim != "engine" {
					a.Kill()
				}
				before, _ := harness.ReadRecord(w.state)
				if victim != "admitd" && before.Leader.PID > 0 {
					if err := syscall.Kill(before.Leader.PID, syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
				}
				switch {
				case victim != "engine":
					a = w.start()
				case s.stopped:
					// It was on its way out anyway.
					if code := a.WaitExit(readyWithin); code != 143 {
						t.Errorf("exit code %d after SIGTERM; want 143", code)
					}
					return
				}
				kept := victim == "admitd" && s.kept
				if victim == "engine" && before.Leader.PID > 0 {
					// It takes a moment until its death is noticed.
					a.Until(readyWithin, "rid of the old engine", func() bool { return a.Status().Pools[0].Engine.PID != before.Leader.PID })
				}
				served(t, w, a)
				now := a.Status().Pools[0].Engine
				if same := now.PID == before.Leader.PID; before.Leader.PID > 0 && same != kept && s.name != "starting" {
					t.Errorf("engine %d after %d; the same one: %v, want %v", now.PID, before.Leader.PID, same, kept)
				}
				if kept && (!now.Adopted || now.Restarts != 0) {
					t.Errorf("text %q, %d restarts; want it adopted", now.Text, now.Restarts)
				}
				a.Stop()
				if a.ExitCode != 143 {
					t.Errorf("exit code %d after SIGTERM; want 143", a.ExitCode)
				}
			})
		}
	}
}

// served waits until an admitd serves again, with one engine and no other.
func served(t *testing.T, w *world, a *harness.Admitd) {
	t.Helper()
	a.WaitReady(readyWithin)
	a.Until(readyWithin, "serving with one engine", func() bool {
		st := a.Status()
		return st.Ready && slices.Equal(harness.Engines(w.mark), []int{st.Pools[0].Engine.PID})
	})
	ans := harness.Post(harness.Timeout(t, time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "Hello", 4, false))
	if ans.Status != http.StatusOK {
		t.Errorf("a call afterwards: %d %v %s", ans.Status, ans.Err, ans.Body)
	}
}

// A dead admitd takes its callers' streams with it; nothing can save those. The engine goes on.
func TestKilledAdmitdUnderLoadLeavesItsEngineToTheNext(t *testing.T) {
	t.Parallel()
	// An answer lasts for minutes.
	w := newWorld(t, "--load-time", "500ms", "--speed", "0.05", "--median-output", endless)
	a := w.start()
	a.WaitReady(readyWithin)
	pid := a.Status().Pools[0].Engine.PID
	var streams [20]*bufio.Reader
	for i := range streams {
		streams[i] = stream(t, a)
	}
	a.Kill()
	var wg sync.WaitGroup
	for i, r := range streams {
		wg.Go(func() {
			b, err := io.ReadAll(r)
			if err == nil || strings.Contains(string(b), "[DONE]") {
				t.Errorf("stream %d looks whole: %v", i, err)
			}
		})
	}
	wg.Wait()
	b := w.start()
	served(t, w, b)
	st := b.Status().Pools[0]
	if st.Engine.PID != pid || !st.Engine.Adopted {
		t.Errorf("engine %d, %q; want %d adopted", st.Engine.PID, st.Engine.Text, pid)
	}
	settled(t, b)
	// What the callers of the dead one had in hand at the engine is gone as well.
	b.Until(readyWithin, "idle at the engine", func() bool {
		for _, s := range b.Status().Pools[0].Signals {
			if s.Name == "running" && s.Value != nil {
				return *s.Value == 0
			}
		}
		return false
	})
}

func TestEngineOfAnotherConfigurationIsReplacedAfterACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--load-time", "100ms")
	a := w.start()
	a.WaitReady(readyWithin)
	pid := a.Status().Pools[0].Engine.PID
	a.Kill()
	w.args = append(w.args, "--max-num-seqs", "3")
	b := w.start()
	served(t, w, b)
	if now := b.Status().Pools[0].Engine; now.PID == pid || now.Slots != 3 {
		t.Errorf("engine %d with %d slots after %d; want a new one with 3", now.PID, now.Slots, pid)
	}
	if !strings.Contains(b.Output(), "other arguments than are configured now") {
		t.Errorf("nothing says why the engine was ended")
	}
}
