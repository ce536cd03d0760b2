package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"admitd/gate"
	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/internal/config"
	"admitd/nvml"
	"admitd/signals"
	"admitd/supervisor"
	"admitd/ui/api"
)

// pool is one served model: engine, signals, GPU, admission, policy and journal.
type pool struct {
	name       string
	config     config.Config
	supervisor *supervisor.Supervisor
	scraper    *signals.Scraper
	monitor    *nvml.Monitor
	controller *admission.Controller
	admission  *gate.Admission
	journal    *journal.Journal
	store      *policyStore
	logger     *slog.Logger

	// scraped is told, without waiting, of every new snapshot.
	scraped chan struct{}
	gateMu  sync.Mutex // orders opening and closing
	// closed says why the gate lets nothing in; nil when it is open. Written under gateMu.
	closed atomic.Pointer[string]
	// ending is set under gateMu when admitd stops: the gate stays closed then.
	ending bool
	// served is true once the gate has been open: from then on an unmet need closes the gate instead of ending admitd.
	served bool
	// unmet is the last complaint about the policy's needs, so that it is made once.
	unmet string
}

func newPool(ctx context.Context, o Options, stateDir string) (*pool, error) {
	c := o.Config
	text, file, err := policyText(c.PolicyFile)
	if err != nil {
		return nil, err
	}
	compiled, err := policy.Compile(file, text)
	if err != nil {
		return nil, err
	}
	so, err := engineOptions(ctx, c, stateDir)
	if err != nil {
		return nil, err
	}
	p := &pool{name: c.ServedName(), config: c, logger: o.Logger.With("pool", c.ServedName()), scraped: make(chan struct{}, 1)}
	so.Self, so.Logger = o.Self, supervisorLogger(o)
	so.BeforeStop, so.Progress = p.drain, p.progress
	if p.supervisor, err = supervisor.New(so); err != nil {
		return nil, err
	}
	if p.journal, err = journal.New(journal.Options{Ring: c.Journal.Ring, Dir: c.Journal.Dir, MaxBytes: int64(c.Journal.MaxBytes), Logger: o.Logger}); err != nil {
		return nil, err
	}
	p.scraper = signals.NewScraper(signals.ScraperOptions{
		Transport: p.supervisor.Transport(), URL: "http://engine/metrics", Load: p.inFlight, OnSnapshot: p.onSnapshot,
		Logger: o.Logger.With("component", "signals"), MinInterval: c.Signals.MinInterval, MaxInterval: c.Signals.MaxInterval,
		Timeout: c.Signals.Timeout, StaleAfter: c.Signals.StaleAfter,
	})
	if !c.GPU.Disabled {
		p.monitor = nvml.NewMonitor(nvml.MonitorOptions{Pids: p.supervisor.Pids, Interval: c.GPU.Interval, Logger: o.Logger.With("component", "nvml")})
	}
	var ticketKey [32]byte
	if _, err := rand.Read(ticketKey[:]); err != nil {
		return nil, fmt.Errorf("make ticket key: %w", err)
	}
	p.controller = admission.New(admission.Config{
		Slots: c.Engine.Slots, TicketKey: ticketKey[:], SignalStaleAfter: c.Signals.StaleAfter,
		Shared: so.Kind == supervisor.External,
	}, compiled)
	p.admission = gate.NewAdmission(p.controller, time.Now)
	p.closeGate(reason.EngineLoading, "the engine has not started yet")
	p.newStore(compiled, file, o, stateDir)
	return p, nil
}

// supervisorLogger leaves out the state changes where the progress lines tell them already.
func supervisorLogger(o Options) *slog.Logger {
	l := o.Logger.With("component", "supervisor")
	if o.Progress == nil {
		return l
	}
	return slog.New(atLeast{l.Handler(), slog.LevelWarn})
}

// atLeast is a log handler that drops what is below a level.
type atLeast struct {
	slog.Handler
	least slog.Level
}

// Enabled implements slog.Handler.
func (h atLeast) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.least && h.Handler.Enabled(ctx, l)
}

