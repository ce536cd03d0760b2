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
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"admitd/gate"
	"admitd/internal/config"
	"admitd/internal/sockets"
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
	// Hangup delivers SIGHUP, Usr2 SIGUSR2.
	Hangup, Usr2 <-chan os.Signal
	// Args are this program's arguments: what a successor is started with.
	Args []string
	// Inherited is what was handed down by systemd or by an admitd that is being upgraded; nil for nothing.
	Inherited *sockets.Inherited
	// Notifier tells the service manager; nil tells nobody. NotifyEnv is what a successor needs in its environment for its own.
	Notifier  *sockets.Notifier
	NotifyEnv []string
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

// Run serves until ctx ends, then stops everything in order, or until another admitd has taken over and our own requests
// have ended. Errors: ErrEngineFailed, *SetupError, *policy.NeedsError, *strict.Error, or what kept a listener from opening.
// nil means that ctx ended and nothing is left, or that another one serves.
func Run(ctx context.Context, o Options) error {
	h, err := meet(o.Inherited)
	if err != nil {
		return err
	}
	err = o.serve(ctx, h)
	h.failed(err)
	return err
}

func (o Options) serve(ctx context.Context, h *heir) error {
	stateDir, err := StateDir(o.Config.StateDir)
	if err != nil {
		return err
	}
	if h == nil { // a predecessor's is there already: one that is made now would be another
		if err := os.MkdirAll(stateDir, 0o700); err != nil {
			return folderError("state_dir (--state-dir)", err)
		}
	}
	// The locks come before anything in the folders: one that another admitd works in must not be touched.
	held, err := o.lock(stateDir)
	if err != nil {
		return err
	}
	defer held.release()
	var a *instance
	defer func() {
		if a != nil && a.drained != nil {
			a.drained() // once the record is written
		}
	}()
	tokenFile := TokenFile(o.Config.Admin.TokenFile, stateDir)
	token, err := ensureToken(tokenFile)
	if err != nil {
		return err
	}
	warnOpen(o.Logger, stateDir, journalDir(o.Config.Journal.Dir, stateDir), tokenFile)
	// Listeners first: a busy port is told before a model is loaded for minutes.
	ls, err := o.listen(ctx, h)
	if err != nil {
		return err
	}
	defer ls.close()
	if left := o.Inherited.Close(); len(left) > 0 {
		o.Logger.Warn("sockets were handed down that nothing here uses", "names", left)
	}

	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p, err := newPool(ctx, o, stateDir)
	if err != nil {
		return err
	}
	defer p.close()
	a = &instance{
		o: o, pool: p, gateL: ls.gate, adminL: ls.admin, certs: ls.certs, locks: held, stateDir: stateDir, heir: h, dropped: ls.drop,
		gateAddr: ls.gateText(), adminAddr: sockets.Text(ls.admin.Addr()),
	}
	if h != nil && h.hello.Policy != nil {
		// Put in place over the admin API: an upgrade is no reason to go back to the file.
		if _, err := p.store.change("", h.hello.Policy.Text, "", "upgrade", "from "+h.hello.Policy.Source); err != nil {
			return fmt.Errorf("the running policy: %w", err)
		}
	}
	p.news.Info("listening", "gate", a.gateAddr, "admin", a.adminAddr)
	if err := a.build(reg, token); err != nil {
		return err
	}
	return a.run(ctx, ls.served(), ls.admin)
}

// instance is one running admitd.
type instance struct {
	o         Options
	pool      *pool
	gateAddr  string
	adminAddr string
	reloader  *reloader
	gate      *gate.Server
	admin     *ui.Server

	// gateL and adminL are the sockets themselves, certs what is shown on the gate's; nil without TLS.
	gateL, adminL *sockets.Listener
	certs         *sockets.Certificates
	locks         locks
	// stateDir is the state folder; drained ends the notice there that we finish requests, nil without one.
	stateDir string
	drained  func()
	// dropped ends the listeners that were handed down and are not ours (listeners.drop).
	dropped func() error
	// heir is set where another admitd hands over to this one, succession where this one hands over.
	heir       *heir
	succession succession
	// leaving is set once a successor serves.
	leaving atomic.Bool
}

// run starts everything, waits for the end, and stops in order: gate, drain, engine, dashboard.
func (a *instance) run(ctx context.Context, gateL, adminL net.Listener) error {
	if a.heir != nil {
		if err := a.prepare(ctx); err != nil {
			return err
		}
	}
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
	a.succession.prepare(ctx)
	a.startParts(ctx, parts, start, fail, func() {
		start(parts, "gate", func(context.Context) error { return a.accept(gateSrv, gateL) })
		start(parts, "admin", func(context.Context) error { return a.accept(adminSrv, adminL) })
	})
	engineDone := make(chan struct{})
	wg.Go(func() {
		defer close(engineDone)
		if err := a.pool.engine.Run(engineCtx); err != nil && !errors.Is(err, context.Canceled) {
			fail(fmt.Errorf("%w: %w", ErrEngineFailed, err))
		}
	})

	var failure error
	select {
	case <-ctx.Done():
	case failure = <-fatal:
	case <-a.succession.handed:
	}
	a.conclude(ctx, &failure, gateSrv, adminSrv, stopEngine, engineDone)
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

// startParts starts everything but the supervision. A successor opens its listeners last of all.
func (a *instance) startParts(ctx, parts context.Context, start starter, fail func(error), serve func()) {
	if a.heir == nil {
		serve()
	} else {
		start(ctx, "take over", func(ctx context.Context) error { return a.inherit(ctx, parts, serve) })
	}
	start(parts, "dashboard", a.admin.Run)
	start(parts, "reloader", a.reloader.Run)
	start(parts, "signals", a.signals)
	start(parts, "memory", a.slim)
	if a.certs != nil {
		start(parts, "certificates", a.certs.Run)
	}
	a.pool.start(parts, start, fail)
	if a.o.Progress != nil {
		start(parts, "progress", a.progress)
	}
	start(parts, "service manager", a.notify)
	start(parts, "watchdog", func(ctx context.Context) error { return a.o.Notifier.Watch(ctx, a.alive) })
}

// conclude ends the parts in the order that the reason for the end asks for.
func (a *instance) conclude(ctx context.Context, failure *error, gateSrv, adminSrv server, stopEngine func(), engineDone <-chan struct{}) {
	// An upgrade that is being tried is called off by the same end, and is over in a moment.
	switch a.succession.settle(); {
	case a.succession.over():
		*failure = nil
		a.leave(ctx, gateSrv, adminSrv)
		stopEngine()
		<-engineDone
		return
	case a.heir != nil && !a.heir.serving.Load():
		// Nothing is ours yet: the engine goes on under whoever has it.
		if *failure == nil {
			*failure = errCalledOff
		}
		a.heir.failed(*failure)
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := a.pool.swap.Release(short); err != nil {
			a.o.Logger.Warn("leaving the engine", "error", err)
		}
		stopEngine()
		<-engineDone
		return
	}
	if st := a.pool.engine.Status(); *failure == nil && st.GaveUp {
		*failure = fmt.Errorf("%w: %s", ErrEngineFailed, st.Text)
	}
	a.tell("STOPPING=1", sockets.Status("stopping"))
	a.stop(gateSrv, adminSrv, stopEngine, engineDone)
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

// stop ends the parts in order. Force cuts every wait short.
func (a *instance) stop(gateSrv, adminSrv server, stopEngine func(), engineDone <-chan struct{}) {
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
