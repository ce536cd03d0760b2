package nvml

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// worker is the one goroutine that calls the library. Its owner (Monitor.Run) gives it one job at a time and
// stops waiting when a call takes too long; the job then ends at its next step.
type worker struct {
	jobs    chan func(*session) *Reading
	results chan *Reading
	// busy is true from start until the result was taken. Owner's.
	busy      bool
	call      atomic.Pointer[call]
	abandoned atomic.Bool
}

// call is the call in progress.
type call struct {
	op    string
	since time.Time
}

// startWorker starts the goroutine; it ends when jobs is closed and no call hangs.
func startWorker(lib Library) *worker {
	w := &worker{jobs: make(chan func(*session) *Reading), results: make(chan *Reading, 1)}
	s := newSession(lib, w.step)
	go func() {
		for job := range w.jobs {
			w.results <- run(s, job)
		}
	}()
	return w
}

// run does one job. A panic inside the binding is a failed poll, after which the library is initialised anew.
func run(s *session, job func(*session) *Reading) (r *Reading) {
	defer func() {
		if p := recover(); p != nil {
			now := time.Now()
			s.later(now)
			r = &Reading{At: now, State: Unavailable, Why: fmt.Sprintf("the NVML binding panicked: %v", p), Driver: s.driver}
		}
	}()
	return job(s)
}

// step notes the call that is about to be made. It reports false once the job was given up.
func (w *worker) step(op string) bool {
	w.call.Store(&call{op: op, since: time.Now()})
	return !w.abandoned.Load()
}

// start gives the worker a job. It must be idle.
func (w *worker) start(job func(*session) *Reading) {
	w.abandoned.Store(false)
	w.call.Store(&call{op: "the poll", since: time.Now()})
	w.busy = true
	w.jobs <- job
}

// current is the call in progress, or the last one.
func (w *worker) current() call { return *w.call.Load() }

// returned takes the result of a job that was given up, if there is one by now, and drops it.
func (w *worker) returned() bool {
	select {
	case <-w.results:
		w.busy = false
		return true
	default:
		return false
	}
}

// wait returns the job's result; ok is false when ctx ended or one call took longer than its limit.
func (w *worker) wait(ctx context.Context, limit func(op string) time.Duration) (r *Reading, ok bool) {
	for {
		c := w.current()
		left := limit(c.op) - time.Since(c.since)
		if left <= 0 {
			return nil, false
		}
		alarm := time.NewTimer(left)
		select {
		case r = <-w.results:
			alarm.Stop()
			w.busy = false
			return r, true
		case <-ctx.Done():
			alarm.Stop()
			return nil, false
		case <-alarm.C:
		}
	}
}
