package app

import (
	"context"
	"time"

	"admitd/gate/admission"
	"admitd/internal/sockets"
)

// signals turns SIGHUP into reloads and SIGUSR2 into upgrades.
func (a *instance) signals(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.o.Hangup:
			a.tell(sockets.Reloading()...)
			// The reloader has logged the outcome.
			_, _ = a.Reload(ctx, "sighup")
			a.tell("READY=1")
		case <-a.o.Usr2:
			log := a.o.Logger.With("source", "sigusr2")
			if _, err := a.Upgrade("", func(step string) { log.Info("upgrade", "step", step) }); err != nil {
				log.Error("upgrade failed", "error", err)
			}
		}
	}
}

// tell sends lines to the service manager; one that does not listen is worth a line of debugging and no more.
func (a *instance) tell(lines ...string) {
	if err := a.o.Notifier.Notify(lines...); err != nil {
		a.o.Logger.Debug("service manager", "error", err)
	}
}

// notify tells the service manager when the gate opens for the first time, and in words how admitd is.
func (a *instance) notify(ctx context.Context) error {
	if a.o.Notifier == nil {
		return nil
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	ready, said := false, ""
	for {
		open, why := a.pool.serving()
		if open {
			why = "the gate is open: " + a.pool.name
		}
		mine := a.heir == nil || a.heir.serving.Load()
		switch {
		case !mine || a.leaving.Load():
		case open && !ready:
			ready, said = true, why
			a.tell("READY=1", sockets.Status(why))
		case why != said:
			said = why
			a.tell(sockets.Status(why))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// alive is true while the books can be read: what holds their lock holds up every request.
func (a *instance) alive() bool {
	if a.leaving.Load() {
		return false // the successor speaks for the service
	}
	return !a.pool.admission.Dump(admission.Totals).At.IsZero()
}
