package app

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"admitd/nvml"
	"admitd/supervisor"
)

var launched = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return launched.Add(d) }

func gib(n float64) *uint64 {
	b := uint64(n * (1 << 30))
	return &b
}

func gpus(devices ...nvml.Device) *nvml.Reading {
	return &nvml.Reading{State: nvml.OK, Devices: devices}
}

// loadingView is an engine in a phase that began so long after its launch.
func loadingView(phase string, began, now time.Duration, last time.Duration) view {
	return view{now: at(now), gpu: gpus(nvml.Device{MemoryUsedBytes: gib(12.5), MemoryTotalBytes: gib(80)}), engine: supervisor.Status{
		State: supervisor.Loading, Started: launched, Phase: phase,
		Phases: []supervisor.PhaseTime{{Name: "launched", Began: launched}, {Name: phase, Began: at(began), LastTook: last}},
	}}
}

func readyView(since time.Duration, serving bool, why string) view {
	return view{now: at(since), serving: serving, why: why, engine: supervisor.Status{
		Kind: supervisor.VLLM, Version: "0.32.0", State: supervisor.Ready, PID: 42, Started: launched, ReadyAt: at(30 * time.Second), Since: at(30 * time.Second),
	}}
}

func failedView(since time.Duration, exit *supervisor.Exit, text string, relaunch time.Time) view {
	return view{now: at(since), engine: supervisor.Status{
		State: supervisor.Failed, Since: at(40 * time.Second), Started: launched, Text: text, LastExit: exit, RestartAt: relaunch,
	}}
}

// told shows the views one after the other and returns what was written.
func told(width func() int, views ...view) string {
	var out bytes.Buffer
	r := reporter{screen: NewScreen(&out, width), gate: "127.0.0.1:8080", admin: "127.0.0.1:8081", model: "m"}
	for _, v := range views {
		r.show(v)
	}
	return out.String()
}

