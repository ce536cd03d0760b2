package supervisor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestReadyNeedsHealthModelAndToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{loadTime: 40 * time.Second}
		dir := t.TempDir()
		w.begin(t, Options{StateDir: dir})
		st := w.after(20 * time.Second)
		w.want(st, Loading, "")
		if st.ExpectedReadyIn != 0 {
			t.Errorf("ready in %s is forecast without an earlier start", st.ExpectedReadyIn)
		}
		st = w.after(25 * time.Second)
		w.want(st, Ready, "ready after 40")
		if st.Model != "m" || st.MaxModelLen != 4096 || st.Version != "1.2.3" {
			t.Errorf("status %+v; want the model's facts", st)
		}
		w.finish("launch", "token", "ready", "drain", "SIGTERM")

		again := &world{loadTime: 40 * time.Second}
		again.begin(t, Options{StateDir: dir})
		st = again.after(10 * time.Second)
		if got := st.ExpectedReadyIn.Round(time.Second); got != 30*time.Second && got != 31*time.Second {
			t.Errorf("10 s into a start that took 40 s last time, ready is forecast in %s", got)
		}
		if st.Phases[0].LastTook == 0 {
			t.Error("the phase's last duration is not shown")
		}
		again.stop()
		<-again.ended
	})
}

func TestStartDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{loadTime: -1}
		w.begin(t, Options{StartTimeout: 10 * time.Minute, Restart: RestartPolicy{First: time.Minute, Jitter: -1}})
		w.want(w.after(10*time.Minute-time.Second), Loading, "")
		st := w.after(2 * time.Second)
		w.want(st, Failed, "not ready 10m0s after its launch")
		if st.LastExit.Wanted || st.RestartAt.IsZero() {
			t.Errorf("status %+v; want a crash that is retried", st)
		}
		w.happened("launch", "SIGKILL")
		w.want(w.after(time.Minute), Loading, "")
		w.finish("launch", "SIGKILL", "launch", "SIGKILL")
	})
}

func TestSilentStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{loadTime: -1}
		w.begin(t, Options{SilenceTimeout: 5 * time.Minute, Restart: RestartPolicy{First: time.Hour, Max: time.Hour}})
		w.after(4 * time.Minute)
		fmt.Fprint(w.out, "\r 10%") // anything counts, also a bar
		w.want(w.after(4*time.Minute), Loading, "")
		w.want(w.after(70*time.Second), Failed, "printed nothing for 5m0s")
		w.stop()
		<-w.ended
	})
}

func TestF36_CrashLoopBacksOffAndGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{dies: "exit status 1", output: "boom\n"}
		w.begin(t, Options{Restart: RestartPolicy{First: time.Second, Max: 4 * time.Second, Jitter: -1}})
		for _, pause := range []time.Duration{1, 2, 4, 4, 4} {
			st := w.after(time.Millisecond)
			w.want(st, Failed, "ended unasked (exit status 1)")
			if got := time.Until(st.RestartAt).Round(100 * time.Millisecond); got != pause*time.Second {
				t.Errorf("restart in %s; want %ds", got, pause)
			}
			w.after(pause * time.Second)
		}
		st := w.after(time.Hour)
		w.want(st, Failed, "not launched again (6 crashes within 10m0s; the limit is 5)")
		if !st.GaveUp || st.Restarts != 5 || len(w.children) != 6 {
			t.Errorf("gave up %v after %d restarts of %d children", st.GaveUp, st.Restarts, len(w.children))
		}
		// A person can still mend it.
		w.set(func() { w.dies = "" })
		if err := w.Restart(t.Context()); err != nil {
			t.Errorf("Restart = %v", err)
		}
		st = w.after(time.Second)
		w.want(st, Ready, "")
		if st.GaveUp {
			t.Error("still given up after a restart")
		}
		w.stop()
		<-w.ended
	})
}

func TestF36_LastingSignatureCountsOnlyBeforeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{output: "ValueError: No available memory for the cache blocks.\n"}
		w.begin(t, Options{})
		w.want(w.after(time.Second), Ready, "")
		w.child().die("exit status 1")
		st := w.after(10 * time.Second)
		if st.GaveUp || st.State != Ready || st.Restarts != 1 {
			t.Errorf("status %+v; want an engine that had worked to be launched again", st)
		}
		w.set(func() { w.loadTime = -1 })
		w.child().die("exit status 1")
		w.after(10 * time.Second)
		w.child().die("exit status 1")
		st = w.after(time.Second)
		w.want(st, Failed, "the model leaves no memory for the KV cache; it is not launched again (trying again cannot help)")
		if !st.GaveUp || st.LastExit.Hint == "" {
			t.Errorf("status %+v; want given up with a hint", st)
		}
		w.stop()
		<-w.ended
	})
}

func TestStopWaitsForTheGraceThenKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{deaf: true}
		w.begin(t, Options{StopGrace: 30 * time.Second})
		w.want(w.after(time.Second), Ready, "")
		w.stop()
		w.want(w.after(29*time.Second), Draining, "waiting for the engine to end")
		w.happened("launch", "token", "ready", "drain", "SIGTERM")
		w.want(w.after(2*time.Second), Stopped, "")
		w.finish("launch", "token", "ready", "drain", "SIGTERM", "SIGKILL")
	})
}

func TestNegativeDrainAndGraceMeanNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{deaf: true}
		w.begin(t, Options{DrainTimeout: -1, StopGrace: -1, BeforeStop: func(ctx context.Context) {
			w.log("drain")
			if ctx.Err() == nil {
				t.Error("the drain was given time")
			}
		}})
		w.want(w.after(time.Second), Ready, "")
		if args := strings.Join(w.Status().Command, " "); !strings.Contains(args, "--shutdown-timeout 0 ") {
			t.Errorf("command %q; want the engine not to drain either", args)
		}
		w.stop()
		w.want(w.after(100*time.Millisecond), Stopped, "")
		w.finish("launch", "token", "ready", "drain", "SIGTERM", "SIGKILL")
	})
}

func TestHurrySkipsTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{deaf: true}
		w.begin(t, Options{StopGrace: time.Hour})
		w.after(time.Second)
		w.stop()
		w.want(w.after(time.Second), Draining, "")
		w.Hurry()
		w.want(w.after(time.Second), Stopped, "")
		<-w.ended
	})
}

func TestWedgedProcessesAreNotLaunchedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{undead: true}
		w.begin(t, Options{ReapTimeout: 10 * time.Second})
		w.after(time.Second)
		w.child().die("exit status 1")
		st := w.after(time.Minute)
		w.want(st, Wedged, "do not end although they were killed")
		var wedged *WedgedError
		if err := w.Restart(t.Context()); !errors.As(err, &wedged) {
			t.Errorf("Restart = %v; want a refusal that names the processes", err)
		}
		w.stop()
		if err := <-w.ended; !errors.As(err, &wedged) || !strings.Contains(err.Error(), strconv.Itoa(w.child().id.PID)) {
			t.Errorf("Run = %v; want the processes that are left", err)
		}
		if len(w.children) != 1 {
			t.Errorf("%d launches; want no second one over the first", len(w.children))
		}
	})
}

func TestWedgedProcessesThatGoAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{undead: true}
		w.begin(t, Options{ReapTimeout: 10 * time.Second})
		w.after(time.Second)
		w.child().die("exit status 1")
		w.want(w.after(time.Minute), Wedged, "")
		w.set(func() { w.undead = false })
		w.want(w.after(5*time.Second), Ready, "")
		w.stop()
		<-w.ended
	})
}

func TestRestartsAtTheSameTimeAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{deaf: true}
		w.begin(t, Options{StopGrace: 10 * time.Second})
		w.after(time.Second)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if err := w.Restart(t.Context()); err != nil {
					t.Errorf("Restart = %v", err)
				}
			})
		}
		wg.Wait()
		st := w.after(time.Minute)
		w.want(st, Ready, "")
		if st.Restarts != 1 || !st.LastExit.Wanted {
			t.Errorf("%d restarts, exit %+v; want one, wanted", st.Restarts, st.LastExit)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Restart(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Restart with an ended context = %v", err)
		}
		w.stop()
		<-w.ended
	})
}

func TestLaunchWaitsForTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		free := errors.New("71 GiB are in use")
		w.begin(t, Options{BeforeLaunch: func(context.Context, func(string)) error {
			if free == nil {
				return nil
			}
			err := &MemoryError{Text: free.Error(), Hint: "end process 7"}
			free = nil
			return err
		}})
		st := w.after(time.Millisecond)
		w.want(st, Failed, "71 GiB are in use")
		if st.LastExit.Hint != "end process 7" || st.GaveUp {
			t.Errorf("status %+v; want a hint and another try", st)
		}
		w.want(w.after(5*time.Second), Ready, "")
		w.finish("launch", "token", "ready", "drain", "SIGTERM")
	})
}

func TestStopBeforeAndBetweenLaunches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{dies: "exit status 1"}
		w.begin(t, Options{Restart: RestartPolicy{First: time.Hour, Max: time.Hour}})
		w.want(w.after(time.Second), Failed, "")
		w.finish("launch")
		if st := w.Status(); st.State != Stopped || !st.RestartAt.IsZero() {
			t.Errorf("status %+v; want stopped", st)
		}
		if got, _ := filepath.Glob(filepath.Join(w.o.StateDir, recordFile)); len(got) != 0 {
			t.Errorf("the record %v is left", got)
		}
	})
}
