package supervisor

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNotRunning is returned by Restart when Run has not begun or has ended.
var ErrNotRunning = errors.New("the supervisor is not running")

// ErrExternal is returned by Restart for an engine that is not ours.
var ErrExternal = errors.New("an external engine is run by somebody else and cannot be restarted from here")

// Supervisor runs one engine. Run owns its state; every other method may be called from any goroutine.
type Supervisor struct {
	o Options

	status  atomic.Pointer[Status]
	mu      sync.Mutex
	changed chan struct{}
}

var _ Engine = (*Supervisor)(nil)

// New checks o and prepares a supervisor. Nothing is launched before Run.
func New(o Options) (*Supervisor, error) {
	o = o.defaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Supervisor{o: o, changed: make(chan struct{})}
	s.status.Store(&Status{Kind: o.Kind, Simulated: o.Kind == Sim, State: Stopped, Text: "not started", Since: time.Now()})
	return s, nil
}

// Run launches the engine and keeps it running until ctx ends; then it drains, stops and reaps it. It returns nil when
// nothing of the engine is left, and an error that names the processes when something is. An engine that cannot be
// kept running leaves Run waiting with Status.GaveUp set, because Restart can still mend that.
func (s *Supervisor) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Restart stops the engine as Run's end would and launches it again. It returns when the new process was launched, not
// when it is ready. It forgets earlier crashes, so it also revives an engine that was given up.
func (s *Supervisor) Restart(ctx context.Context) error { return ErrNotRunning }

// Hurry makes the stop that is going on, or the next one, skip the drain and the grace period.
func (s *Supervisor) Hurry() {}

// Status implements Engine.
func (s *Supervisor) Status() Status { return *s.status.Load() }

// Changed implements Engine.
func (s *Supervisor) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Transport implements Engine.
func (s *Supervisor) Transport() http.RoundTripper { return http.DefaultTransport }

// Logs implements Engine.
func (s *Supervisor) Logs(after uint64, limit int) ([]Line, bool) { return nil, false }

// Pids implements Engine.
func (s *Supervisor) Pids() []int { return nil }
