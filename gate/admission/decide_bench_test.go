package admission

import (
	"fmt"
	"testing"
	"time"

	"admitd/gate/policy"
	"admitd/signals"
)

// busy is a controller with so many requests in flight, half of them seen by the last scrape, before an engine that shows them.
func busy(tb testing.TB, text string, inFlight int) (*Controller, time.Time) {
	tb.Helper()
	p, err := policy.Compile("", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	c := New(Config{KVCapacityTokens: 1 << 22}, p)
	now := epoch
	for i := range inFlight {
		if i == inFlight/2 {
			now = now.Add(time.Second)
			c.Observe(now, signals.NewSnapshot(signals.Snapshot{Seq: 1, At: now, StaleAfter: time.Hour},
				signals.Signal{Name: signals.Running, Value: float64(i), State: signals.Live, At: now},
				signals.Signal{Name: signals.Waiting, Value: 0, State: signals.Live, At: now},
				signals.Signal{Name: signals.KVUsed, Value: 0.1, State: signals.Live, At: now}))
		}
		now = now.Add(time.Millisecond)
		if v := c.Arrive(now, arrival(fmt.Sprint("r", i))); v.Decision.Verdict != policy.Admit {
			tb.Fatalf("%+v", v.Decision)
		}
	}
	return c, now
}

// wide are the built-in policies with limits that let everything through here.
var wide = []string{
	"policy: admit-all\n",
	"policy: concurrency\nparams:\n  max_in_flight: 100000\n",
	"policy: queue-depth\nparams:\n  max_waiting: 100000\n",
	"policy: kv-threshold\nparams:\n  max_kv_used: 1.0\n",
	"policy: dual-gate\nparams:\n  max_waiting: 100000\n  max_kv_used: 1.0\n",
	"policy: saturation\nparams:\n  waiting_scale: 100000\n",
}

// A decision must not cost more the more is in flight, nor leave work to the collector.
func TestAdmissionAllocatesNothing(t *testing.T) {
	for _, text := range wide {
		c, now := busy(t, text, 256)
		a, s := arrival("x"), Settlement{ID: "x", Ending: "whole", PromptTokens: 10, CompletionTokens: 5}
		n := testing.AllocsPerRun(2*maxEnded, func() {
			now = now.Add(time.Millisecond)
			if v := c.Arrive(now, a); v.Decision.Verdict != policy.Admit {
				t.Fatalf("%+v", v.Decision)
			}
			if _, err := c.Settle(now, s); err != nil {
				t.Fatal(err)
			}
		})
		if n >= 0.5 {
			t.Errorf("%q: %v allocations for an arrival and its settlement", text, n)
		}
	}
}

func BenchmarkDecision(b *testing.B) {
	for _, text := range wide {
		c, now := busy(b, text, 256)
		a, s := arrival("x"), Settlement{ID: "x", Ending: "whole", PromptTokens: 10, CompletionTokens: 5}
		b.Run(c.Policy().Policy.Name(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				c.Arrive(now, a)
				_, _ = c.Settle(now, s)
			}
		})
	}
}
