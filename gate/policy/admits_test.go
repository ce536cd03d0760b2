package policy

import (
	"math/rand/v2"
	"testing"
	"time"

	"admitd/signals"
)

// Every policy, setting and state: who admits without saying why must admit what the full decision admits, no more and no
// less, and must not allocate for it.
func TestAdmitsIsWhatDecideSays(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{AdmitAll, Concurrency, QueueDepth, KVThreshold, DualGate, Saturation} {
		for _, stale := range []OnStale{StaleLedger, StaleRefuse, StaleAdmit} {
			text := "policy: " + name + "\n"
			if name != AdmitAll && name != Concurrency {
				text += "on_stale: " + string(stale) + "\n"
			}
			c, err := Compile("", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			admitted := 0
			for range 5000 {
				r, s := randomScene(rnd)
				d := c.Policy.Decide(r, s)
				got := c.Policy.Admits(r, &s)
				if want := d.Verdict == Admit; got != want {
					t.Fatalf("%s, on_stale %s: Admits says %t, Decide %+v\nof %+v\nin %+v", name, stale, got, d, r, s)
				}
				if got {
					admitted++
				}
			}
			if admitted == 0 || admitted == 5000 && name != AdmitAll {
				t.Errorf("%s, on_stale %s: %d of 5000 admitted, so the other answer was never compared", name, stale, admitted)
			}
			r, s := randomScene(rnd)
			if n := testing.AllocsPerRun(100, func() { c.Policy.Admits(r, &s) }); n != 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	}
}

func randomScene(rnd *rand.Rand) (Request, State) {
	states := []signals.State{signals.Live, signals.Live, signals.Flat, signals.Stale, signals.Missing, signals.Contradicted, ""}
	signal := func(n signals.Name, value float64) signals.Signal {
		return signals.Signal{Name: n, Value: value, Unit: signals.UnitOf(n), At: testNow.Add(-time.Second), State: states[rnd.IntN(len(states))]}
	}
	s := State{
		Now: testNow, InFlight: rnd.IntN(40) * rnd.IntN(2), Unstarted: rnd.IntN(10), Promised: rnd.IntN(3), Slots: rnd.IntN(2) * rnd.IntN(40),
		ReservedTokens: rnd.IntN(20_000),
		Running:        signal(signals.Running, float64(rnd.IntN(30))), Waiting: signal(signals.Waiting, float64(rnd.IntN(12)*rnd.IntN(2))),
		KVUsed: signal(signals.KVUsed, rnd.Float64()*1.1), KVCapacity: signal(signals.KVCapacity, float64(rnd.IntN(3)*10_000)),
	}
	return Request{PromptTokens: rnd.IntN(3000), OutputTokens: rnd.IntN(1000), Sequences: rnd.IntN(6)}, s
}
