package supervisor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStallIsShownAndThenRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.begin(t, Options{StallAfter: time.Minute, StallRestartAfter: 2 * time.Minute})
		w.after(time.Second)
		w.set(func() { w.running, w.tokens = 3, 100 })
		w.want(w.after(58*time.Second), Ready, "")
		w.want(w.after(10*time.Second), Stalled, "3 requests are in hand and no token counter moved")
		// It moves on: ready again.
		w.set(func() { w.tokens++ })
		w.want(w.after(10*time.Second), Ready, "ready again")
		w.want(w.after(70*time.Second), Stalled, "")
		// The callers leave. That proves nothing, so a token is asked for.
		w.set(func() { w.running = 0 })
		w.want(w.after(20*time.Second), Ready, "ready again")
		w.happened("launch", "token", "ready", "token", "ready")
		// It stands still for good.
		w.set(func() { w.running = 1 })
		w.want(w.after(70*time.Second), Stalled, "")
		w.set(func() { w.events = nil })
		st := w.after(3 * time.Minute)
		w.happened("drain", "SIGTERM", "launch", "token", "ready")
		if st.Restarts != 1 || st.LastExit.Wanted || !strings.Contains(st.LastExit.Cause, "no token counter moved") {
			t.Errorf("status %+v, exit %+v; want a restart for the stall", st, st.LastExit)
		}
		w.stop()
		<-w.ended
	})
}

func TestHealthFailuresWithTokensAreNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.begin(t, Options{})
		w.after(time.Second)
		w.set(func() { w.healthErr, w.running = errors.New("timeout"), 1 })
		for range 60 {
			w.set(func() { w.tokens++ })
			w.want(w.after(time.Second), Ready, "")
		}
		w.set(func() { w.running = 0 })
		w.want(w.after(20*time.Second), Ready, "") // the failures began before the last token
		w.set(func() { w.healthErr = nil })
		w.after(10 * time.Second)
		w.set(func() { w.healthErr = errors.New("timeout") })
		w.want(w.after(20*time.Second), Stalled, "health probes in a row failed and no token came out")
		w.stop()
		<-w.ended
	})
}

func TestEngineThatReportsItsDeathIsLookedAtAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.begin(t, Options{HealthInterval: time.Hour})
		w.after(time.Second)
		const words = "EngineDeadError: EngineCore encountered an issue. See stack trace\n"
		// The words alone may be a caller's.
		fmt.Fprint(w.out, words)
		w.want(w.after(time.Second), Ready, "")
		w.set(func() { w.healthErr = errors.New("/health answers 503") })
		fmt.Fprint(w.out, words)
		w.want(w.after(time.Second), Stalled, "reports its own death")
		w.stop()
		<-w.ended
	})
}

// freeze is what SIGSTOP does to an engine: probes hang and the counters cannot be read.
func (w *world) freeze(frozen bool) { w.set(func() { w.hung, w.blind = frozen, frozen }) }

func TestFrozenEngineWithWorkIsStalledAfterStallAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.begin(t, Options{StallAfter: 5 * time.Second, StallRestartAfter: 5 * time.Second})
		w.after(time.Second)
		w.set(func() { w.running, w.tokens = 2, 100 })
		for range 20 {
			w.set(func() { w.tokens++ })
			w.want(w.after(time.Second), Ready, "")
		}
		w.freeze(true)
		w.want(w.after(4*time.Second), Ready, "")
		w.want(w.after(4*time.Second), Stalled, "2 requests are in hand and neither its metrics nor its health answered")
		// It stays frozen and is restarted.
		if st := w.after(5 * time.Second); st.Restarts != 1 || !strings.Contains(st.LastExit.Cause, "neither its metrics nor its health") {
			t.Errorf("status %+v; want a restart for the stall", st)
		}
		w.stop()
		<-w.ended
	})
}

func TestThawedEngineIsReadyAtOnceAndNotKilled(t *testing.T) {
	for name, thaw := range map[string]func(*world){
		"its tokens grow":       func(w *world) { w.running, w.tokens = 2, 101 },
		"its callers have gone": func(w *world) { w.running = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{}
				w.begin(t, Options{StallAfter: 5 * time.Second, StallRestartAfter: 5 * time.Second})
				w.after(time.Second)
				w.set(func() { w.running, w.tokens = 2, 100 })
				w.after(2 * time.Second)
				w.freeze(true)
				st := w.after(time.Second)
				for st.State != Stalled {
					if st = w.after(250 * time.Millisecond); time.Since(st.ReadyAt) > time.Minute {
						t.Fatal("never stalled")
					}
				}
				w.after(4 * time.Second) // one before the deadline
				w.freeze(false)
				w.set(func() { thaw(w) })
				w.want(w.after(1500*time.Millisecond), Ready, "ready again")
				w.set(func() { w.running = 0 })
				if st := w.after(time.Minute); st.State != Ready || st.Restarts != 0 {
					t.Errorf("status %+v; want the same engine", st)
				}
				w.stop()
				<-w.ended
			})
		})
	}
}

func TestStalledSGLangIsNotAskedMoreOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.begin(t, Options{Kind: Sim, StallAfter: 5 * time.Second, StallRestartAfter: time.Hour, Args: []string{"--dialect", "sglang"}})
		w.after(3 * time.Second)
		w.set(func() { w.running, w.tokens, w.healthAsked = 1, 100, 0 })
		w.want(w.after(time.Minute), Stalled, "")
		w.set(func() {
			if w.healthAsked > 6 {
				t.Errorf("its health, which is a real request, was asked for %d times in a minute", w.healthAsked)
			}
		})
		w.stop()
		<-w.ended
	})
}
