package admission

import (
	"strings"
	"testing"
	"time"

	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
)

// haunt shows an engine with four slots that reads running 4, scrape after scrape, while nothing of ours is there. tokens is
// what it counts at the n-th scrape.
func haunt(t *testing.T, c *Controller, tokens func(n int) (float64, bool)) (now time.Time) {
	t.Helper()
	now = epoch.Add(10 * time.Second)
	for n := range 5 {
		now = now.Add(100 * time.Millisecond)
		before := c.ghosts
		c.Observe(now, signals.NewSnapshot(signals.Snapshot{Seq: uint64(n) + 1, At: now, Life: 1},
			signals.Signal{Name: signals.Running, Value: 4, At: now, State: signals.Live},
			signals.Signal{Name: signals.Waiting, Value: 0, At: now, State: signals.Live}))
		// A snapshot made by a test counts no tokens: what it noted is noted again, with them.
		c.ghosts = before
		v, counted := tokens(n)
		c.noteGhosts(now, c.prevAt, v, counted)
	}
	return now
}

// TestGaugesAreBelievedAboutNothingOfOursOnlyWhileTokensComeOut: requests whose callers have left take slots; gauges that were
// left standing do not.
func TestGaugesAreBelievedAboutNothingOfOursOnlyWhileTokensComeOut(t *testing.T) {
	grows := func(n int) (float64, bool) { return float64(100 + 8*n), true }
	for _, tc := range []struct {
		name   string
		shared bool
		tokens func(int) (float64, bool)
		ghosts int
	}{
		{"tokens come out", false, grows, 4},
		{"gauges left standing", false, func(int) (float64, bool) { return 100, true }, 0},
		{"no counter", false, func(int) (float64, bool) { return 0, false }, 0},
		{"others use the engine as well", true, grows, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := New(Config{Slots: 4, Shared: tc.shared}, compile(t, "policy: queue-depth\nparams: {max_waiting: 0}\nhold: {max_wait: 0s}\n"))
			now := haunt(t, c, tc.tokens)
			n, since := c.Ghosts(now)
			if n != tc.ghosts || n > 0 && !since.Equal(epoch.Add(10*time.Second+100*time.Millisecond)) {
				t.Errorf("%d ghosts since %s", n, since)
			}
			want := policy.Admit
			if tc.ghosts > 0 || tc.shared {
				want = policy.Defer
			}
			if v := c.Arrive(now, arrival("a")); v.Decision.Verdict != want {
				t.Errorf("%+v", v.Decision)
			}
		})
	}
}

// TestGhostsAreForgotten when they have gone, when no token has come out for a while, and with another engine life.
func TestGhostsAreForgotten(t *testing.T) {
	grows := func(n int) (float64, bool) { return float64(100 + 8*n), true }
	c := New(Config{Slots: 4}, nil)
	now := haunt(t, c, grows)
	if n, _ := c.Ghosts(now.Add(ghostPatience + time.Millisecond)); n != 0 {
		t.Errorf("%d ghosts without a token for %s", n, ghostPatience)
	}
	empty := func(life uint64, at time.Time, running float64) *signals.Snapshot {
		return signals.NewSnapshot(signals.Snapshot{Seq: 50, At: at, Life: life},
			signals.Signal{Name: signals.Running, Value: running, At: at, State: signals.Live},
			signals.Signal{Name: signals.Waiting, Value: 0, At: at, State: signals.Live})
	}
	c.Observe(now, empty(2, now, 4))
	if n, _ := c.Ghosts(now); n != 0 {
		t.Errorf("%d ghosts of an engine that is gone", n)
	}
	c = New(Config{Slots: 4}, nil)
	now = haunt(t, c, grows).Add(time.Millisecond)
	c.Observe(now, empty(1, now, 0))
	if n, since := c.Ghosts(now); n != 0 || !since.IsZero() {
		t.Errorf("%d ghosts since %s of an idle engine", n, since)
	}
}

// TestTokensOfOurOwnProveNoGhosts: a request that has just ended brought them out.
func TestTokensOfOurOwnProveNoGhosts(t *testing.T) {
	c := New(Config{Slots: 4}, nil)
	c.Arrive(epoch, arrival("a"))
	c.Progress(epoch, "a", 1)
	if _, err := c.Settle(epoch.Add(10*time.Second), Settlement{ID: "a", Ending: dialect.EndWhole}); err != nil {
		t.Fatal(err)
	}
	now := haunt(t, c, func(n int) (float64, bool) { return float64(100 + 8*n), true })
	if n, _ := c.Ghosts(now); n != 0 {
		t.Errorf("%d ghosts half a second after an ending of our own", n)
	}
}

// TestNoPolicyFillsTheEnginesOwnQueue: where the engine's limit is known no request is sent into it, and the trace says so.
func TestNoPolicyFillsTheEnginesOwnQueue(t *testing.T) {
	c := New(Config{}, compile(t, "policy: admit-all\nhold: {max_wait: 1s, max_requests: 9}\n"))
	c.SetQueueLimit(epoch, QueueLimit{AtEngine: 2})
	for _, id := range []string{"a", "b"} {
		if v := c.Arrive(epoch, arrival(id)); v.Decision.Verdict != policy.Admit {
			t.Fatalf("%s: %+v", id, v.Decision)
		}
	}
	v := c.Arrive(epoch, arrival("c"))
	d := v.Decision
	last := d.Trace[len(d.Trace)-1]
	if d.Verdict != policy.Hold || d.Reason != reason.SlotsFull || last.Rule != "engine_queue" || last.Margin != -1 ||
		!strings.Contains(d.Message, "3 would be at the engine, whose own queue takes 2") {
		t.Errorf("%+v", d)
	}
	vs, err := c.Settle(epoch.Add(time.Millisecond), Settlement{ID: "a", Ending: dialect.EndWhole})
	if err != nil || len(vs) != 1 || vs[0].ID != "c" || vs[0].Decision.Verdict != policy.Admit {
		t.Errorf("after an ending: %+v %v", vs, err)
	}
	// One that is too large by itself is for the engine to judge, when it is alone.
	c.SetQueueLimit(epoch, QueueLimit{AtEngine: 1})
	many := arrival("d")
	many.Facts.Sequences = 4
	if v := c.Arrive(epoch, many); v.Decision.Verdict == policy.Admit {
		t.Errorf("beside others: %+v", v.Decision)
	}
	c = New(Config{}, compile(t, "policy: admit-all\n"))
	c.SetQueueLimit(epoch, QueueLimit{AtEngine: 1})
	if v := c.Arrive(epoch, many); v.Decision.Verdict != policy.Admit {
		t.Errorf("alone: %+v", v.Decision)
	}
}
