package app

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"admitd/nvml"
	"admitd/supervisor"
)

// progress tells the person at the terminal how the engine comes up: one repainting line on a terminal, one line a
// phase elsewhere. It shows what is known (phase, time, last time's duration, GPU memory) and no invented percentages.
func (a *instance) progress(ctx context.Context) error {
	r := reporter{w: a.o.Progress, terminal: a.o.Terminal, gate: a.gateAddr, admin: a.o.Config.Admin.Listen, model: a.pool.name}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		changed := a.pool.supervisor.Changed()
		r.show(a.pool.supervisor.Status(), a.pool.gpu(), time.Now())
		select {
		case <-ctx.Done():
			r.clear()
			return nil
		case <-changed:
		case <-tick.C:
			if !r.terminal {
				continue
			}
		}
	}
}

// reporter turns statuses into lines. It keeps what it said last, so that nothing is said twice.
type reporter struct {
	w                  io.Writer
	terminal           bool
	gate, admin, model string
	said               string
	painted            bool
}

func (r *reporter) show(st supervisor.Status, gpu *nvml.Reading, now time.Time) {
	switch st.State {
	case supervisor.Starting, supervisor.Loading:
		r.loading(st, gpu, now)
	case supervisor.Ready:
		r.once("ready "+st.ReadyAt.String(), r.readyText(st))
	case supervisor.Failed, supervisor.Wedged, supervisor.Stalled, supervisor.Draining:
		r.once(string(st.State)+st.Text, "engine "+string(st.State)+": "+st.Text+exitText(st))
	case supervisor.Stopped:
		if r.said != "" {
			r.once("stopped"+st.Text, "engine stopped: "+st.Text)
		}
	}
}

func (r *reporter) loading(st supervisor.Status, gpu *nvml.Reading, now time.Time) {
	phase, took := currentPhase(st, now)
	if r.terminal {
		line := fmt.Sprintf("loading %s · %s %s%s · %s in all%s%s", r.model, phase.Name, seconds(took), lastTook(phase),
			seconds(now.Sub(st.Started)), expected(st), memory(gpu))
		fmt.Fprintf(r.w, "\r\033[K%s", line)
		r.painted = true
		return
	}
	r.once(fmt.Sprint("phase ", st.Restarts, phase.Name), fmt.Sprintf("loading %s: phase %s%s%s", r.model, phase.Name, lastTook(phase), memory(gpu)))
}

func (r *reporter) once(key, text string) {
	if key == r.said {
		return
	}
	r.said = key
	r.clear()
	_, _ = fmt.Fprintln(r.w, text)
}

// clear ends a repainted line.
func (r *reporter) clear() {
	if r.painted {
		_, _ = fmt.Fprint(r.w, "\r\033[K")
		r.painted = false
	}
}

func (r *reporter) readyText(st supervisor.Status) string {
	var b strings.Builder
	if st.Simulated {
		b.WriteString("*** SIMULATED ENGINE: answers are made up. A real engine: admitd serve --engine vllm ***\n")
	}
	fmt.Fprintf(&b, "ready: %s on http://%s/v1 (engine %s", r.model, r.gate, st.Kind)
	if st.Version != "" {
		b.WriteString(" " + st.Version)
	}
	if st.PID != 0 {
		fmt.Fprintf(&b, ", pid %d", st.PID)
	}
	if d := st.ReadyAt.Sub(st.Started); !st.Started.IsZero() && d > 0 {
		fmt.Fprintf(&b, ", loaded in %s", seconds(d))
	}
	fmt.Fprintf(&b, ")\ndashboard: http://%s/", r.admin)
	return b.String()
}

func currentPhase(st supervisor.Status, now time.Time) (supervisor.PhaseTime, time.Duration) {
	if len(st.Phases) == 0 {
		return supervisor.PhaseTime{Name: "launched", Began: st.Started}, now.Sub(st.Started)
	}
	p := st.Phases[len(st.Phases)-1]
	return p, now.Sub(p.Began)
}

func lastTook(p supervisor.PhaseTime) string {
	if p.LastTook <= 0 {
		return ""
	}
	return " (last time " + seconds(p.LastTook) + ")"
}

func expected(st supervisor.Status) string {
	if st.ExpectedReadyIn <= 0 {
		return ""
	}
	return ", about " + seconds(st.ExpectedReadyIn) + " to go by past starts"
}

// memory shows the GPU filling, where there is one to see.
func memory(gpu *nvml.Reading) string {
	if gpu == nil || gpu.State != nvml.OK {
		return ""
	}
	var used, total uint64
	for _, d := range gpu.Devices {
		if d.MemoryUsedBytes == nil || d.MemoryTotalBytes == nil {
			return ""
		}
		used, total = used+*d.MemoryUsedBytes, total+*d.MemoryTotalBytes
	}
	if total == 0 {
		return ""
	}
	return fmt.Sprintf(" · GPU %.1f of %.1f GiB", float64(used)/(1<<30), float64(total)/(1<<30))
}

func exitText(st supervisor.Status) string {
	if st.LastExit == nil || (st.State != supervisor.Failed && st.State != supervisor.Wedged) {
		return ""
	}
	out := ""
	if st.LastExit.Hint != "" {
		out += "\n  what to do: " + st.LastExit.Hint
	}
	for _, line := range lastLines(st.LastExit.Tail, 12) {
		out += "\n  | " + line
	}
	return out
}

func lastLines(lines []string, n int) []string {
	if len(lines) > n {
		return lines[len(lines)-n:]
	}
	return lines
}

func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
