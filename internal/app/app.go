// Package app puts the rooms of admitd together into one running program: listeners, engine, signals, admission,
// reloader, dashboard, and their start and stop in order.
//
// Goal: wiring that can be read from top to bottom.
//
// Non-goals: any decision of its own.
//
// Invariants: the gate lets nothing in before the engine is ready and the policy's needs are met; it is closed
// before the engine is stopped; every goroutine is waited for; one deadline bounds the whole stop.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"admitd/gate"
	"admitd/internal/config"
	"admitd/supervisor"
	"admitd/ui"
)

// Options is what the command line hands over.
type Options struct {
	Config config.Config
	// Load reads the configuration again, flags and environment over it.
	Load func() (config.Config, error)
	// ConfigFile is where Config came from, "" for none.
	ConfigFile string
	Version    string
	// Self is the path of this program, for the simulated engine.
	Self   string
	UIDir  string
	Logger *slog.Logger
	Level  *slog.LevelVar
	// Progress receives the loading lines; nil means none.
	Progress *Screen
	// Hangup delivers SIGHUP.
	Hangup <-chan os.Signal
	// Patience changes how long the supervisor waits for what, beyond what the configuration says; nil changes nothing.
	Patience func(*supervisor.Options)
	// Force is closed when the person asked a second time to stop: no more grace.
	Force <-chan struct{}
}

// ErrEngineFailed: the engine did not start, crashed until the budget was spent, or could not be ended.
var ErrEngineFailed = errors.New("engine failed")

// SetupError says that what was asked for cannot be started as it is configured, on this machine. Nothing was launched.
type SetupError struct{ Err error }

// Error implements error.
func (e *SetupError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *SetupError) Unwrap() error { return e.Err }

// Run serves until ctx ends, then stops everything in order. Errors: ErrEngineFailed, *SetupError,
// *policy.NeedsError, *strict.Error, or what kept a listener from opening. nil means that ctx ended and nothing is left.
func Run(ctx context.Context, o Options) error {
	stateDir, err := StateDir(o.Config.StateDir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return fmt.Errorf("make state folder: %w; set state_dir (--state-dir) to a folder that this user can write", err)
	}
	// The lock comes before anything in the folder: one that another admitd works in must not be touched.
	unlock, err := supervisor.Lock(stateDir)
	if err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	defer unlock()
	unlockJournal, err := lockJournal(journalDir(o.Config.Journal.Dir, stateDir), stateDir)
	if err != nil {
		return err
	}
	defer unlockJournal()
	token, err := ensureToken(TokenFile(o.Config.Admin.TokenFile, stateDir))
	if err != nil {
		return err
	}
	// Listeners first: a busy port is told before a model is loaded for minutes.
	gateL, err := listen(ctx, "listen", o.Config.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = gateL.Close() }()
	adminL, err := listen(ctx, "admin.listen", o.Config.Admin.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = adminL.Close() }()

	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p, err := newPool(ctx, o, stateDir)
	if err != nil {
		return err
	}
	defer p.close()
	p.news.Info("listening", "gate", gateL.Addr(), "admin", adminL.Addr())
	a := &instance{o: o, pool: p, gateAddr: gateL.Addr().String(), adminAddr: adminL.Addr().String()}
	if err := a.build(reg, token); err != nil {
		return err
	}
	return a.run(ctx, gateL, adminL)
}

func listen(ctx context.Context, key, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; choose another address or stop what holds it (ss -ltnp shows it)", key, err)
	}
	return l, nil
}

// instance is one running admitd.
type instance struct {
	o         Options
	pool      *pool
	gateAddr  string
	adminAddr string
	reloader  *reloader
	gate      http.Handler
	admin     *ui.Server
}

