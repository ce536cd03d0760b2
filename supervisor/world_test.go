package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	// blind makes the token counter unknown; hung makes probes wait until they are given up or it is false again.
	blind, hung bool
	healthAsked int
	// hollow makes everything but /health wait until it is given up, barren the token requests.
	hollow, barren bool
	tokensAsked    int
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
func (c *fakeChild) hear()                 {}
func (c *fakeChild) release()              {}

func (c *fakeChild) die(text string) {
	c.once.Do(func() {
		c.text = text
		close(c.end)
	})
}

func (c *fakeChild) terminate() error {
	c.w.log("SIGTERM")
	var deaf bool
	c.w.set(func() { deaf = c.w.deaf })
	if !deaf {
		c.die("exit status 0")
	}
	return nil
}

func (c *fakeChild) members() []ident {
	var undead bool
	c.w.set(func() { undead = c.w.undead })
	if isDone(c) && !undead {
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
	dies, output := w.dies, w.output
	c := &fakeChild{w: w, id: ident{PID: 1<<30 + len(w.children), Start: 1}, born: time.Now(), end: make(chan struct{})}
	w.children = append(w.children, c)
	w.mu.Unlock()
	fmt.Fprint(out, output)
	if dies != "" {
		c.die(dies)
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
	healthErr, loadTime := w.healthErr, w.loadTime
	if req.URL.Path == "/v1/completions" {
		w.tokensAsked++
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.probing--
		w.mu.Unlock()
	}()
	<-time.After(10 * time.Millisecond) // virtual
	for w.waits(req.URL.Path) {
		select {
		case <-req.Context().Done():
			return nil, req.Context().Err()
		case <-time.After(100 * time.Millisecond): // virtual
		}
	}
	c := w.child()
	if isDone(c) || loadTime < 0 || time.Since(c.born) < loadTime {
		return nil, errors.New("connection refused")
	}
	body := "{}"
	switch req.URL.Path {
	case "/health":
		w.set(func() { w.healthAsked++ })
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

// waits reports whether a request waits for ever.
func (w *world) waits(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hung || w.hollow && path != "/health" || w.barren && path == "/v1/completions"
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
	if o.Kind == "" {
		o.Kind = VLLM
	}
	o.Model, o.ServedNames, o.Binary = "org/model", []string{"m"}, "/bin/sh"
	if o.StateDir == "" {
		o.StateDir = t.TempDir()
	}
	o.Random = func() float64 { return 0 }
	if o.BeforeStop == nil {
		o.BeforeStop = func(context.Context) { w.log("drain") }
	}
	o.OnReady = func() { w.log("ready") }
	o.Progress = func() (int, float64, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.running, w.tokens, !w.blind
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
	<-time.After(d) // virtual
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
