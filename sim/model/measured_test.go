package model

import (
	"testing"
	"time"
)

// The figures of this file were measured on a vLLM 0.32.0 (CPU build, SmolLM2-135M, two cores). The simulated engine
// has to come close: counts of what scheduling decides exactly or nearly so, speeds within a stated margin.

// rate runs n equal streams to their end and returns output tokens per second of simulated time.
func rate(t *testing.T, n int) float64 {
	t.Helper()
	e := newEngine(t, Config{Blocks: 364, BlockTokens: 128, MaxSeqs: 8, MaxModelLen: 2048})
	for i := range n {
		submit(t, e, 0, Request{ID: ID(i + 1), PromptTokens: 37, MaxTokens: 400})
	}
	events := drain(t, e)
	return float64(400*n) / events[len(events)-1].At.Seconds()
}

func within(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s is %.3f, measured was between %.3f and %.3f", what, got, low, high)
	}
}

func TestMeasuredTokenRates(t *testing.T) {
	within(t, "one stream, tokens/s", rate(t, 1), 45, 55)
	within(t, "four streams, tokens/s", rate(t, 4), 110, 200)
	within(t, "eight streams, tokens/s", rate(t, 8), 110, 200)
}

// 736 prompt tokens of eight requests in one step took 0.52 s of prefill; 928 of four took 0.75 to 1 s to first token.
func TestMeasuredPrefill(t *testing.T) {
	for _, tc := range []struct {
		n, prompt int
		low, high float64
	}{{8, 92, 0.45, 0.75}, {4, 232, 0.65, 1.0}, {1, 37, 0.02, 0.06}} {
		e := newEngine(t, Config{Blocks: 364, BlockTokens: 128, MaxSeqs: 8, MaxModelLen: 2048})
		for i := range tc.n {
			submit(t, e, 0, Request{ID: ID(i + 1), PromptTokens: tc.prompt, MaxTokens: 1})
		}
		for _, ev := range drain(t, e) {
			if ev.Kind == Token {
				within(t, "time to first token, s", ev.At.Seconds(), tc.low, tc.high)
			}
		}
	}
}

// 4 slots, 16 callers of 120 tokens: KV usage never rose above 0.034 while 8 waited.
func TestMeasuredFourSlotsSixteenCallers(t *testing.T) {
	e := newEngine(t, Config{Blocks: 364, BlockTokens: 128, MaxSeqs: 4, MaxModelLen: 2048})
	for i := range 16 {
		submit(t, e, 0, Request{ID: ID(i + 1), PromptTokens: 232, MaxTokens: 120})
	}
	peak, waited := 0.0, 0
	for {
		at, ok := e.Next()
		if !ok {
			break
		}
		e.Advance(at)
		st := e.Stats()
		peak, waited = max(peak, st.KVUsage()), max(waited, st.Waiting)
		if st.Running > 4 {
			t.Fatalf("%d requests run in 4 slots", st.Running)
		}
	}
	// Four requests of three blocks each in 363: the capture's own value.
	within(t, "peak KV usage", peak, 12.0/363-1e-9, 0.034)
	if waited != 12 || e.Stats().Preemptions != 0 {
		t.Errorf("%d waited and %d were preempted, want 12 and 0", waited, e.Stats().Preemptions)
	}
}

// 60 blocks of 32 tokens, 8 slots, 10 callers of 92 + 400 tokens: running fell from 8 to 4, 10 preemptions in all,
// 896 steps (recomputing apart) and 7.5 s of work a caller; all ten finished.
func TestMeasuredKVExhausted(t *testing.T) {
	e := newEngine(t, Config{Blocks: 60, BlockTokens: 32, MaxSeqs: 8, MaxModelLen: 640})
	for i := range 10 {
		submit(t, e, 0, Request{ID: ID(i + 1), PromptTokens: 92, MaxTokens: 400, Prefix: unique(ID(i), 15)})
	}
	most, least, peak := 0, 99, 0.0
	var end, firstPreemption time.Duration
	for {
		at, ok := e.Next()
		if !ok {
			break
		}
		for _, ev := range e.Advance(at) {
			end = max(end, ev.At)
			if ev.Kind == Preempted && firstPreemption == 0 {
				firstPreemption = ev.At
			}
		}
		st := e.Stats()
		peak, most = max(peak, st.KVUsage()), max(most, st.Running)
		if st.Waiting > 0 && st.Stopped+st.Lengthened == 0 && st.Running > 0 {
			least = min(least, st.Running)
		}
	}
	st := e.Stats()
	t.Logf("running %d to %d, %d preemptions, first after %v, %d steps, peak KV %.3f, %v in all", most, least, st.Preemptions, firstPreemption, st.Steps, peak, end)
	if most != 8 || least > 4 || least < 3 {
		t.Errorf("running went from %d to %d, measured was from 8 to 4", most, least)
	}
	within(t, "preemptions", float64(st.Preemptions), 6, 16)
	within(t, "steps", float64(st.Steps), 750, 1050)
	within(t, "peak KV usage", peak, 0.96, 1)
	within(t, "seconds in all", end.Seconds(), 20, 36)
	if st.Lengthened != 10 || st.GeneratedTokens != 4000 || st.PromptTokens != 920 || st.PrefixQueries != 920 {
		t.Errorf("counters: %+v", st)
	}
}

// A client that leaves is gone at once, waiting or running, and what it held is free.
func TestMeasuredClientLeaves(t *testing.T) {
	e := newEngine(t, Config{Blocks: 60, BlockTokens: 32, MaxSeqs: 2, MaxModelLen: 640})
	for i := range 4 {
		submit(t, e, 0, Request{ID: ID(i + 1), PromptTokens: 90, MaxTokens: 300})
	}
	e.Advance(2 * time.Second)
	for i := range 4 {
		e.Cancel(2*time.Second, ID(i+1))
	}
	st := e.Stats()
	if st.Running+st.Waiting+st.Used != 0 || st.Cancelled != 4 || st.Lengthened+st.Stopped != 0 {
		t.Errorf("after all clients left: %+v", st)
	}
	if ev := e.Advance(time.Hour); len(ev) != 0 {
		t.Errorf("events after all clients left: %v", ev)
	}
}
