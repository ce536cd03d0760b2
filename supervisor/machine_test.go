package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// world is a fake engine for the state machine in virtual time: it launches fake children and answers probes.
type world struct {
	t *testing.T
	*Supervisor
	stop  context.CancelFunc
	ended chan error

	mu sync.Mutex
	// events is what was done to the engine, in order.
	events   []string
	children []*fakeChild
	// loadTime is from launch to the first good answer; negative means never.
	loadTime time.Duration
	// output is printed at launch; dies makes each child end at once.
	output string
	dies   string
	// deaf children do not hear SIGTERM; undead ones do not even end when killed.
	deaf, undead bool
	healthErr    error
	probing      int
	overlap      bool
	running      int
	tokens       float64
}

type fakeChild struct {
	w    *world
	id   ident
	born time.Time
	end  chan struct{}
	text string
	once sync.Once
}

func (c *fakeChild) leader() ident         { return c.id }
func (c *fakeChild) done() <-chan struct{} { return c.end }
func (c *fakeChild) exit() string          { return c.text }
func (c *fakeChild) release()              {}

func (c *fakeChild) die(text string) {
	c.once.Do(func() {
		c.text = text
		close(c.end)
	})
}

func (c *fakeChild) terminate() error {
	c.w.log("SIGTERM")
	if !c.w.deaf {
		c.die("exit status 0")
	}
	return nil
}

func (c *fakeChild) members() []ident {
	if isDone(c) && !c.w.undead {
		return nil
	}
	return []ident{c.id}
}

func (c *fakeChild) kill(bool) {
	c.w.log("SIGKILL")
	c.die("signal: killed")
}

func (w *world) log(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.events); n == 0 || w.events[n-1] != event {
		w.events = append(w.events, event)
	}
}

func (w *world) launchFake(s *spec, out *output) (child, error) {
	w.log("launch")
	w.mu.Lock()
	c := &fakeChild{w: w, id: ident{PID: 1<<30 + len(w.children), Start: 1}, born: time.Now(), end: make(chan struct{})}
	w.children = append(w.children, c)
	w.mu.Unlock()
	fmt.Fprint(out, w.output)
	if w.dies != "" {
		c.die(w.dies)
	}
	return c, nil
}

// child is the latest one.
func (w *world) child() *fakeChild {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.children[len(w.children)-1]
}

// RoundTrip answers probes.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.probing++
	w.overlap = w.overlap || w.probing > 1
	healthErr := w.healthErr
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.probing--
		w.mu.Unlock()
	}()
	time.Sleep(10 * time.Millisecond) // virtual
	c := w.child()
	if isDone(c) || w.loadTime < 0 || time.Since(c.born) < w.loadTime {
		return nil, errors.New("connection refused")
	}
	body := "{}"
	switch req.URL.Path {
	case "/health":
		if healthErr != nil {
			return nil, healthErr
		}
	case "/v1/models":
		body = `{"data":[{"id":"other"},{"id":"m","max_model_len":4096}]}`
	case "/v1/completions":
		w.log("token")
		body = `{"choices":[{"text":"2"}]}`
	case "/version":
		body = `{"version":"1.2.3"}`
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// set changes the world under its lock.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// begin starts a supervisor in this world; inside a synctest bubble.
func (w *world) begin(t *testing.T, o Options) {
	t.Helper()
	w.t = t
	o.Kind, o.Model, o.ServedNames, o.Binary = VLLM, "org/model", []string{"m"}, "/bin/sh"
	if o.StateDir == "" {
		o.StateDir = t.TempDir()
	}
	o.Random = func() float64 { return 0 }
	o.BeforeStop = func(context.Context) { w.log("drain") }
	o.OnReady = func() { w.log("ready") }
	o.Progress = func() (int, float64, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.running, w.tokens, true
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.launch, s.probeVia = w.launchFake, w
	w.Supervisor, w.ended = s, make(chan error, 1)
	var ctx context.Context
	ctx, w.stop = context.WithCancel(t.Context())
	go func() { w.ended <- s.Run(ctx) }()
}

// after lets virtual time pass and everything settle, and returns the status.
func (w *world) after(d time.Duration) Status {
	w.t.Helper()
	time.Sleep(d) // virtual
	synctest.Wait()
	return w.Status()
}

// finish stops the supervisor and compares what was done to the engine.
func (w *world) finish(want ...string) {
	w.t.Helper()
	w.stop()
	if err := <-w.ended; err != nil {
		w.t.Errorf("Run = %v", err)
	}
	w.happened(want...)
	if w.overlap {
		w.t.Error("two probes were on their way at once")
	}
}

func (w *world) happened(want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := cmp.Diff(want, w.events); d != "" {
		w.t.Errorf("what was done to the engine differs (-want +got):\n%s", d)
	}
}

func (w *world) want(st Status, state State, text string) {
	w.t.Helper()
	if st.State != state || !strings.Contains(st.Text, text) {
		w.t.Errorf("state %s (%q); want %s (%q)", st.State, st.Text, state, text)
	}
}

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
			if got := st.RestartAt.Sub(time.Now()).Round(100 * time.Millisecond); got != pause*time.Second {
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
		w.dies = ""
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
		w.loadTime = -1
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
		if err := <-w.ended; !errors.As(err, &wedged) || !strings.Contains(err.Error(), fmt.Sprint(w.child().id.PID)) {
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
		w.undead = false
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
		w.begin(t, Options{BeforeLaunch: func(ctx context.Context) error {
			err := free
			free = nil
			return err
		}})
		st := w.after(time.Millisecond)
		w.want(st, Failed, "71 GiB are in use")
		if st.LastExit.Hint == "" || st.GaveUp {
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
