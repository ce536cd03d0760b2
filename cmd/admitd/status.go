package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
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
			asking, done := asking(ctx)
			defer done()
			st, err := c.Status(asking)
			if err != nil {
				return err
			}
			if st.Pools, err = onlyPool(st.Pools, ctx.String("pool")); err != nil {
				return err
			}
			gate := "open"
			if !st.Ready {
				_, why, err := c.Ready(asking)
				if err != nil {
					return err
				}
				gate = "CLOSED: " + why
			}
			return e.output(ctx, st, func(w io.Writer) { printStatus(w, st, gate) })
		},
	}
}

// onlyPool keeps the pool that was asked for, all for "".
func onlyPool(pools []api.PoolStatus, name string) ([]api.PoolStatus, error) {
	if name == "" {
		return pools, nil
	}
	var models []string
	for _, p := range pools {
		if p.Model == name || slices.Contains(p.Aliases, name) {
			return []api.PoolStatus{p}, nil
		}
		models = append(models, p.Model)
	}
	return nil, usage("status: --pool %s: no pool serves that; there is %s", name, strings.Join(models, ", "))
}

func printStatus(w io.Writer, st api.Status, gate string) {
	fmt.Fprintf(w, "admitd\t%s, up %s\n", st.Version, since(st.Now, st.StartedAt))
	fmt.Fprintf(w, "gate\t%s, %s\n", st.GateAddress, gate)
	if st.Config.Problem != "" {
		fmt.Fprintf(w, "last reload\tREFUSED (%s): %s\n", st.Config.LastReloadFrom, st.Config.Problem)
	}
	for _, p := range st.Pools {
		printPool(w, st.Now, p)
	}
}

// printTrouble says what is wrong with an engine, what happens next, and what a person can do.
func printTrouble(w io.Writer, now time.Time, st supervisor.Status) {
	hint := ""
	switch {
	case st.Trouble != nil:
		next := st.Trouble.Next
		if !st.Trouble.ActAt.IsZero() {
			next = fmt.Sprintf("in %s: %s", max(st.Trouble.ActAt.Sub(now), 0).Round(time.Second), next)
		}
		fmt.Fprintf(w, "trouble\t%s for %s; %s\n", st.Trouble.Code, since(now, st.Trouble.Since), next)
		hint = st.Trouble.Hint
	case st.LastExit != nil && st.State != supervisor.Ready:
		hint = st.LastExit.Hint
	}
	if hint != "" {
		fmt.Fprintf(w, "what to do\t%s\n", hint)
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
		process := "no process of ours"
		if p.Engine.PID != 0 {
			process = fmt.Sprintf("pid %d", p.Engine.PID)
		}
		fmt.Fprintf(w, "\t%s, %s, restarts %d, context %s tokens, KV %s tokens\n", process, p.Engine.Address, p.Engine.Restarts,
			known(p.Engine.MaxModelLen), known(p.Engine.KVCapacityTokens))
	}
	printTrouble(w, now, p.Engine)
	fmt.Fprintf(w, "policy\t%s@%s (%s, %s ago)\n", p.Policy.Name, p.Policy.Rev, p.Policy.Source, since(now, p.Policy.At))
	fmt.Fprintf(w, "in flight\t%d (held %d), %d tokens reserved\n", p.Ledger.InFlight, p.Ledger.Held, p.Ledger.ReservedTokens)
	for _, win := range p.Windows {
		fmt.Fprintf(w, "last %d s\t%d arrivals: %d admitted, %d deferred, %d rejected; goodput %s (%d of the %d that ended met their class)\n",
			win.Seconds, win.Arrivals, win.Admitted, win.Deferred, win.Rejected, percent(win.Goodput), win.SLOMet, win.Ended)
	}
	fmt.Fprintf(w, "GPU\t%s\n", gpuText(p.GPU))
	for _, s := range p.Signals {
		fmt.Fprintf(w, "%s\t%s\n", s.Name, signalText(s))
	}
}

// gpuText is the state, and how full each device's memory is where it tells.
func gpuText(g api.GPU) string {
	var b strings.Builder
	b.WriteString(g.State)
	if g.Why != "" {
		b.WriteString(": " + g.Why)
	}
	for _, d := range g.Devices {
		fmt.Fprintf(&b, "; %d %s", d.Index, d.Name)
		if d.MemoryUsedBytes != nil && d.MemoryTotalBytes != nil {
			fmt.Fprintf(&b, " %.1f of %.1f GiB", float64(*d.MemoryUsedBytes)/(1<<30), float64(*d.MemoryTotalBytes)/(1<<30))
		}
	}
	return b.String()
}

func signalText(s journal.SignalView) string {
	if s.Value == nil {
		return fmt.Sprintf("%s: %s", s.State, s.Why)
	}
	value := strconv.FormatFloat(*s.Value, 'g', 4, 64)
	if *s.Value == math.Trunc(*s.Value) {
		value = strconv.FormatFloat(*s.Value, 'f', 0, 64)
	}
	text := fmt.Sprintf("%s %s, %d ms old", value, s.Unit, s.AgeMS)
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
	return strconv.Itoa(n)
}

func percent(f *float64) string {
	if f == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", *f*100)
}
