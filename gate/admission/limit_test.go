package admission

import (
	"strings"
	"testing"
	"time"

	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/signals"
)

// queued is a controller of an engine with four slots and a queue of its own, whose scrape at the epoch shows it idle.
func queued(t *testing.T, l QueueLimit, policyText string) *Controller {
	t.Helper()
	c := New(Config{Slots: 4}, compile(t, policyText))
	c.SetQueueLimit(epoch, l)
	c.Observe(epoch, gauges(1, epoch, 0, 0))
	return c
}

func gauges(seq uint64, at time.Time, running, waiting float64) *signals.Snapshot {
	return signals.NewSnapshot(signals.Snapshot{Seq: seq, At: at, Life: 1},
		signals.Signal{Name: signals.Running, Value: running, At: at, State: signals.Live},
		signals.Signal{Name: signals.Waiting, Value: waiting, At: at, State: signals.Live})
}

// admitted is how many of so many arrivals are admitted.
func admitted(c *Controller, now time.Time, prefix string, n int) (in int) {
	for i := range n {
		if c.Arrive(now, arrival(prefix+string(rune('a'+i)))).Decision.Verdict == policy.Admit {
			in++
		}
	}
	return in
}

// TestBurstDoesNotFillTheQueueOfAnIdleEngine: what comes between two of an engine's steps waits, whatever slots are free.
func TestBurstDoesNotFillTheQueueOfAnIdleEngine(t *testing.T) {
	const at = time.Millisecond
	for name, tc := range map[string]struct {
		proof func(c *Controller, now time.Time)
		more  int
	}{
		"nothing proves that any was begun": {func(*Controller, time.Time) {}, 0},
		"a token proves one": {func(c *Controller, now time.Time) {
			c.Progress(now, "1a", 1)
		}, 1},
		"the gauges prove two": {func(c *Controller, now time.Time) {
			c.Observe(now, gauges(2, now, 2, 1))
		}, 2},
		"gauges that have not moved prove none": {func(c *Controller, now time.Time) {
			c.Observe(now, gauges(2, now, 0, 0))
		}, 0},
		"one taken back into the queue takes a place in it": {func(c *Controller, now time.Time) {
			for _, id := range []ID{"1a", "1b", "1c"} {
				c.Progress(now, id, 1)
			}
			c.Observe(now.Add(at), gauges(2, now.Add(at), 2, 1))
		}, 2},
		"all slots are full": {func(c *Controller, now time.Time) {
			for _, id := range []ID{"1a", "1b", "1c"} {
				c.Progress(now, id, 1)
			}
			c.Arrive(now, arrival("x"))
			c.Progress(now, "x", 1)
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			c := queued(t, QueueLimit{AtEngine: 7, Waiting: 3}, "policy: admit-all\nhold: {max_wait: 0s, max_requests: 0}\n")
			now := epoch.Add(at)
			if n := admitted(c, now, "1", 3); n != 3 {
				t.Fatalf("%d of 3 admitted", n)
			}
			d := c.Arrive(now, arrival("y")).Decision
			if d.Verdict != policy.Defer || !strings.Contains(d.Message, "4 would wait at the engine, whose own queue takes 3") {
				t.Errorf("the fourth: %+v", d)
			}
			now = now.Add(at)
			tc.proof(c, now)
			if n := admitted(c, now.Add(2*at), "2", 9); n != tc.more {
				t.Errorf("%d more admitted, want %d", n, tc.more)
			}
		})
	}
}

// TestQueueIsCountedByTokensWhereGaugesAreMissing.
func TestQueueIsCountedByTokensWhereGaugesAreMissing(t *testing.T) {
	c := New(Config{Slots: 4}, compile(t, "policy: admit-all\nhold: {max_wait: 0s, max_requests: 0}\n"))
	c.SetQueueLimit(epoch, QueueLimit{AtEngine: 6, Waiting: 2})
	if n := admitted(c, epoch, "1", 5); n != 2 {
		t.Errorf("%d admitted, want 2", n)
	}
	c.Progress(epoch, "1a", 1)
	if n := admitted(c, epoch, "2", 5); n != 1 {
		t.Errorf("%d admitted after a token, want 1", n)
	}
}

// TestCallerThatLeavesKeepsItsPlaceInTheEnginesQueueForAWhile: the engine has not noticed yet. One that it ended itself has gone.
func TestCallerThatLeavesKeepsItsPlaceInTheEnginesQueueForAWhile(t *testing.T) {
	for _, tc := range []struct {
		ending dialect.Ending
		limit  QueueLimit
		tokens int
		free   bool
	}{
		{dialect.EndCaller, QueueLimit{AtEngine: 2}, 0, false},
		{dialect.EndCaller, QueueLimit{AtEngine: 2}, 5, false},
		{dialect.EndCut, QueueLimit{AtEngine: 2}, 0, false},
		{dialect.EndWhole, QueueLimit{AtEngine: 2}, 5, true},
		{dialect.EndRefused, QueueLimit{AtEngine: 2}, 0, true},
		{dialect.EndCaller, QueueLimit{Waiting: 2}, 0, false},
		{dialect.EndCaller, QueueLimit{Waiting: 2}, 5, true},
	} {
		t.Run(string(tc.ending), func(t *testing.T) {
			c := queued(t, tc.limit, "policy: admit-all\nhold: {max_wait: 9s, max_requests: 9}\n")
			now := epoch.Add(time.Millisecond)
			if n := admitted(c, now, "1", 3); n != 2 {
				t.Fatalf("%d of 3 admitted", n)
			}
			out, err := c.Settle(now, Settlement{ID: "1a", Ending: tc.ending, CompletionTokens: tc.tokens})
			if err != nil || (len(out) == 1) != tc.free {
				t.Fatalf("at once: %+v %v; want a free place: %v", out, err, tc.free)
			}
			if tc.free {
				return
			}
			if at := c.NextWake(); at.IsZero() || at.After(now.Add(endingGrace)) {
				t.Errorf("looks again at %s, %s after the ending", at, endingGrace)
			}
			if out := c.Tick(now.Add(endingGrace)); len(out) != 1 || out[0].Decision.Verdict != policy.Admit {
				t.Errorf("a while later: %+v", out)
			}
		})
	}
}
