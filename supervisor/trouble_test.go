package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// troubled fails unless the status carries a trouble of that code, with an action due so long after its beginning; 0 means none.
func troubled(t *testing.T, st Status, code TroubleCode, due time.Duration) {
	t.Helper()
	tr := st.Trouble
	if tr == nil || tr.Code != code || tr.Next == "" || tr.Hint == "" {
		t.Fatalf("state %s (%s), trouble %+v; want %s with what happens next and a hint", st.State, st.Text, tr, code)
	}
	if due == 0 && !tr.ActAt.IsZero() || due != 0 && tr.ActAt.Sub(tr.Since) != due {
		t.Errorf("%s acts at %s, begun at %s; want %s between", code, tr.ActAt, tr.Since, due)
	}
}

func TestLeaderThatAnswersHealthAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.begin(t, Options{StallRestartAfter: 2 * time.Minute})
		w.after(time.Second)
		w.set(func() { w.hollow = true })
		// Three looks at the list, then two tokens asked in vain: nothing is in hand, and nobody is kept waiting meanwhile.
		w.want(w.after(70*time.Second), Ready, "")
		st := w.after(70 * time.Second)
		w.want(st, Stalled, "it answers /health and nothing else")
		troubled(t, st, Hollow, 2*time.Minute)
		w.set(func() { w.hollow = false })
		if st := w.after(12 * time.Second); st.State != Ready || st.Trouble != nil {
			t.Errorf("state %s, trouble %+v; want ready without any", st.State, st.Trouble)
		}
		// For good: it is restarted at the deadline.
		w.set(func() { w.hollow, w.events = true, nil })
		w.after(140 * time.Second)
		w.after(130 * time.Second)
		w.happened("drain", "SIGTERM", "launch")
		w.stop()
		<-w.ended
		if w.overlap {
			t.Error("two probes were on their way at once")
		}
	})
}

func TestWorkBehindALeaderThatAnswersHealthAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.begin(t, Options{})
		w.after(time.Second)
		w.set(func() { w.hollow, w.blind, w.running, w.tokensAsked = true, true, 2, 0 })
		w.want(w.after(50*time.Second), Ready, "")
		w.set(func() {
			if w.tokensAsked > 0 {
				t.Errorf("%d tokens were asked for beside work", w.tokensAsked)
			}
		})
		st := w.after(40 * time.Second)
		w.want(st, Stalled, "2 requests are in hand")
		troubled(t, st, Hollow, 2*time.Minute)
		w.stop()
		<-w.ended
	})
}

func TestFrozenEngineWithoutWorkIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.begin(t, Options{CanaryAfter: 2 * time.Minute})
		w.after(time.Second)
		w.set(func() { w.barren = true })
		w.want(w.after(2*time.Minute), Ready, "")
		st := w.after(time.Minute)
		w.want(st, Stalled, "it has nothing to do and brought out no token when asked 2 times")
		troubled(t, st, Frozen, 2*time.Minute)
		w.set(func() { w.barren = false })
		w.want(w.after(12*time.Second), Ready, "")
		w.stop()
		<-w.ended
	})
}

func TestIdleEngineIsAskedForATokenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.begin(t, Options{CanaryAfter: 5 * time.Minute})
		w.after(time.Second)
		w.set(func() { w.tokensAsked = 0 })
		w.want(w.after(time.Hour), Ready, "")
		w.set(func() {
			if w.tokensAsked < 10 || w.tokensAsked > 12 {
				t.Errorf("%d tokens in an hour; want one in five minutes", w.tokensAsked)
			}
			w.tokensAsked, w.running = 0, 1
		})
		for range 3600 {
			w.set(func() { w.tokens++ })
			w.after(time.Second)
		}
		w.set(func() {
			if w.tokensAsked > 0 {
				t.Errorf("%d tokens were asked for beside work", w.tokensAsked)
			}
		})
		w.stop()
		<-w.ended
	})
}

func TestCanaryMakesRoomForLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.begin(t, Options{CanaryAfter: 2 * time.Minute, Idle: func() (idle bool) {
			w.set(func() { idle = w.running == 0 })
			return idle
		}})
		w.after(time.Second)
		w.set(func() { w.barren = true })
		w.after(2*time.Minute + 6*time.Second) // a canary is on its way
		w.set(func() { w.running = 1 })
		w.after(3 * time.Second)
		w.set(func() {
			if w.probing > 0 {
				t.Error("the canary stays although there is load")
			}
		})
		// What was cut short proves nothing: the load does, and goes on.
		w.set(func() { w.barren = false })
		for range 60 {
			w.set(func() { w.tokens++ })
			w.want(w.after(time.Second), Ready, "")
		}
		w.stop()
		<-w.ended
	})
}

func TestNoCanaryWhereNoneIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.begin(t, Options{CanaryAfter: -1})
		w.after(time.Second)
		w.set(func() { w.barren, w.tokensAsked = true, 0 })
		w.want(w.after(2*time.Hour), Ready, "")
		if w.tokensAsked > 0 {
			t.Errorf("%d tokens were asked for", w.tokensAsked)
		}
		w.stop()
		<-w.ended
	})
}

func TestTroublesOfStallsHaveTheirOwnDeadlines(t *testing.T) {
	tests := []struct {
		name string
		make func(*world)
		want TroubleCode
		due  time.Duration
	}{
		{"no counter moves", func(w *world) { w.running, w.tokens = 2, 100 }, NoProgress, 2 * time.Minute},
		{"nothing answers", func(w *world) { w.running, w.blind, w.hung = 2, true, true }, Mute, 2 * time.Minute},
		{"health fails", func(w *world) { w.healthErr = errors.New("/health answers 503") }, Unhealthy, 2 * time.Minute},
		{"it says that it is dead", func(w *world) {
			w.healthErr = errors.New("/health answers 503")
			_, _ = w.out.Write([]byte("EngineDeadError: EngineCore encountered an issue. See stack trace\n"))
		}, CoreDead, deadGrace},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{}
				w.begin(t, Options{StallAfter: 30 * time.Second})
				w.after(time.Second)
				w.set(func() { tt.make(w) })
				st := w.after(time.Second)
				for range 100 {
					if st.State == Stalled {
						break
					}
					st = w.after(time.Second)
				}
				troubled(t, st, tt.want, tt.due)
				// At the deadline, not much later, it is restarted.
				w.set(func() { w.events = nil })
				w.after(time.Until(st.Trouble.ActAt) + 18*time.Second)
				w.set(func() {
					if len(w.events) < 2 || w.events[1] != "SIGTERM" {
						t.Errorf("events %v; want a restart", w.events)
					}
				})
				w.stop()
				<-w.ended
			})
		})
	}
}

func TestHollowExternalEngineIsToldAndLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{version: "/version"}
		r.attach(t, Options{})
		r.after(time.Second, Ready, "")
		r.set(func() { r.status = map[string]int{"/v1/models": 500, "/v1/completions": 500} })
		st := r.after(time.Minute, Stalled, "it answers /health and nothing else")
		troubled(t, st, Hollow, 0)
		if !strings.Contains(st.Trouble.Next, "not admitd's to restart") {
			t.Errorf("next is %q", st.Trouble.Next)
		}
		r.after(time.Hour, Stalled, "")
		r.set(func() { r.status = nil })
		if st := r.after(5*time.Second, Ready, ""); st.Trouble != nil {
			t.Errorf("trouble %+v; want none", st.Trouble)
		}
	})
}

func TestFullExternalEngineIsNotFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{version: "/version"}
		r.attach(t, Options{CanaryAfter: time.Minute})
		r.after(time.Second, Ready, "")
		r.set(func() { r.status = map[string]int{"/v1/completions": 503} })
		r.after(time.Hour, Ready, "")
	})
}

func TestLaunchThatWaitsForMemorySaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.begin(t, Options{BeforeLaunch: func(ctx context.Context, tell func(string)) error {
			tell("GPU 0 has 1.0 GiB free")
			<-time.After(10 * time.Second) // virtual
			return nil
		}})
		st := w.after(time.Second)
		w.want(st, Starting, "waiting for GPU memory: GPU 0 has 1.0 GiB free")
		troubled(t, st, MemoryShort, time.Minute)
		if st := w.after(10 * time.Second); st.State != Ready || st.Trouble != nil {
			t.Errorf("state %s, trouble %+v; want ready", st.State, st.Trouble)
		}
		w.stop()
		<-w.ended
	})
}