func sameLines(t *testing.T, got, want string) {
	t.Helper()
	if d := cmp.Diff(strings.Split(strings.TrimPrefix(want, "\n"), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestPlainProgressIsOneLineAPhase(t *testing.T) {
	sameLines(t, told(nil,
		view{now: launched, engine: supervisor.Status{State: supervisor.Starting, Started: launched}},
		loadingView("weights", time.Second, time.Second, 8*time.Second),
		loadingView("weights", time.Second, 5*time.Second, 8*time.Second),
		loadingView("compile", 9*time.Second, 9*time.Second, 10*time.Millisecond),
		readyView(30*time.Second, false, "the engine is ready; admitd waits for a first reading of its metrics"),
		readyView(31*time.Second, true, ""),
		readyView(33*time.Second, true, ""),
	), `
loading m: phase launched
loading m: phase weights (last time 8s) · GPU 12.5 of 80.0 GiB
loading m: phase compile · GPU 12.5 of 80.0 GiB
ready: m on http://127.0.0.1:8080/v1 (engine vllm 0.32.0, pid 42, loaded in 30s)
dashboard: http://127.0.0.1:8081/
`)
}

func TestAnAdoptedEngineIsNotSaidToHaveLoadedAllTheTime(t *testing.T) {
	v := readyView(30*time.Second, true, "")
	v.engine.Adopted = true
	sameLines(t, told(nil, v), `
ready: m on http://127.0.0.1:8080/v1 (engine vllm 0.32.0, pid 42, adopted; it was launched 30s before)
dashboard: http://127.0.0.1:8081/
`)
}

func TestTerminalProgressRepaintsOneLine(t *testing.T) {
	wide := func() int { return 200 }
	v := loadingView("weights", time.Second, 5*time.Second, 8*time.Second)
	v.engine.ExpectedReadyIn = 25 * time.Second
	got := told(wide, v, v, readyView(30*time.Second, false, "the engine is loading"), readyView(32*time.Second, false, "admitd waits"), readyView(33*time.Second, true, ""))
	want := wipe + "loading m · weights 4s (last time 8s) · 5s in all, about 25s to go by past starts · GPU 12.5 of 80.0 GiB" +
		wipe + "the gate is closed: admitd waits" +
		wipe + "ready: m on http://127.0.0.1:8080/v1 (engine vllm 0.32.0, pid 42, loaded in 30s)\ndashboard: http://127.0.0.1:8081/\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestGateThatStaysClosedIsToldInPlain(t *testing.T) {
	const why = "policy kv-threshold needs kv_used"
	sameLines(t, told(nil, readyView(31*time.Second, false, why), readyView(33*time.Second, false, why), readyView(60*time.Second, false, why)), `
the gate is closed: policy kv-threshold needs kv_used
`)
}

func TestSimulatedEngineIsSaidSo(t *testing.T) {
	v := readyView(31*time.Second, true, "")
	v.engine.Simulated, v.engine.Kind, v.engine.PID, v.engine.Version, v.engine.Started = true, supervisor.Sim, 0, "", time.Time{}
	sameLines(t, told(nil, v), `
*** SIMULATED ENGINE: answers are made up. A real engine: admitd serve --engine vllm ***
ready: m on http://127.0.0.1:8080/v1 (engine sim)
dashboard: http://127.0.0.1:8081/
`)
}

func TestFailureIsToldOnceWithItsOutputAndWhatComesNext(t *testing.T) {
	exit := &supervisor.Exit{At: at(41 * time.Second), Hint: "lower --gpu-memory-utilization", Tail: []string{"Traceback", "out of memory"}}
	const text = "the engine ended unasked (exit status 1)"
	again := loadingView("launched", 43*time.Second, 43*time.Second, 0)
	again.engine.Restarts, again.engine.LastExit, again.gpu = 1, exit, nil
	clearing := failedView(41*time.Second, exit, "ending what is left of the engine", time.Time{})
	clearing.engine.Started, clearing.engine.Since = at(50*time.Second), at(60*time.Second)
	clearing.now = at(61 * time.Second)
	second := &supervisor.Exit{At: at(62 * time.Second), Tail: []string{"again"}}
	gaveUp := failedView(70*time.Second, second, text+"; it is not launched again (2 crashes)", time.Time{})
	gaveUp.engine.Started = at(50 * time.Second)
	sameLines(t, told(nil,
		failedView(40*time.Second, nil, "ending what is left of the engine", time.Time{}),
		failedView(41*time.Second, exit, text, time.Time{}),
		failedView(41*time.Second, exit, text, at(43*time.Second)),
		failedView(42*time.Second, exit, text, at(43*time.Second)),
		again,
		clearing, // the first life's exit must not be told as this one's
		failedView(63*time.Second, second, text, time.Time{}),
		gaveUp,
		view{now: at(80 * time.Second), engine: supervisor.Status{State: supervisor.Stopped, Text: "stopped, and none of its processes is left"}},
	), `
engine failed: the engine ended unasked (exit status 1)
  what to do: lower --gpu-memory-utilization
  | Traceback
  | out of memory
launching it again in 2s
loading m: phase launched
engine failed: the engine ended unasked (exit status 1)
  | again
engine failed: the engine ended unasked (exit status 1); it is not launched again (2 crashes)
engine stopped, and none of its processes is left
`)
}

func TestClearingAwayThatLastsIsTold(t *testing.T) {
	sameLines(t, told(nil, failedView(43*time.Second, nil, "ending what is left of the engine", time.Time{})), `
engine failed: ending what is left of the engine
`)
}

func TestOtherStates(t *testing.T) {
	state := func(s supervisor.State, text string) view {
		return view{now: at(time.Minute), engine: supervisor.Status{State: s, Text: text, Since: at(time.Minute)}}
	}
	sameLines(t, told(nil,
		state(supervisor.Stopped, "not started"),
		state(supervisor.Draining, "finishing the requests in hand"),
		state(supervisor.Draining, "finishing the requests in hand"),
		state(supervisor.Draining, "waiting for the engine to end"),
		state(supervisor.Stalled, "no token for 60s"),
		state(supervisor.Wedged, "processes do not end"),
	), `
engine draining: finishing the requests in hand
engine draining: waiting for the engine to end
engine stalled: no token for 60s
engine wedged: processes do not end
`)
}

func TestLongTailIsCut(t *testing.T) {
	got := exitText(&supervisor.Exit{Tail: strings.Split(strings.Repeat("x ", 30)+"last", " ")})
	if strings.Count(got, "\n") != 12 || !strings.HasSuffix(got, "\n  | last") {
		t.Errorf("%q", got)
	}
}

func TestGPUMemoryIsShownOnlyWhenKnown(t *testing.T) {
	full := nvml.Device{MemoryUsedBytes: gib(10), MemoryTotalBytes: gib(80)}
	for _, c := range []struct {
		name string
		gpu  *nvml.Reading
		want string
	}{
		{"none", nil, ""},
		{"no library", &nvml.Reading{State: nvml.Unavailable, Devices: []nvml.Device{full}}, ""},
		{"no device", gpus(), ""},
		{"unified memory", gpus(nvml.Device{UnifiedMemory: true}), ""},
		{"one device does not tell", gpus(full, nvml.Device{MemoryTotalBytes: gib(80)}), ""},
		{"two", gpus(full, full), " · GPU 20.0 of 160.0 GiB"},
		{"empty", gpus(nvml.Device{MemoryUsedBytes: gib(0), MemoryTotalBytes: gib(80)}), " · GPU 0.0 of 80.0 GiB"},
	} {
		if got := memory(c.gpu); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
