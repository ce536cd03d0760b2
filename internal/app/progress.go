package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"admitd/nvml"
	"admitd/supervisor"
)

const (
	// paintEvery is how often the figures of a loading engine are looked at.
	paintEvery = 500 * time.Millisecond
	// passing is how long a state that is on its way to another goes unmentioned.
	passing = 2 * time.Second
)

// progress tells the person at the terminal how the engine comes up: one repainting line on a terminal, one line a
// phase elsewhere. It shows what is known (phase, time, last time's duration, GPU memory) and no invented percentages.
func (a *instance) progress(ctx context.Context) error {
	r := reporter{screen: a.o.Progress, gate: a.gateAddr, admin: a.adminAddr, model: a.pool.name}
	tick := time.NewTicker(paintEvery)
	defer tick.Stop()
	for {
		changed := a.pool.engine.Changed()
		v := view{engine: a.pool.engine.Status(), gpu: a.pool.gpu(), now: time.Now()}
		v.serving, v.why = a.pool.serving()
		r.show(v)
		select {
		case <-ctx.Done():
			r.screen.Clear()
			return nil
		case <-changed:
		case <-a.pool.moved:
		case <-tick.C:
		}
	}
}

// view is what there is to tell at one moment.
type view struct {
	engine supervisor.Status
	// serving says whether the gate lets requests in; why says what keeps it closed.
	serving bool
	why     string
	gpu     *nvml.Reading
	now     time.Time
}

// reporter turns views into lines. It keeps what it said last, so that nothing is said twice.
type reporter struct {
	screen             *Screen
	gate, admin, model string
	said               string
	// exitSaid is the last exit whose output was shown, relaunchSaid the last launch that was announced.
	exitSaid, relaunchSaid time.Time
}

func (r *reporter) show(v view) {
	st := v.engine
	switch st.State {
	case supervisor.Starting, supervisor.Loading:
		r.loading(st, v.gpu, v.now)
	case supervisor.Ready:
		r.ready(v)
	case supervisor.Failed, supervisor.Wedged:
		r.failed(st, v.now)
	case supervisor.Stalled, supervisor.Draining:
		r.once(string(st.State)+st.Text, "engine "+string(st.State)+": "+st.Text)
	case supervisor.Stopped:
		if r.said != "" {
			r.once("stopped"+st.Text, "engine "+st.Text)
		}
	}
}

func (r *reporter) loading(st supervisor.Status, gpu *nvml.Reading, now time.Time) {
	phase, took := currentPhase(st, now)
	if r.screen.Terminal() {
		r.screen.Paint(fmt.Sprintf("loading %s · %s %s%s · %s in all%s%s", r.model, phase.Name, seconds(took), lastTook(phase),
			seconds(now.Sub(st.Started)), expected(st), memory(gpu)))
		return
	}
	r.once(fmt.Sprint("phase ", st.Restarts, phase.Name), fmt.Sprintf("loading %s: phase %s%s%s", r.model, phase.Name, lastTook(phase), memory(gpu)))
}

// ready tells that callers are let in. Until then the engine's being ready is no news that anybody could use.
func (r *reporter) ready(v view) {
	switch {
	case v.serving:
		r.once("ready "+v.engine.ReadyAt.String(), r.readyText(v.engine))
	case v.now.Sub(v.engine.Since) < passing: // it is about to open
	case r.screen.Terminal():
		r.screen.Paint("the gate is closed: " + v.why)
	default:
		r.once("closed "+v.why, "the gate is closed: "+v.why)
	}
}

// failed tells a failure, the output that led to it once, and when the engine is launched again.
func (r *reporter) failed(st supervisor.Status, now time.Time) {
	fresh := st.LastExit != nil && !st.LastExit.At.Before(st.Started)
	if st.State == supervisor.Failed && !fresh && now.Sub(st.Since) < passing {
		return // it is being cleared away; how it ended comes next
	}
	text := "engine " + string(st.State) + ": " + st.Text
	if fresh && !st.LastExit.At.Equal(r.exitSaid) {
		text += exitText(st.LastExit)
		r.exitSaid = st.LastExit.At
	}
	r.once(string(st.State)+st.Text+r.exitSaid.String(), text)
	if !st.RestartAt.IsZero() && !st.RestartAt.Equal(r.relaunchSaid) {
		r.relaunchSaid = st.RestartAt
		r.screen.Line("launching it again in " + seconds(max(st.RestartAt.Sub(now), 0)))
	}
}

func (r *reporter) once(key, text string) {
	if key == r.said {
		return
	}
	r.said = key
	r.screen.Line(text)
}

func (r *reporter) readyText(st supervisor.Status) string {
	var b strings.Builder
	if st.Simulated {
		b.WriteString("*** SIMULATED ENGINE: answers are made up. A real engine: admitd serve --engine vllm ***\n")
	}
	fmt.Fprintf(&b, "ready: %s on %s/v1 (engine %s", r.model, webAddress(r.gate), st.Kind)
	if st.Version != "" {
		b.WriteString(" " + st.Version)
	}
	if st.PID != 0 {
		fmt.Fprintf(&b, ", pid %d", st.PID)
	}
	if d := st.ReadyAt.Sub(st.Started); !st.Started.IsZero() && d > 0 {
		if st.Adopted {
			fmt.Fprintf(&b, ", adopted; it was launched %s before", seconds(d))
		} else {
			fmt.Fprintf(&b, ", loaded in %s", seconds(d))
		}
	}
	fmt.Fprintf(&b, ")\ndashboard: %s/", webAddress(r.admin))
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
	if p.LastTook < 100*time.Millisecond {
		return "" // not known, or too short to matter
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

func exitText(e *supervisor.Exit) string {
	var b strings.Builder
	if e.Hint != "" {
		b.WriteString("\n  what to do: " + e.Hint)
	}
	for _, line := range lastLines(e.Tail, 12) {
		b.WriteString("\n  | " + line)
	}
	return b.String()
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

// webAddress is a listener's address as one would type it: a bare host:port is plain HTTP.
func webAddress(address string) string {
	if strings.Contains(address, ":/") {
		return address
	}
	return "http://" + address
}