// memoryHook is an AfterStop that finds memory held until it is freed.
type memoryHook struct {
	w    *world
	held bool
}

func (m *memoryHook) afterStop(ctx context.Context, tell func(string)) error {
	m.w.log("memory?")
	held := func() (held bool) { m.w.set(func() { held = m.held }); return held }
	if !held() {
		return nil
	}
	tell("GPU 0 has 30.0 GiB less")
	<-ctx.Done()
	return &MemoryError{Text: "GPU 0 has 30.0 GiB less free than before"}
}

func TestGPUThatDoesNotGiveItsMemoryBackIsWedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		hook := &memoryHook{w: w, held: true}
		w.begin(t, Options{AfterStop: hook.afterStop})
		w.after(time.Second)
		w.child().die("exit status 0")
		st := w.after(5 * time.Second)
		w.want(st, Failed, "waiting for its GPU memory to come back: GPU 0 has 30.0 GiB less")
		troubled(t, st, MemoryHeld, 20*time.Second)
		st = w.after(20 * time.Second)
		w.want(st, Wedged, "GPU 0 has 30.0 GiB less free than before")
		troubled(t, st, MemoryHeld, 0)
		w.want(w.after(time.Hour), Wedged, "")
		if err := w.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "30.0 GiB") {
			t.Errorf("Restart = %v; want why not", err)
		}
		// It comes back, and the engine with it.
		w.set(func() { hook.held = false })
		if st := w.after(10 * time.Second); st.State != Ready || st.Trouble != nil {
			t.Errorf("state %s, trouble %+v; want ready", st.State, st.Trouble)
		}
		w.finish("launch", "token", "ready", "memory?", "launch", "token", "ready", "drain", "SIGTERM", "memory?")
	})
}

func TestStopTellsThatMemoryDidNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		hook := &memoryHook{w: w, held: true}
		w.begin(t, Options{AfterStop: hook.afterStop})
		w.after(time.Second)
		w.stop()
		var wedged *WedgedError
		if err := <-w.ended; !errors.As(err, &wedged) || !strings.Contains(err.Error(), "its GPU memory has not come back: GPU 0") {
			t.Errorf("Run = %v; want a wedge about memory", err)
		}
	})
}

func TestHurriedStopDoesNotWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		hook := &memoryHook{w: w, held: true}
		w.begin(t, Options{AfterStop: hook.afterStop})
		w.after(time.Second)
		w.stop()
		w.after(5 * time.Second)
		began := time.Now()
		w.Hurry()
		if err := <-w.ended; err != nil || time.Since(began) > time.Second {
			t.Errorf("Run = %v after %s; want a clean end at once", err, time.Since(began))
		}
	})
}

func TestProcessesThatIgnoreTheKillAreNamedBeforeTheyCountAsWedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{undead: true}
		w.begin(t, Options{})
		w.after(time.Second)
		w.child().die("exit status 0")
		st := w.after(6 * time.Second)
		w.want(st, Failed, "killed, and still there")
		troubled(t, st, Unkillable, 30*time.Second)
		st = w.after(30 * time.Second)
		w.want(st, Wedged, "do not end although they were killed")
		troubled(t, st, Unkillable, 0)
		w.set(func() { w.undead = false })
		w.want(w.after(10*time.Second), Ready, "")
		w.stop()
		<-w.ended
	})
}

func TestStuckProcessesAreDescribed(t *testing.T) {
	root := t.TempDir()
	write := func(pid, name, text string) {
		if err := os.MkdirAll(filepath.Join(root, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, pid, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stat := func(pid, comm, state string) string {
		return pid + " (" + comm + ") " + state + " 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0"
	}
	write("7", "stat", stat("7", "VLLM::EngineCor", "D"))
	write("7", "wchan", "uvm_ioctl")
	write("8", "stat", stat("8", "VLLM::Worker", "R"))
	write("8", "wchan", "0")
	got := stuckText(root, []ident{{7, 500}, {8, 500}, {9, 500}, {7, 501}})
	if want := "7 (VLLM::EngineCor, state D in uvm_ioctl), 8 (VLLM::Worker, state R), 9, 7"; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