// run starts everything, waits for the end, and stops in order: gate, drain, engine, dashboard.
func (a *instance) run(ctx context.Context, gateL, adminL net.Listener) error {
	// The parts outlive ctx: they are stopped one after the other, not all at once.
	parts, stopParts := context.WithCancel(context.WithoutCancel(ctx))
	defer stopParts()
	engineCtx, stopEngine := context.WithCancel(parts)
	defer stopEngine()
	// The first failure is why admitd ends; what breaks after it is a consequence.
	fatal := make(chan error, 1)
	fail := func(err error) {
		select {
		case fatal <- err:
		default:
		}
	}
	var wg sync.WaitGroup
	start := func(ctx context.Context, name string, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil && !errors.Is(err, context.Canceled) {
				fail(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	gateSrv, adminSrv := a.servers()
	start(parts, "gate", func(context.Context) error { return serve(gateSrv, gateL) })
	start(parts, "admin", func(context.Context) error { return serve(adminSrv, adminL) })
	start(parts, "dashboard", a.admin.Run)
	start(parts, "reloader", a.reloader.Run)
	start(parts, "hangup", a.hangups)
	a.pool.start(parts, start, fail)
	engineDone := make(chan struct{})
	wg.Go(func() {
		defer close(engineDone)
		if err := a.pool.engine.Run(engineCtx); err != nil && !errors.Is(err, context.Canceled) {
			fail(fmt.Errorf("%w: %w", ErrEngineFailed, err))
		}
	})
	if a.o.Progress != nil {
		start(parts, "progress", a.progress)
	}

	var failure error
	select {
	case <-ctx.Done():
	case failure = <-fatal:
	}
	if st := a.pool.engine.Status(); failure == nil && st.GaveUp {
		failure = fmt.Errorf("%w: %s", ErrEngineFailed, st.Text)
	}
	a.stop(gateSrv, adminSrv, stopEngine, engineDone)
	stopParts()
	if !waited(&wg, partsEndWithin) {
		a.o.Logger.Error("some part of admitd has not ended; leaving all the same", "waited", partsEndWithin)
	}
	if failure != nil {
		return failure
	}
	// A stop can fail as well: whoever asked for it must hear that the engine's processes are still there.
	select {
	case failure = <-fatal:
	default:
	}
	return failure
}

// partsEndWithin bounds the last wait: longer than any of them may take, reading files included.
const partsEndWithin = 20 * time.Second

// waited reports whether a group ended in time.
func waited(wg *sync.WaitGroup, limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		wg.Wait()
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}

// lockJournal makes the record's folder ours alone, as Lock does the state folder, which it may also be.
func lockJournal(dir, stateDir string) (release func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal.dir: %w; choose a folder that this user can write", err)
	}
	if a, err := os.Stat(dir); err == nil {
		if b, err := os.Stat(stateDir); err == nil && os.SameFile(a, b) {
			return func() {}, nil
		}
	}
	if release, err = supervisor.Lock(dir); err != nil {
		return nil, fmt.Errorf("journal.dir: %w", err)
	}
	return release, nil
}

// stop ends the parts in order. Force cuts every wait short.
func (a *instance) stop(gateSrv, adminSrv *http.Server, stopEngine func(), engineDone <-chan struct{}) {
	c := a.o.Config.Engine
	deadline, cancel := context.WithTimeout(context.Background(), c.DrainTimeout+c.StopGrace+60*time.Second)
	var forced sync.WaitGroup
	defer forced.Wait()
	defer cancel()
	forced.Go(func() {
		select {
		case <-a.o.Force:
			cancel()
		case <-deadline.Done():
		}
	})
	a.pool.beginStop()
	stopEngine()
	select {
	case <-engineDone:
	case <-deadline.Done():
		a.pool.engine.Hurry()
		<-engineDone
	}
	// Nothing is relayed any more; what is left on the listeners is refusals and viewers.
	short, cancelShort := context.WithTimeout(deadline, 5*time.Second)
	defer cancelShort()
	if err := gateSrv.Shutdown(short); err != nil {
		_ = gateSrv.Close()
	}
	a.admin.Close("admitd is stopping")
	if err := adminSrv.Shutdown(short); err != nil {
		_ = adminSrv.Close()
	}
}

func (a *instance) servers() (gateSrv, adminSrv *http.Server) {
	l := a.o.Config.Limits
	logger := slog.NewLogLogger(a.o.Logger.Handler(), slog.LevelDebug)
	gateSrv = &http.Server{
		Handler: a.gate, ReadHeaderTimeout: l.HeaderTimeout, IdleTimeout: l.IdleTimeout,
		MaxHeaderBytes: int(l.MaxHeader), ErrorLog: logger,
	}
	gate.Prepare(gateSrv)
	adminSrv = &http.Server{
		Handler: a.admin.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: logger,
	}
	return gateSrv, adminSrv
}

func serve(s *http.Server, l net.Listener) error {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// hangups turns SIGHUP into reloads.
func (a *instance) hangups(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.o.Hangup:
			// The reloader has logged the outcome.
			_, _ = a.reloader.Reload(ctx, "sighup")
		}
	}
}
