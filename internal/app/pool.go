package app

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"admitd/gate"
	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/internal/config"
	"admitd/internal/install"
	"admitd/nvml"
	"admitd/signals"
	"admitd/supervisor"
	"admitd/ui/api"
)

// engine is what a pool needs of its *supervisor.Supervisor.
type engine interface {
	supervisor.Engine
	Run(ctx context.Context) error
	Restart(ctx context.Context) error
	Hurry()
}

// scraper is what a pool needs of its *signals.Scraper.
type scraper interface {
	Run(ctx context.Context) error
	Snapshot() *signals.Snapshot
	Interval() time.Duration
	Reset()
	Offer(o signals.ORCA, at time.Time)
}

// pool is one served model: engine, signals, GPU, admission, policy and journal.
type pool struct {
	name string
	// engineModel is what the engine calls the model: an external one was named by somebody else.
	engineModel string
	config      config.Config
	engine      engine
	// swap is the same engine, for an upgrade.
	swap *swapEngine
	// launchedBy are the settings that the engine is launched by (engineSettings).
	launchedBy map[string]string
	// letGo ends what keeps an installed engine from being removed; nil when nothing does.
	letGo   func()
	scraper scraper
	// monitor is nil when the GPU is not to be read.
	monitor    *nvml.Monitor
	controller *admission.Controller
	admission  *gate.Admission
	journal    *journal.Journal
	store      *policyStore
	logger     *slog.Logger
	// news is the log for what the progress lines tell already, where there are any.
	news *slog.Logger

	// scraped is told, without waiting, of every new snapshot; moved, that the gate has opened or closed.
	scraped, moved chan struct{}
	gateMu         sync.Mutex // orders opening and closing
	// closed says why the gate lets nothing in; nil when it is open. Written under gateMu.
	closed atomic.Pointer[closure]
	// ending is set under gateMu when admitd stops: the gate stays closed then.
	ending bool
	// quiet is set where no progress lines tell what nobody may miss.
	quiet bool
	// served is true once the gate has been open: from then on an unmet need closes the gate instead of ending admitd.
	served bool
	// haunted is set while it has been told that the engine works for nobody. Only the scraper's goroutine has it.
	haunted bool
	// life is the engine life that was last looked at, doubts what keeps its metrics from being believed; watch's goroutine has them, and recheck.
	life   uint64
	doubts string
	// recheck is the scrape from which on another engine is held against the policy's needs; 0 when none is due.
	recheck uint64
	// refused is how many were refused when the scraper last asked, refusedAt when that had last grown; the scraper's goroutine has
	// them.
	refused   uint64
	refusedAt time.Time
	// unmet is the last complaint about the policy's needs, so that it is made once.
	unmet string
}

// closure is why the gate is closed: for callers the code, for people the words.
type closure struct {
	code reason.Code
	why  string
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
	held, err := install.Hold(so.Binary)
	if err != nil {
		return nil, setup("%w", err)
	}
	p := &pool{config: c, letGo: held, launchedBy: engineSettings(c, so)}
	so.Self, so.Logger = o.Self, news(o).With("component", "supervisor")
	so.BeforeStop, so.Progress, so.Idle, so.CanaryAfter = p.drain, p.progress, p.idle, none(c.Engine.ProbeAfter)
	p.memoryHooks(&so)
	if o.Patience != nil {
		o.Patience(&so)
	}
	if p.swap, err = newSwapEngine(func() (supervised, error) { return supervisor.New(so) }); err != nil {
		return nil, &SetupError{err}
	}
	sup := p.swap
	p.engine = sup
	if p.journal, err = openJournal(c.Journal, stateDir, o.Inherited.FromAdmitd() || !supervisor.Drained(stateDir), o.Logger); err != nil {
		return nil, err
	}
	p.scraper = signals.NewScraper(signals.ScraperOptions{
		Transport: sup, URL: "http://engine/metrics", Load: p.inFlight, Pressed: p.pressed, OnSnapshot: p.onSnapshot,
		Logger: o.Logger.With("component", "signals"), MinInterval: c.Signals.MinInterval, MaxInterval: c.Signals.MaxInterval,
		Timeout: c.Signals.Timeout, StaleAfter: c.Signals.StaleAfter,
	})
	if !c.GPU.Disabled {
		p.monitor = nvml.NewMonitor(nvml.MonitorOptions{Pids: sup.Pids, Interval: c.GPU.Interval, Logger: o.Logger.With("component", "nvml")})
	}
	if err := p.assemble(o, compiled, file, stateDir); err != nil {
		_ = p.journal.Close()
		return nil, err
	}
	return p, nil
}

