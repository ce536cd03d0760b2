package main

import (
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"admitd/gate/journal"
	"admitd/supervisor"
	"admitd/ui/api"
)

func (e *env) statusCommand() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "show engine, policy, signals and books of a running admitd",
		Flags: adminFlags(outputFlag()),
		Action: func(ctx *cli.Context) error {
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			st, err := c.Status(ctx.Context)
			if err != nil {
				return err
			}
			return e.output(ctx, st, func(w io.Writer) { printStatus(w, st) })
		},
	}
}

func printStatus(w io.Writer, st api.Status) {
	fmt.Fprintf(w, "admitd\t%s, up %s, gate %s\n", st.Version, since(st.Now, st.StartedAt), st.GateAddress)
	if st.Config.Problem != "" {
		fmt.Fprintf(w, "last reload\tREFUSED (%s): %s\n", st.Config.LastReloadFrom, st.Config.Problem)
	}
	for _, p := range st.Pools {
		printPool(w, st.Now, p)
	}
}

func printPool(w io.Writer, now time.Time, p api.PoolStatus) {
	kind := string(p.Engine.Kind)
	if p.Engine.Simulated {
		kind += " (SIMULATED)"
	}
	fmt.Fprintf(w, "model\t%s\n", p.Model)
	fmt.Fprintf(w, "engine\t%s %s, %s for %s: %s\n", kind, p.Engine.Version, p.Engine.State, since(now, p.Engine.Since), p.Engine.Text)
	if p.Engine.State == supervisor.Ready {
		fmt.Fprintf(w, "\tpid %d, %s, restarts %d, context %s tokens, KV %s tokens\n", p.Engine.PID, p.Engine.Address, p.Engine.Restarts,
			known(p.Engine.MaxModelLen), known(p.Engine.KVCapacityTokens))
	}
	fmt.Fprintf(w, "policy\t%s@%s (%s, %s ago)\n", p.Policy.Name, p.Policy.Rev, p.Policy.Source, since(now, p.Policy.At))
	fmt.Fprintf(w, "in flight\t%d (held %d), %d tokens reserved\n", p.Ledger.InFlight, p.Ledger.Held, p.Ledger.ReservedTokens)
	for _, win := range p.Windows {
		fmt.Fprintf(w, "last %s\t%d arrivals: %d admitted, %d deferred, %d rejected; goodput %s (%d of %d ended in time)\n",
			time.Duration(win.Seconds)*time.Second, win.Arrivals, win.Admitted, win.Deferred, win.Rejected, percent(win.Goodput), win.SLOMet, win.Ended)
	}
	fmt.Fprintf(w, "GPU\t%s %s\n", p.GPU.State, p.GPU.Why)
	for _, s := range p.Signals {
		fmt.Fprintf(w, "%s\t%s\n", s.Name, signalText(s))
	}
}

func signalText(s journal.SignalView) string {
	if s.Value == nil {
		return fmt.Sprintf("%s: %s", s.State, s.Why)
	}
	text := fmt.Sprintf("%.4g %s, %d ms old", *s.Value, s.Unit, s.AgeMS)
	if s.State != "live" {
		text += fmt.Sprintf(", %s: %s", s.State, s.Why)
	}
	return text
}

func since(now, then time.Time) time.Duration {
	if then.IsZero() {
		return 0
	}
	return now.Sub(then).Round(time.Second)
}

func known(n int) string {
	if n == 0 {
		return "unknown"
	}
	return fmt.Sprint(n)
}

func percent(f *float64) string {
	if f == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", *f*100)
}
