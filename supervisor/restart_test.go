package supervisor

import (
	"testing"
	"time"
)

func TestF36_BackoffGrowsAndIsCapped(t *testing.T) {
	p := RestartPolicy{First: time.Second, Max: 10 * time.Second, Jitter: -1, Budget: 100, Window: time.Hour}.defaults()
	var c crashes
	now := time.Unix(0, 0)
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		v := p.crashed(&c, now, true, 0)
		if v.giveUp || v.delay != want*time.Second {
			t.Errorf("crash %d: delay %s, giveUp %v; want %ds", i+1, v.delay, v.giveUp, want)
		}
		now = now.Add(time.Minute)
	}
}

func TestF36_JitterOnlyShortens(t *testing.T) {
	for _, rnd := range []float64{0, 0.5, 0.999} {
		var c crashes
		v := RestartPolicy{First: 10 * time.Second, Jitter: 0.5}.defaults().crashed(&c, time.Unix(0, 0), true, rnd)
		want := time.Duration((1 - 0.5*rnd) * float64(10*time.Second))
		if v.delay != want {
			t.Errorf("random %v: delay %s; want %s", rnd, v.delay, want)
		}
	}
}

func TestF36_BudgetWithinWindow(t *testing.T) {
	p := RestartPolicy{Budget: 5, Window: 10 * time.Minute}.defaults()
	var c crashes
	now := time.Unix(0, 0)
	for i := range 5 {
		if v := p.crashed(&c, now.Add(time.Duration(i)*time.Second), true, 0); v.giveUp {
			t.Fatalf("gave up after %d crashes; the budget is 5", i+1)
		}
	}
	if v := p.crashed(&c, now.Add(6*time.Second), true, 0); !v.giveUp || v.why == "" {
		t.Error("the sixth crash within the window did not give up with a reason")
	}
}

func TestF36_OldCrashesAreForgotten(t *testing.T) {
	p := RestartPolicy{Budget: 2, Window: 10 * time.Minute, First: time.Second, Jitter: -1}.defaults()
	var c crashes
	for i := range 50 {
		v := p.crashed(&c, time.Unix(0, 0).Add(time.Duration(i)*11*time.Minute), true, 0)
		if v.giveUp || v.delay != time.Second {
			t.Fatalf("crash %d, 11 min after the one before: %+v; want the first pause", i+1, v)
		}
	}
	if len(c.times) != 1 {
		t.Errorf("%d crashes are remembered; want 1", len(c.times))
	}
}

func TestF36_SlowFailuresToStartDoNotGoOnForEver(t *testing.T) {
	p := RestartPolicy{Budget: 3, Window: 10 * time.Minute, First: time.Second, Jitter: -1}.defaults()
	var c crashes
	now := time.Unix(0, 0)
	for i, want := range []time.Duration{1, 2, 4} {
		v := p.crashed(&c, now, false, 0)
		if v.giveUp || v.delay != want*time.Second {
			t.Fatalf("launch %d that took an hour to fail: %+v; want a pause of %ds", i+1, v, want)
		}
		now = now.Add(time.Hour)
	}
	if v := p.crashed(&c, now, false, 0); !v.giveUp {
		t.Error("four launches in a row never became ready, and it goes on")
	}
}

func TestRestartNever(t *testing.T) {
	var c crashes
	if v := (RestartPolicy{Budget: -1}).defaults().crashed(&c, time.Unix(0, 0), true, 0); !v.giveUp {
		t.Error("a negative budget restarted the engine")
	}
}
