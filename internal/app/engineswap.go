package app

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"admitd/supervisor"
)

// supervised is one supervision of the engine.
type supervised interface {
	engine
	Release(ctx context.Context) error
	AdoptOnly(pid int)
	Adoptable(pid int) error
	Decided() <-chan struct{}
}

// swapEngine is the pool's engine over several supervisions of it: one that was left to another admitd can be taken back.
type swapEngine struct {
	another func() (supervised, error)
	now     atomic.Pointer[supervised]

	mu sync.Mutex
	// back carries the next supervision after a release.
	back chan supervised
	left bool
	// was is the engine's state when it was left.
	was supervisor.Status
}

func newSwapEngine(another func() (supervised, error)) (*swapEngine, error) {
	first, err := another()
	if err != nil {
		return nil, err
	}
	e := &swapEngine{another: another, back: make(chan supervised, 1)}
	e.now.Store(&first)
	return e, nil
}

func (e *swapEngine) current() supervised { return *e.now.Load() }

// Run supervises until ctx ends. While the engine is left to another admitd it waits, and touches nothing in the end.
func (e *swapEngine) Run(ctx context.Context) error {
	err := e.current().Run(ctx)
	for err == nil && e.released() {
		select {
		case <-ctx.Done():
			return nil
		case next := <-e.back:
			err = e.takeBack(ctx, next)
		}
	}
	return err
}

// takeBackWithin bounds how long callers go by what the engine was when it was left, where the next supervision does not find
// out sooner whether it still is.
const takeBackWithin = 10 * time.Second

// takeBack runs the next supervision, and shows it once that has found the engine as it was left, or has found that it is not.
func (e *swapEngine) takeBack(ctx context.Context, next supervised) error {
	ended := make(chan error, 1)
	go func() { ended <- next.Run(ctx) }()
	late := time.NewTimer(takeBackWithin)
	defer late.Stop()
	for known := false; !known; {
		changed := next.Changed()
		if next.Status().State == supervisor.Ready {
			break
		}
		select {
		case <-changed:
		case <-next.Decided():
			known = true
		case <-late.C:
			known = true
		case err := <-ended:
			ended <- err
			known = true
		}
	}
	e.now.Store(&next)
	e.mu.Lock()
	e.left = false
	e.mu.Unlock()
	return <-ended
}

func (e *swapEngine) released() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.left
}

// Release leaves the engine to another admitd.
func (e *swapEngine) Release(ctx context.Context) error {
	st := e.Status()
	e.mu.Lock()
	e.left, e.was = true, st
	e.mu.Unlock()
	err := e.current().Release(ctx)
	if err != nil {
		e.mu.Lock()
		e.left = false
		e.mu.Unlock()
	}
	return err
}

// Resume takes the engine back after Release, by adopting it as any later admitd would.
func (e *swapEngine) Resume() error {
	next, err := e.another()
	if err != nil {
		return err
	}
	select {
	case e.back <- next:
	default:
	}
	return nil
}

// AdoptOnly and Adoptable are the supervision's of now.
func (e *swapEngine) AdoptOnly(pid int) { e.current().AdoptOnly(pid) }

// Adoptable is for a successor that has not begun to supervise.
func (e *swapEngine) Adoptable(pid int) error { return e.current().Adoptable(pid) }

// Status implements supervisor.Engine, as do Changed, Transport, Logs and Pids. An engine that was taken back has been ready
// since before, so that nothing starts afresh because of it.
func (e *swapEngine) Status() supervisor.Status {
	st := e.current().Status()
	e.mu.Lock()
	defer e.mu.Unlock()
	if was := e.was; st.State == supervisor.Ready && was.State == supervisor.Ready && st.PID == was.PID && st.Started.Equal(was.Started) {
		st.ReadyAt = was.ReadyAt
	}
	return st
}

// Changed implements supervisor.Engine.
func (e *swapEngine) Changed() <-chan struct{} { return e.current().Changed() }

// Transport implements supervisor.Engine.
func (e *swapEngine) Transport() http.RoundTripper { return e.current().Transport() }

// Logs implements supervisor.Engine.
func (e *swapEngine) Logs(after uint64, limit int) ([]supervisor.Line, bool) {
	return e.current().Logs(after, limit)
}

// Pids implements supervisor.Engine.
func (e *swapEngine) Pids() []int { return e.current().Pids() }

// Restart asks the supervision of now for a new engine process.
func (e *swapEngine) Restart(ctx context.Context) error { return e.current().Restart(ctx) }

// Hurry cuts the waits of a stop short.
func (e *swapEngine) Hurry() { e.current().Hurry() }

// RoundTrip implements http.RoundTripper for those who keep a transport.
func (e *swapEngine) RoundTrip(r *http.Request) (*http.Response, error) {
	return e.current().Transport().RoundTrip(r)
}
