package sim

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"time"

	"admitd/sim/model"
)

// errClosed means that the simulated engine has been shut down.
var errClosed = errors.New("the simulated engine is closed")

// driver runs a model in real time: one goroutine owns the model, the recorder and the timer; everybody else sends
// it functions to run.
type driver struct {
	engine *model.Engine
	rec    *recorder
	faults *faultSet
	speed  float64
	cmds   chan func()
	quit   chan struct{}
	done   chan struct{}
	once   sync.Once

	// Owned by the goroutine. The model's time is base + (real - since)*speed; it stands still while stalled.
	base    time.Duration
	since   time.Time
	stalled bool
	calls   map[model.ID]*call
	nextID  model.ID
	dead    *apiError
	// aborted is what frozen-after-abort still shows.
	aborted *model.Stats
}

// call is one sequence in flight as its handler sees it. Its memory does not grow with its output.
type call struct {
	id  model.ID
	rid string
	// stuck requests never reach the model.
	stuck bool
	wake  chan struct{}

	mu    sync.Mutex
	state callState
}

// callState is a copy of how far a call has come.
type callState struct {
	tokens, cached int
	reason         model.Reason
	err            *apiError
}

func (c *call) load() callState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// update changes the state and wakes the handler; it never blocks.
func (c *call) update(f func(*callState)) {
	c.mu.Lock()
	f(&c.state)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func newDriver(e *model.Engine, f *faultSet, speed float64) *driver {
	d := &driver{
		engine: e, rec: newRecorder(e.Config().MaxModelLen), faults: f, speed: speed, since: time.Now(),
		cmds: make(chan func()), quit: make(chan struct{}), done: make(chan struct{}), calls: make(map[model.ID]*call),
	}
	go d.run()
	return d
}

func (d *driver) close() {
	d.once.Do(func() { close(d.quit) })
	<-d.done
}

// do runs f on the owning goroutine and waits for it.
func (d *driver) do(f func()) error {
	ready := make(chan struct{})
	select {
	case d.cmds <- func() { f(); close(ready) }:
		<-ready
		return nil
	case <-d.quit:
		return errClosed
	}
}

// now is the model's time.
func (d *driver) now() time.Duration {
	if d.stalled {
		return d.base
	}
	return d.base + time.Duration(float64(time.Since(d.since))*d.speed)
}

func (d *driver) run() {
	defer close(d.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		d.step()
		var tick <-chan time.Time
		if wait, ok := d.wait(); ok {
			timer.Reset(wait)
			tick = timer.C
		}
		select {
		case f := <-d.cmds:
			d.step()
			f()
		case <-tick:
		case <-d.quit:
			d.fail(&apiError{Status: 500, Type: "InternalServerError", Message: engineDeadText})
			return
		}
	}
}

// wait is how long the goroutine may sleep; ok is false when only a command can bring work.
func (d *driver) wait() (time.Duration, bool) {
	wait, ok := time.Duration(0), false
	if at, next := d.engine.Next(); next && !d.stalled && d.dead == nil {
		// Rounded up, so that the time has come when the timer fires.
		wait, ok = time.Duration(math.Ceil(float64(at-d.now())/d.speed)), true
	}
	// A fault that is due at a time must begin without a request to notice it.
	if due, waiting := d.faults.nextDue(); waiting && (!ok || due < wait) {
		wait, ok = due, true
	}
	return max(wait, 0), ok
}

func (d *driver) step() {
	if stall := d.faults.stalls(); stall != d.stalled {
		now := d.now()
		d.stalled, d.base, d.since = stall, now, time.Now()
	}
	if d.stalled || d.dead != nil {
		return
	}
	events := d.engine.Advance(d.now())
	prefill := false
	for i, ev := range events {
		// A last token and its ending become known together.
		last := ev.Kind == model.Token && i+1 < len(events) && events[i+1].Kind == model.Finished && events[i+1].ID == ev.ID
		d.deliver(ev, last)
		prefill = prefill || ev.Kind == model.Scheduled
	}
	if len(events) > 0 {
		if !d.faults.on(FaultStaleGauges) || (d.now()-d.rec.refreshed).Seconds()/d.speed >= idleRefresh.Seconds() {
			d.rec.refresh(d.stats(), prefill, d.now(), d.speed)
		}
	}
}

func (d *driver) deliver(ev model.Event, last bool) {
	d.rec.event(ev, d.speed)
	c := d.calls[ev.ID]
	if c == nil {
		return
	}
	switch ev.Kind {
	case model.Scheduled:
		if !ev.Again {
			c.update(func(s *callState) { s.cached = ev.Cached })
		}
	case model.Token:
		d.aborted = nil
		if !last {
			c.update(func(s *callState) { s.tokens = ev.Tokens })
		}
	case model.Finished:
		delete(d.calls, ev.ID)
		c.update(func(s *callState) { s.tokens, s.reason = ev.Tokens, ev.Reason })
	case model.Preempted:
	}
}

// submit hands over the sequences of one HTTP request, all or none. The calls wake the one channel.
func (d *driver) submit(reqs []model.Request, rid string, p params) ([]*call, error) {
	wake := make(chan struct{}, 1)
	var out []*call
	var failed error
	err := d.do(func() {
		if d.dead != nil {
			failed = d.dead
			return
		}
		now := d.now()
		for _, r := range reqs {
			d.nextID++
			r.ID = d.nextID
			stuck := d.faults.on(FaultStuckQueue)
			if failed = d.enqueue(now, r, stuck); failed != nil {
				d.drop(out)
				return
			}
			c := &call{id: r.ID, rid: rid, wake: wake, stuck: stuck}
			d.calls[r.ID] = c
			d.rec.submitted(r, p, now)
			out = append(out, c)
		}
	})
	return out, errors.Join(err, failed)
}

// enqueue hands one request to the model, unless it is never to see it.
func (d *driver) enqueue(now time.Duration, r model.Request, stuck bool) error {
	if stuck {
		return nil
	}
	return d.engine.Submit(now, r)
}

// abort ends every call whose rid begins with the prefix, as if the engine had ended it.
func (d *driver) abort(prefix string) {
	for id, c := range d.calls {
		if !strings.HasPrefix(c.rid, prefix) {
			continue
		}
		d.engine.Cancel(d.now(), id)
		d.rec.cancelled(id)
		delete(d.calls, id)
		c.update(func(s *callState) { s.reason = model.Abort })
	}
}

// real is how long a span of simulated time takes.
func (d *driver) real(t time.Duration) time.Duration { return time.Duration(float64(t) / d.speed) }

// cancel ends calls whose client left.
func (d *driver) cancel(calls []*call) {
	// A closed driver has nothing left to cancel.
	_ = d.do(func() { d.drop(calls) })
}

func (d *driver) drop(calls []*call) {
	defer d.noteAbort(d.stats())
	for _, c := range calls {
		if d.engine.Cancel(d.now(), c.id) {
			d.rec.cancelled(c.id)
		}
		delete(d.calls, c.id)
	}
}

// fail ends every call with an error, as the death of the engine's core does.
func (d *driver) fail(e *apiError) {
	d.dead = e
	for id, c := range d.calls {
		d.engine.Cancel(d.now(), id)
		d.rec.cancelled(id)
		delete(d.calls, id)
		c.update(func(s *callState) { s.err = e })
	}
}

// idle waits until nothing is in flight or the context ends.
func (d *driver) idle(ctx context.Context) error {
	for {
		n := 0
		if err := d.do(func() { n = len(d.calls) }); err != nil || n == 0 {
			return err
		}
		t := time.NewTimer(5 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}
