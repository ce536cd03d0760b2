package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
	"admitd/supervisor"
)

func (p *pool) inFlight() int { return p.admission.Dump(admission.Totals).InFlight }

func (p *pool) onSnapshot(s *signals.Snapshot) {
	p.admission.Observe(p.amended(s))
	p.watchGhosts()
	select {
	case p.scraped <- struct{}{}:
	default:
	}
}

// progress tells the supervisor whether the engine has work, which we always know, and how many tokens it has counted, which
// only a scrape tells.
func (p *pool) progress() (running int, tokens float64, known bool) {
	s := p.scraper.Snapshot()
	running = p.work(s, time.Now())
	total, counted := s.TokensTotal()
	if !counted || s.Failures > 0 {
		return running, 0, false
	}
	return running, total, true
}

// work is how many requests the engine owes something. When its own gauges say that it has nothing in hand, those that have
// begun are through: their callers have not read them yet, which is no stall. Those without a first token still count,
// since an engine that has lost a request says 0 as well.
func (p *pool) work(s *signals.Snapshot, now time.Time) (requests int) {
	run, wait := s.Get(signals.Running, now), s.Get(signals.Waiting, now)
	idle := s.Failures == 0 && fresh(run) && fresh(wait) && run.Value+wait.Value == 0
	if !idle {
		return p.inFlight()
	}
	p.admission.With(func(now time.Time, _ admission.Controlling) { requests = p.controller.State(now).Unstarted })
	return requests
}

func fresh(s signals.Signal) bool { return s.Present() && s.State != signals.Stale }

// closeGate lets nothing in from now on, and keeps why for /readyz.
func (p *pool) closeGate(code reason.Code, why string) {
	p.gateMu.Lock()
	defer p.gateMu.Unlock()
	next := closure{code, why}
	if old := p.closed.Load(); old != nil && (*old == next || p.ending && *old == stopping()) {
		return
	}
	p.closed.Store(&next)
	p.admission.Close(code, why)
	p.gateMoved()
}

// stopping is why the gate is closed for good.
func stopping() closure { return closure{reason.Draining, "admitd is stopping"} }

// gateMoved tells the progress lines, without waiting.
func (p *pool) gateMoved() {
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

// openGate lets requests in, unless the engine or admitd has begun to stop meanwhile.
func (p *pool) openGate() bool {
	p.gateMu.Lock()
	defer p.gateMu.Unlock()
	if p.ending || p.engine.Status().State != supervisor.Ready {
		return false
	}
	p.admission.Open()
	p.closed.Store(nil)
	p.gateMoved()
	p.news.Info("the gate is open")
	return true
}

// serving implements ui.PoolBackend.Serving.
func (p *pool) serving() (ok bool, why string) {
	if c := p.closed.Load(); c != nil {
		return false, c.why
	}
	return true, ""
}

// beginStop closes the gate for good.
func (p *pool) beginStop() {
	p.gateMu.Lock()
	p.ending = true
	p.gateMu.Unlock()
	p.closeGate(stopping().code, stopping().why)
}

// drain closes the gate and waits until nothing of ours is at the engine. The supervisor calls it before it stops one.
func (p *pool) drain(ctx context.Context) {
	p.closeGate(reason.Draining, "the engine is being stopped; requests in flight may finish")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.inFlight() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// watch follows the engine's state: it opens the gate when the engine is ready and the policy's needs are met, closes
// it when not, and scrapes while there is something to scrape.
func (p *pool) watch(ctx context.Context, fail func(error)) error {
	var last supervisor.Status
	var stopScraper func()
	defer func() {
		if stopScraper != nil {
			stopScraper()
		}
	}()
	open := false
	for {
		changed := p.engine.Changed()
		st := p.engine.Status()
		if st.State != last.State || st.Restarts != last.Restarts {
			p.stateEvent(st)
			if st.State == supervisor.Stalled {
				p.freeHead()
			}
		}
		p.tellQuietly(last, st)
		if st.GaveUp && !last.GaveUp && !p.served {
			// Whoever started us is waiting for an answer; later, staying and saying why serves callers better.
			fail(fmt.Errorf("%w: %s", ErrEngineFailed, st.Text))
		}
		scrape := st.State == supervisor.Ready || st.State == supervisor.Stalled || st.State == supervisor.Draining
		if stopScraper != nil && (!scrape || !st.ReadyAt.Equal(last.ReadyAt)) {
			stopScraper()
			stopScraper, open = nil, false
		}
		if scrape && stopScraper == nil {
			stopScraper = p.startScraper(ctx)
		}
		switch {
		case st.State != supervisor.Ready:
			p.shut(st)
			open = false
		case !open:
			p.life, p.recheck = p.scraper.Snapshot().Life, 0
			open = p.tryOpen(st, fail)
		default:
			open = p.believe(st, fail)
		}
		last = st
		var late <-chan time.Time
		if st.State == supervisor.Ready && !open {
			late = overdue(st)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-late:
		case <-changed:
		case <-p.scraped:
		}
	}
}

func (p *pool) startScraper(ctx context.Context) (stop func()) {
	p.scraper.Reset()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.scraper.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			p.logger.Error("scraper ended", "error", err)
		}
	}()
	return func() { cancel(); <-done }
}

// firstReadingWithin is how long an engine that says it is ready may take until a scrape of it is good. Where the policy
// needs signals, what happens then is docs/policies.md's: a start ends, a running admitd goes by its own books or stays closed.
const firstReadingWithin = 15 * time.Second

// overdue fires when the wait for a first reading is over.
func overdue(st supervisor.Status) <-chan time.Time {
	if left := time.Until(st.ReadyAt.Add(firstReadingWithin)); left > 0 {
		return time.After(left)
	}
	return nil
}

