package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"admitd/supervisor"
)

// releasable is a supervision that can be ended without its engine.
type releasable struct {
	*fakeEngine
	freed chan struct{}
	// refuse is why it cannot be released now.
	refuse error
	// stopped is set when its engine was stopped.
	stopped bool
	// decided is closed when it is known what becomes of the engine that it finds.
	decided chan struct{}
}

func newReleasable() *releasable {
	return &releasable{fakeEngine: newFakeEngine(), freed: make(chan struct{}), decided: make(chan struct{})}
}

// Run implements engine.
func (r *releasable) Run(ctx context.Context) error {
	select {
	case <-r.freed:
	case <-ctx.Done():
		r.stopped = true
	}
	return nil
}

// Release implements supervised.
func (r *releasable) Release(context.Context) error {
	if r.refuse == nil {
		close(r.freed)
	}
	return r.refuse
}

// AdoptOnly implements supervised.
func (r *releasable) AdoptOnly(int) {}

// Adoptable implements supervised.
func (r *releasable) Adoptable(int) error { return nil }

// Decided implements supervised.
func (r *releasable) Decided() <-chan struct{} { return r.decided }

func (r *releasable) isReady(pid int, at time.Time) {
	r.set(func(st *supervisor.Status) {
		st.State, st.PID, st.ReadyAt, st.Text = supervisor.Ready, pid, at, "ready"
	})
}

type swapRig struct {
	*swapEngine
	made   []*releasable
	cancel context.CancelFunc
	ended  chan error
}

func newSwapRig(t *testing.T) *swapRig {
	r := &swapRig{ended: make(chan error, 1)}
	var err error
	if r.swapEngine, err = newSwapEngine(func() (supervised, error) {
		next := newReleasable()
		r.made = append(r.made, next)
		return next, nil
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { r.ended <- r.Run(ctx) }()
	synctest.Wait()
	return r
}

func TestEngineLeftToAnotherAdmitdIsNotStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSwapRig(t)
		r.made[0].isReady(7, time.Now())
		if err := r.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if st := r.Status(); st.State != supervisor.Ready {
			t.Errorf("open requests see it as %s", st.State)
		}
		r.cancel()
		if err := <-r.ended; err != nil || r.made[0].stopped {
			t.Errorf("%v, stopped %v", err, r.made[0].stopped)
		}
	})
}

func TestEngineTakenBackHasNeverBeenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSwapRig(t)
		since := time.Now()
		r.made[0].isReady(7, since)
		for n := 1; n <= 2; n++ { // a failed upgrade, and another one
			if err := r.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := r.Resume(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if st := r.Status(); st.State != supervisor.Ready {
				t.Errorf("%d: %s while the next supervision looks at it", n, st.State)
			}
			pass(time.Second)
			r.made[n].isReady(7, time.Now())
			synctest.Wait()
			if st := r.Status(); st.State != supervisor.Ready || !st.ReadyAt.Equal(since) || r.current() != supervised(r.made[n]) {
				t.Errorf("%d: %+v", n, st)
			}
		}
		r.cancel()
		if err := <-r.ended; err != nil || !r.made[2].stopped {
			t.Errorf("%v: the one that has it stops it, stopped %v", err, r.made[2].stopped)
		}
	})
}

func TestEngineThatCannotBeTakenBackAsItWasIsShownAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSwapRig(t)
		r.made[0].isReady(7, time.Now())
		if err := r.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Resume(); err != nil {
			t.Fatal(err)
		}
		r.made[1].become(supervisor.Loading, "launched anew")
		close(r.made[1].decided)
		synctest.Wait()
		if st := r.Status(); st.State != supervisor.Loading {
			t.Errorf("%s", st.State)
		}
		r.made[1].isReady(8, time.Now())
		if st := r.Status(); st.PID != 8 || !st.ReadyAt.Equal(time.Now()) {
			t.Errorf("another process is taken for the old one: %+v", st)
		}
		r.cancel()
		<-r.ended
	})
}

func TestEngineThatIsBeingStoppedStaysWithItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSwapRig(t)
		r.made[0].refuse = supervisor.ErrStopping
		if err := r.Release(t.Context()); !errors.Is(err, supervisor.ErrStopping) {
			t.Error(err)
		}
		r.cancel()
		if err := <-r.ended; err != nil || !r.made[0].stopped {
			t.Errorf("%v, stopped %v", err, r.made[0].stopped)
		}
	})
}