// newStore puts the first policy in place as revision one of the history.
func (p *pool) newStore(compiled *policy.Compiled, file string, o Options, stateDir string) {
	p.store = &policyStore{
		pool: p.name, admission: p.admission, snapshot: p.scraper.Snapshot, journal: p.journal,
		lastGood: stateDir + "/policy.last-good.yaml", clock: time.Now, logger: p.logger,
	}
	first := &revision{compiled: compiled, info: api.PolicyInfo{Name: compiled.Policy.Name(), Rev: compiled.Rev, File: file, At: time.Now(), Source: "start"}}
	p.store.mu.Lock()
	p.store.install(first)
	p.store.mu.Unlock()
}

func (p *pool) close() {
	if err := p.journal.Close(); err != nil {
		p.logger.Error("closing the journal", "error", err)
	}
}

// gatePool is the pool as the listener sees it.
func (p *pool) gatePool() *gate.Pool {
	return &gate.Pool{
		Model: p.name, Aliases: p.config.Aliases, EngineModel: p.name, Engine: p.supervisor,
		Snapshot: p.scraper.Snapshot, Admission: p.admission, Journal: p.journal,
	}
}

// start runs the pool's goroutines but the supervisor's own.
func (p *pool) start(start func(string, func(context.Context) error, context.Context), ctx context.Context, fatal chan<- error) {
	start("admission", p.admission.Run, ctx)
	if p.monitor != nil {
		start("gpu", p.monitor.Run, ctx)
	}
	start("pool", func(ctx context.Context) error { return p.watch(ctx, fatal) }, ctx)
}

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
	if old := p.closed.Load(); old != nil && *old == why {
		return
	}
	p.closed.Store(&why)
	p.admission.Close(code, why)
}

// openGate lets requests in, unless the engine or admitd has begun to stop meanwhile.
func (p *pool) openGate() bool {
	p.gateMu.Lock()
	defer p.gateMu.Unlock()
	if p.ending || p.supervisor.Status().State != supervisor.Ready {
		return false
	}
	p.admission.Open()
	p.closed.Store(nil)
	return true
}

// serving implements ui.PoolBackend.Serving.
func (p *pool) serving() (ok bool, why string) {
	if c := p.closed.Load(); c != nil {
		return false, *c
	}
	return true, ""
}

// beginStop closes the gate for good.
func (p *pool) beginStop() {
	p.gateMu.Lock()
	p.ending = true
	p.gateMu.Unlock()
	p.closeGate(reason.Draining, "admitd is stopping")
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
func (p *pool) watch(ctx context.Context, fatal chan<- error) error {
	var last supervisor.Status
	var stopScraper func()
	defer func() {
		if stopScraper != nil {
			stopScraper()
		}
	}()
	open := false
	for {
		changed := p.supervisor.Changed()
		st := p.supervisor.Status()
		if st.State != last.State || st.Restarts != last.Restarts {
			p.stateEvent(st)
		}
		if st.GaveUp && !last.GaveUp && !p.served {
			// Whoever started us is waiting for an answer; later, staying and saying why serves callers better.
			fatal <- fmt.Errorf("%w: %s", ErrEngineFailed, st.Text)
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
			open = p.tryOpen(st, fatal)
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
func (p *pool) tryOpen(st supervisor.Status, fatal chan<- error) bool {
	snap := p.scraper.Snapshot()
	if snap.At.Before(st.ReadyAt) || snap.Failures > 0 {
		if snap.Failures == 0 || !p.policyNeedsNothing() {
			p.closeGate(reason.EngineLoading, "the engine is ready; admitd waits for a first reading of its metrics")
			return false
		}
	}
	if err := p.store.checkNeeds(snap); err != nil {
		p.unmetNeeds(err, fatal)
		return false // looked at again with every scrape: the policy may change
	}
	p.unmet = ""
	p.configureEngine(st, snap)
	opened := p.openGate()
	p.served = p.served || opened
	return opened
}

// unmetNeeds ends a start, or keeps the gate of a running admitd closed, and says so once.
func (p *pool) unmetNeeds(err error, fatal chan<- error) {
	p.closeGate(reason.SignalMissing, err.Error())
	if p.unmet == err.Error() {
		return
	}
	p.unmet = err.Error()
	if !p.served {
		fatal <- err
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
