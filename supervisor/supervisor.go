package supervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNotRunning is returned by Restart when Run has not begun or has ended.
var ErrNotRunning = errors.New("the supervisor is not running")

// ErrExternal is returned by Restart for an engine that is not ours.
var ErrExternal = errors.New("an external engine is run by somebody else and cannot be restarted from here")

// WedgedError says that killed processes of the engine did not disappear, or that its GPU memory did not come back after them: the
// kernel holds them, most often in the GPU driver, and only a person can help.
type WedgedError struct {
	// Processes lists them, for people; Memory says what is missing where none is left.
	Processes, Memory string
}

// Error implements error.
func (e *WedgedError) Error() string {
	if e.Memory != "" {
		return "the engine has gone and its GPU memory has not come back: " + e.Memory + "; the GPU may need a reset or the machine a reboot"
	}
	return "processes of the engine do not end although they were killed: " + e.Processes + "; the GPU may need a reset or the machine a reboot"
}

// Supervisor runs one engine. Run owns its state; every other method may be called from any goroutine.
type Supervisor struct {
	o   Options
	key string
	out *output
	rt  *transport
	// launch, probeVia and now are the ways to the world, replaced in tests.
	launch   func(*spec, *output) (child, error)
	probeVia http.RoundTripper
	now      func() time.Time

	requests chan request
	// releases carries calls of Release; released is set when the engine was left to another supervisor.
	releases chan chan error
	released atomic.Bool
	running  atomic.Bool
	ended    chan struct{}
	hurry    chan struct{}
	hurried  sync.Once

	status atomic.Pointer[Status]
	pids   atomic.Pointer[[]int]
	// expect is how long the last successful start took, in ns; 0 when not known.
	expect atomic.Int64
	// costly is true when the health probe of an external engine is known to be a real request.
	costly  atomic.Bool
	mu      sync.Mutex
	changed chan struct{}

	// only is the first process of the one engine that may be adopted, 0 when there is no such bound (AdoptOnly).
	only int
	// decided is closed when it is known whether an engine is adopted.
	decided chan struct{}

	// The fields below belong to Run's goroutine.
	history  history
	crashes  crashes
	launches int
	// me is what the engine record calls us, saved the record that we wrote last; unsaved is set while it cannot be written.
	me      owner
	saved   record
	unsaved bool
}

// request asks the owner for a restart.
type request struct{ reply chan error }

var _ Engine = (*Supervisor)(nil)

// New checks o and prepares a supervisor. Nothing is launched before Run.
func New(o Options) (*Supervisor, error) {
	o = o.defaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Supervisor{
		o: o, key: rand.Text(), now: time.Now, launch: startProcess, rt: newTransport(),
		requests: make(chan request), releases: make(chan chan error), ended: make(chan struct{}), hurry: make(chan struct{}), changed: make(chan struct{}),
		decided: make(chan struct{}),
	}
	s.me.ID = rand.Text()
	if self, ok := readProc("/proc", os.Getpid()); ok {
		s.me.Process = self.ident
	}
	s.out = newOutput(func() time.Time { return s.now() })
	s.probeVia = s.rt
	s.history = readHistory(o.StateDir)
	past := s.history.Starts[historyKey(o.Kind, o.Model)]
	s.expect.Store(int64(past.Total))
	st := &Status{Kind: o.Kind, Simulated: o.Kind == Sim, State: Stopped, Text: "not started", Since: s.now()}
	if len(o.ServedNames) > 0 {
		st.Model = o.ServedNames[0]
	}
	s.status.Store(st)
	return s, nil
}

// Restart stops the engine as Run's end would and launches it again. It returns when the new process was launched, not
// when it is ready. It forgets earlier crashes, so it also revives an engine that was given up.
func (s *Supervisor) Restart(ctx context.Context) error {
	if s.o.Kind == External {
		return ErrExternal
	}
	if !s.running.Load() {
		return ErrNotRunning
	}
	r := request{reply: make(chan error, 1)}
	select {
	case s.requests <- r:
	case <-s.ended:
		return ErrNotRunning
	case <-ctx.Done():
		return fmt.Errorf("restart the engine: %w", ctx.Err())
	}
	select {
	case err := <-r.reply:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the engine is being restarted: %w", ctx.Err())
	}
}

// Hurry makes the stop that is going on, and any later one, skip the drain and the grace period.
func (s *Supervisor) Hurry() { s.hurried.Do(func() { close(s.hurry) }) }

// Status implements Engine.
func (s *Supervisor) Status() Status {
	st := *s.status.Load()
	st.ExpectedReadyIn = forecast(&st, time.Duration(s.expect.Load()), s.now())
	return st
}

// forecast is how long it will take until the engine is ready, 0 when that is not known: also when it takes longer than
// the last time.
func forecast(st *Status, expect time.Duration, now time.Time) time.Duration {
	if expect <= 0 {
		return 0
	}
	switch {
	case st.State == Starting || st.State == Loading:
		return max(expect-now.Sub(st.Started), 0)
	case st.State == Failed && !st.RestartAt.IsZero():
		return max(st.RestartAt.Sub(now), 0) + expect
	}
	return 0
}

// Changed implements Engine.
func (s *Supervisor) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Transport implements Engine.
func (s *Supervisor) Transport() http.RoundTripper { return s.rt }

// Logs implements Engine. Lines of the supervisor's own begin with "admitd: ". An engine told to log its requests prints
// prompts, and then they are here.
func (s *Supervisor) Logs(after uint64, limit int) ([]Line, bool) { return s.out.logs(after, limit) }

// Pids implements Engine. The list is refreshed about every two seconds.
func (s *Supervisor) Pids() []int {
	p := s.pids.Load()
	if p == nil {
		return nil
	}
	return append([]int(nil), *p...)
}

// update changes the published status. Only Run's goroutine calls it. A slice or pointer inside must be replaced, never
// written to, because readers hold the old ones.
func (s *Supervisor) update(change func(*Status)) {
	old := s.status.Load()
	st := *old
	change(&st)
	if st.State != old.State {
		st.Since = s.now()
		if st.Trouble == old.Trouble {
			st.Trouble = nil
		}
	}
	if reflect.DeepEqual(&st, old) {
		return
	}
	s.status.Store(&st)
	s.mu.Lock()
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	if st.State != old.State {
		s.o.Logger.Info("engine state", "state", string(st.State), "engine", string(st.Kind), "model", st.Model, "pid", st.PID, "text", st.Text)
	}
}

func (s *Supervisor) publishPids(ids []ident) {
	pids := make([]int, len(ids))
	for i, id := range ids {
		pids[i] = id.PID
	}
	s.pids.Store(&pids)
}