// tryOpen opens the gate once a scrape of this engine life is there and holds what the policy needs.
func (p *pool) tryOpen(st supervisor.Status, fail func(error)) bool {
	snap := p.scraper.Snapshot()
	read := !snap.At.IsZero() && !snap.At.Before(st.ReadyAt)
	late := time.Since(st.ReadyAt) >= firstReadingWithin
	switch {
	case read || late:
	case snap.Failures == 0:
		p.closeGate(reason.EngineLoading, "the engine is ready; admitd waits for a first reading of its metrics")
		return false
	case !p.policyNeedsNothing():
		p.closeGate(reason.SignalMissing, "the engine is ready, but its metrics, which the policy needs, cannot be read: "+snap.Err)
		return false
	}
	if err := p.settleNeeds(snap, read); err != nil {
		p.unmetNeeds(err, fail)
		return false // looked at again with every scrape: the policy may change
	}
	p.unmet = ""
	p.configureEngine(st, snap)
	opened := p.openGate()
	p.served = p.served || opened
	return opened
}

// settleNeeds holds the running policy against the engine that is about to serve. Where it does not fit, an earlier policy
// takes its place, or the gate's own books stand in for metrics that cannot be read.
func (p *pool) settleNeeds(snap *signals.Snapshot, read bool) error {
	fits := func(c *policy.Compiled) error { return policy.CheckNeeds(c, snap, signals.Tried) }
	if !read {
		why := snap.Err
		if why == "" {
			why = "no answer within " + firstReadingWithin.String()
		}
		fits = func(c *policy.Compiled) error { return policy.CheckUnread(c, why) }
	}
	running, _ := p.store.Current()
	err := fits(running)
	if err == nil {
		return nil
	}
	if !read && p.served && running.Spec.OnStale == policy.StaleLedger {
		p.store.event("signals_unread", "error", "the gate opens by its own books (on_stale: ledger): "+err.Error())
		return nil
	}
	if p.store.fallBack(fits, err) {
		return nil
	}
	if !p.served {
		// Only the policy of the start can end it; this one would have.
		return fits(p.store.started.compiled)
	}
	if !read {
		return fmt.Errorf("%w (on_stale is %s, not ledger, so the gate does not open without them)", err, running.Spec.OnStale)
	}
	return err
}

// unmetNeeds ends a start, or keeps the gate of a running admitd closed, and says so once.
func (p *pool) unmetNeeds(err error, fail func(error)) {
	p.closeGate(reason.SignalMissing, err.Error())
	if p.unmet == err.Error() {
		return
	}
	p.unmet = err.Error()
	if !p.served {
		fail(err)
		return
	}
	p.store.event("policy_refused", "error", "the gate stays closed: "+err.Error())
}

// policyNeedsNothing: a policy that reads no signal works on an engine whose metrics cannot be scraped.
func (p *pool) policyNeedsNothing() bool {
	c, _ := p.store.Current()
	return len(c.Policy.Needs()) == 0
}

func (p *pool) configureEngine(st supervisor.Status, snap *signals.Snapshot) {
	slots := p.config.Engine.Slots
	if slots == 0 {
		slots = st.Slots
	}
	p.checkCapacity(st.KVCapacityTokens, snap)
	p.admission.With(func(now time.Time, _ admission.Controlling) {
		p.controller.SetEngine(now, slots, st.KVCapacityTokens, st.MaxModelLen)
		p.controller.SetQueueLimit(now, queueLimit(p.config.Engine.Args, slots))
	})
}

// freeHead ends the request at the head of a stalled engine's queue: should that be what blocks it, the others need no restart.
func (p *pool) freeHead() {
	if id, ok := p.admission.EvictOldest(); ok {
		p.store.event("head_evicted", "warn", fmt.Sprintf("the engine stands still; request %s, the oldest without a first token, was taken out of its queue", id))
	}
}

// shut closes the gate with the reason that callers should hear.
func (p *pool) shut(st supervisor.Status) {
	code := reason.EngineDown
	switch st.State {
	case supervisor.Starting, supervisor.Loading:
		code = reason.EngineLoading
	case supervisor.Stalled:
		code = reason.EngineStalled
	case supervisor.Draining:
		code = reason.Draining
	}
	p.closeGate(code, st.Text)
}

// tellQuietly logs what the progress lines would say and nobody may miss: that answers are made up, and what to do about an
// engine that failed.
func (p *pool) tellQuietly(last, st supervisor.Status) {
	if !p.quiet {
		return
	}
	if st.Simulated && st.State == supervisor.Ready && !st.ReadyAt.Equal(last.ReadyAt) {
		p.logger.Warn("SIMULATED ENGINE: answers are made up. A real engine: admitd serve --engine vllm")
	}
	x := st.LastExit
	if x == nil || x.Wanted || last.LastExit != nil && x.At.Equal(last.LastExit.At) {
		return
	}
	args := []any{"how", x.Text}
	if x.Cause != "" {
		args = append(args, "cause", x.Cause)
	}
	if x.Hint != "" {
		args = append(args, "what_to_do", x.Hint)
	}
	p.logger.Error("the engine ended unasked", args...)
}

func (p *pool) stateEvent(st supervisor.Status) {
	level := "info"
	switch st.State {
	case supervisor.Failed, supervisor.Wedged:
		level = "error"
	case supervisor.Stalled:
		level = "warn"
	}
	p.journal.Append(journal.Entry{At: time.Now(), Kind: journal.KindEvent,
		Event: &journal.Event{Name: "engine_state", Level: level, Pool: p.name, Text: fmt.Sprintf("engine %s: %s", st.State, st.Text)}})
}