// openJournal goes on with the record that is on disk. The lock on the folder says that nobody else writes to it, but for an
// admitd that hands over to us, or one that gave up the folder and still finishes: its requests have not ended.
func openJournal(c config.Journal, stateDir string, shared bool, logger *slog.Logger) (*journal.Journal, error) {
	return journal.New(journal.Options{
		Ring: c.Ring, Dir: journalDir(c.Dir, stateDir), MaxBytes: int64(c.MaxBytes), MaxAge: c.MaxAge,
		KeepBytes: int64(c.KeepBytes), KeepAge: c.KeepAge, Restore: true, CloseOpen: !shared, Logger: logger,
	})
}

// journalDir is where the record is kept; "" for memory only.
func journalDir(configured, stateDir string) string {
	if configured == "" || filepath.IsAbs(configured) {
		return configured
	}
	return filepath.Join(stateDir, configured)
}

// assemble makes what stands between engine, scraper and journal, with the gate closed.
func (p *pool) assemble(o Options, compiled *policy.Compiled, file, stateDir string) error {
	c, external := p.config, p.engine.Status().Kind == supervisor.External
	p.name, p.engineModel = c.ServedName(), c.ServedName()
	if external {
		p.engineModel = c.Model
	}
	p.quiet = o.Progress == nil
	p.logger, p.news = o.Logger.With("pool", p.name), news(o).With("pool", p.name)
	p.scraped, p.moved = make(chan struct{}, 1), make(chan struct{}, 1)
	ticketKey, err := ensureTicketKey(stateDir)
	if err != nil {
		return err
	}
	p.controller = admission.New(admission.Config{
		Slots: c.Engine.Slots, TicketKey: ticketKey, SignalStaleAfter: c.Signals.StaleAfter, Shared: external,
	}, compiled)
	p.admission = gate.NewAdmission(p.controller, time.Now)
	p.closeGate(reason.EngineLoading, "the engine has not started yet")
	p.newStore(compiled, file, stateDir)
	return nil
}

// news is the log without what the progress lines tell already.
func news(o Options) *slog.Logger {
	if o.Progress == nil {
		return o.Logger
	}
	return slog.New(atLeast{o.Logger.Handler(), slog.LevelWarn})
}

// atLeast is a log handler that drops what is below a level.
type atLeast struct {
	slog.Handler
	least slog.Level
}

// WithAttrs implements slog.Handler.
func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.least}
}

// WithGroup implements slog.Handler.
func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.least}
}

// Enabled implements slog.Handler.
func (h atLeast) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.least && h.Handler.Enabled(ctx, l)
}

// newStore puts the first policy in place as revision one of the history.
func (p *pool) newStore(compiled *policy.Compiled, file, stateDir string) {
	p.store = &policyStore{
		pool: p.name, admission: p.admission, snapshot: p.snapshot, journal: p.journal,
		lastGood: filepath.Join(stateDir, "policy.last-good.yaml"), clock: time.Now, logger: p.logger,
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
	if p.letGo != nil {
		p.letGo()
	}
}

// gatePool is the pool as the listener sees it.
func (p *pool) gatePool() *gate.Pool {
	return &gate.Pool{
		Model: p.name, Aliases: p.config.Aliases, EngineModel: p.engineModel, Engine: p.engine,
		Snapshot: p.snapshot, Admission: p.admission, Journal: p.journal, Offer: p.scraper.Offer,
	}
}

// starter runs one part of admitd in a goroutine of its own; its failure ends admitd.
type starter func(ctx context.Context, name string, run func(context.Context) error)

// start runs the pool's goroutines but the supervisor's own.
// A failure that ends admitd goes to fail.
func (p *pool) start(ctx context.Context, start starter, fail func(error)) {
	start(ctx, "admission", p.admission.Run)
	if p.monitor != nil {
		start(ctx, "gpu", p.monitor.Run)
	}
	start(ctx, "pool", func(ctx context.Context) error { return p.watch(ctx, fail) })
}
