package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/signals"
	"admitd/supervisor"
)

func (p *pool) inFlight() int { return p.admission.Dump(admission.Totals).InFlight }

func (p *pool) onSnapshot(s *signals.Snapshot) {
	p.admission.Observe(s)
	select {
	case p.scraped <- struct{}{}:
	default:
	}
}

// progress tells the supervisor whether the engine has work and moves.
func (p *pool) progress() (running int, tokens float64, ok bool) {
	s := p.scraper.Snapshot()
	total, known := s.TokensTotal()
	if !known || s.Failures > 0 {
		return 0, 0, false
	}
	return p.inFlight(), total, true
}

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
		}
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
			open = p.tryOpen(st, fail)
		}
		last = st
		select {
		case <-ctx.Done():
			return nil
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

// tryOpen opens the gate once a scrape of this engine life is there and holds what the policy needs.
func (p *pool) tryOpen(st supervisor.Status, fail func(error)) bool {
	snap := p.scraper.Snapshot()
	switch {
	case snap.Failures > 0 && !p.policyNeedsNothing():
		p.closeGate(reason.SignalMissing, "the engine is ready, but its metrics, which the policy needs, cannot be read: "+snap.Err)
		return false
	case snap.Failures == 0 && snap.At.Before(st.ReadyAt):
		p.closeGate(reason.EngineLoading, "the engine is ready; admitd waits for a first reading of its metrics")
		return false
	}
	if err := p.store.checkNeeds(snap); err != nil {
		p.unmetNeeds(err, fail)
		return false // looked at again with every scrape: the policy may change
	}
	p.unmet = ""
	p.configureEngine(st, snap)
	opened := p.openGate()
	p.served = p.served || opened
	return opened
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
	capacity := st.KVCapacityTokens
	if capacity == 0 {
		if s := snap.Get(signals.KVCapacity, time.Now()); s.Present() {
			capacity = int(s.Value)
		}
	}
	p.admission.With(func(now time.Time, _ admission.Controlling) {
		p.controller.SetEngine(now, slots, capacity, st.MaxModelLen)
	})
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
