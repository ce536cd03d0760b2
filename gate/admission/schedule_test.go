package admission

import (
	"fmt"
	"math"
	"testing"
	"time"

	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/gate/reason"
)

func compile(t testing.TB, src string) *policy.Compiled {
	t.Helper()
	p, err := policy.Compile("", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const fullHouse = "policy: queue-depth\nparams: {max_waiting: 0}\nhold: {max_wait: 0s}\n"

func arrival(id string) Arrival {
	return Arrival{ID: ID(id), Facts: dialect.Facts{Sequences: 1, Prompts: 1}}
}

// full returns a controller whose slots are all taken, and which has seen endings at the given rate a second.
func full(t testing.TB, src string, slots int, rate float64) (*Controller, time.Time) {
	t.Helper()
	c := New(Config{Slots: slots, TicketKey: []byte(testKey)}, compile(t, src))
	now := epoch
	for i := range slots {
		c.Arrive(now, arrival(fmt.Sprint("full", i)))
	}
	step := time.Duration(float64(time.Second) / rate)
	for i := 0; now.Before(epoch.Add(time.Minute)) && rate > 0 && i < 1000; i++ {
		now = now.Add(step)
		if _, err := c.Settle(now, Settlement{ID: ID(fmt.Sprint("full", i)), Ending: dialect.EndWhole, CompletionTokens: 9}); err != nil {
			t.Fatal(err)
		}
		if v := c.Arrive(now, arrival(fmt.Sprint("full", i+slots))); v.Decision.Verdict != policy.Admit {
			t.Fatalf("%+v", v.Decision)
		}
	}
	return c, now
}

// TestTwoHundredDeferralsAreSpaced: nobody returns with anybody else, the spacing is that of the measured endings, and
// whoever would have to wait for more than a minute is told that the pool is saturated.
func TestTwoHundredDeferralsAreSpaced(t *testing.T) {
	const rate = 2.0
	c, now := full(t, fullHouse, 4, rate)
	var last time.Duration
	deferred := 0
	for i := range 200 {
		v := c.Arrive(now, arrival(fmt.Sprint("w", i)))
		switch v.Decision.Verdict {
		case policy.Defer:
			deferred++
			gap := v.RetryAfter - last
			if i > 0 && math.Abs(gap.Seconds()-1/rate) > 0.05 {
				t.Fatalf("deferral %d comes %s after the one before", i, gap)
			}
			if v.RetryAfter < time.Second || v.RetryAfter > time.Minute || v.Ticket == "" {
				t.Fatalf("deferral %d: %s, ticket %q", i, v.RetryAfter, v.Ticket)
			}
			last = v.RetryAfter
		case policy.Reject:
			if v.Decision.Reason != reason.Saturated || v.RetryAfter != time.Minute || v.Ticket != "" {
				t.Fatalf("rejection %d: %s, retry after %s", i, v.Decision.Reason, v.RetryAfter)
			}
		default:
			t.Fatalf("%s", v.Decision.Verdict)
		}
	}
	// From 1 s to 60 s at two a second.
	if deferred < 115 || deferred > 122 {
		t.Errorf("%d deferred before saturation, want about 119", deferred)
	}
	// Ten seconds later the schedule has moved on by ten seconds' worth.
	again := 0
	for i := range 200 {
		if v := c.Arrive(now.Add(10*time.Second), arrival(fmt.Sprint("x", i))); v.Decision.Verdict == policy.Defer {
			again++
		}
	}
	if again < 10 || again > 25 {
		t.Errorf("%d more deferred after ten seconds", again)
	}
	checkBooks(t, c)
}

// TestScheduleShrinksWhenTheRateIsLearnt: a burst at an unknown rate fills the next minute with a caller a second. Once
// endings have shown a high rate and the engine is idle again, those who come later need not wait behind that minute,
// nobody is told that the pool is saturated, and those who come back early get an earlier time.
func TestScheduleShrinksWhenTheRateIsLearnt(t *testing.T) {
	c := New(Config{Slots: 4, TicketKey: []byte(testKey)}, compile(t, "policy: queue-depth\nparams: {max_waiting: 2}\nhold: {max_wait: 0s}\n"))
	now, last := epoch, Verdict{}
	for i := range 70 {
		if v := c.Arrive(now, arrival(fmt.Sprint("burst", i))); v.Decision.Verdict == policy.Defer {
			last = v
		}
	}
	if last.RetryAfter < 55*time.Second {
		t.Fatalf("the last of the burst is told %s; there is no schedule to shrink", last.RetryAfter)
	}
	now = now.Add(100 * time.Millisecond)
	for i := range 6 {
		if _, err := c.Settle(now, Settlement{ID: ID(fmt.Sprint("burst", i)), Ending: dialect.EndWhole, CompletionTokens: 9}); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 6 {
		now = now.Add(5 * time.Second)
		var in []ID
		for i := range 8 {
			v := c.Arrive(now, arrival(fmt.Sprint("later", round, i)))
			switch {
			case v.Decision.Verdict == policy.Admit:
				in = append(in, v.ID)
			case v.Decision.Verdict == policy.Reject || v.RetryAfter > 2*time.Second:
				t.Errorf("%s after the burst: %s %s, retry after %s", now.Sub(epoch), v.Decision.Verdict, v.Decision.Reason, v.RetryAfter)
			}
		}
		if len(in) < 5 {
			t.Errorf("%d of 8 admitted by an idle engine with 4 slots, of which 2 may wait", len(in))
		}
		if round == 0 {
			early := arrival("early")
			early.Facts.Ticket = last.Ticket
			v := c.Arrive(now, early)
			if v.Decision.Verdict != policy.Defer || v.RetryAfter > 3*time.Second || v.Ticket == "" {
				t.Errorf("early return: %s, retry after %s, ticket %q", v.Decision.Verdict, v.RetryAfter, v.Ticket)
			}
			if again := c.Arrive(now, dryRun(early, v.Ticket)); again.RetryAfter > v.RetryAfter {
				t.Errorf("a second early return moved the time from %s to %s", v.RetryAfter, again.RetryAfter)
			}
		}
		for _, id := range in {
			if _, err := c.Settle(now.Add(time.Second), Settlement{ID: id, Ending: dialect.EndWhole, CompletionTokens: 9}); err != nil {
				t.Fatal(err)
			}
		}
	}
	checkBooks(t, c)
}

// Two copies of one request come back early and are held together: the one that is let in uses their promise up.
func TestPromiseOfTwoCopiesIsNotMovedOnceOneHasUsedIt(t *testing.T) {
	c := New(Config{Slots: 1, TicketKey: []byte(testKey)}, compile(t, "policy: concurrency\nparams: {max_in_flight: 1}\nhold: {max_wait: 1s, max_requests: 2}\n"))
	now := epoch
	for _, id := range []string{"runs", "held1", "held2"} {
		c.Arrive(now, arrival(id))
	}
	copied := arrival("first")
	copied.Facts.BodyHash = 7
	if v := c.Arrive(now, copied); v.Decision.Verdict != policy.Defer || v.Ticket == "" {
		t.Fatalf("not deferred with a ticket: %+v", v.Decision)
	}
	c.Withdraw(now, "held1")
	c.Withdraw(now, "held2")
	copied.Facts.Attempt = 1
	for _, id := range []ID{"copy1", "copy2"} {
		copied.ID = id
		if v := c.Arrive(now, copied); v.Decision.Verdict != policy.Hold {
			t.Fatalf("%s: %+v", id, v.Decision)
		}
	}
	vs, err := c.Settle(now.Add(10*time.Millisecond), Settlement{ID: "runs", Ending: dialect.EndWhole})
	if err != nil || len(vs) != 1 || vs[0].ID != "copy1" || vs[0].Decision.Verdict != policy.Admit {
		t.Fatalf("%+v, %v", vs, err)
	}
	vs = c.Tick(now.Add(1100 * time.Millisecond))
	if len(vs) != 1 || vs[0].ID != "copy2" || vs[0].Decision.Verdict != policy.Defer || vs[0].Ticket == "" {
		t.Fatalf("the second copy: %+v", vs)
	}
	if len(c.tickets.promises) != 1 || len(c.tickets.bySeq) != 1 {
		t.Errorf("promises: %d in order, %d by number, want the second copy's own", len(c.tickets.promises), len(c.tickets.bySeq))
	}
}

func dryRun(a Arrival, ticket string) Arrival {
	a.DryRun, a.Facts.Ticket = true, ticket
	return a
}

// TestF24_RetryAfterIsAlwaysAWholeNumberOfSecondsFromOneToSixty whatever the rate, the policy's bounds, the sequences
// of the request and the state of the schedule.
func TestF24_RetryAfterIsAlwaysAWholeNumberOfSecondsFromOneToSixty(t *testing.T) {
	for _, d := range []time.Duration{-time.Hour, 0, 1, time.Millisecond, time.Second, time.Second + 1, 59*time.Second + 1, time.Minute, time.Minute + 1, time.Hour, math.MaxInt64} {
		if s := RetrySeconds(d); s < 1 || s > 60 {
			t.Errorf("%s gives %d", d, s)
		}
	}
	if got := RetrySeconds(time.Second + 1); got != 2 {
		t.Errorf("1.000000001 s gives %d, must be rounded up", got)
	}
	for _, bounds := range []string{"{min: 1s, max: 60s}", "{min: 60s, max: 60s}", "{min: 1s, max: 1s}", "{min: 2500ms, max: 2500ms}"} {
		for _, rate := range []float64{0, 0.02, 3, 500} {
			for _, seqs := range []int{1, 7, 100_000} {
				c, now := full(t, fullHouse+"retry_after: "+bounds+"\n", 4, rate)
				for i := range 150 {
					a := arrival(fmt.Sprint("w", i))
					a.Facts.Sequences = seqs
					v := c.Arrive(now.Add(time.Duration(i)*7*time.Millisecond), a)
					if v.Decision.Verdict != policy.Defer && v.Decision.Verdict != policy.Reject {
						t.Fatalf("%s", v.Decision.Verdict)
					}
					if s := RetrySeconds(v.RetryAfter); s < 1 || s > 60 || v.RetryAfter < time.Second || v.RetryAfter > time.Minute {
						t.Fatalf("bounds %s, rate %v, %d sequences: %s", bounds, rate, seqs, v.RetryAfter)
					}
				}
				for i, v := range c.Close(now, reason.Draining, "bye") {
					t.Errorf("%d: nothing was held, got %+v", i, v)
				}
				for i := range 150 {
					v := c.Arrive(now, arrival(fmt.Sprint("c", i)))
					if s := RetrySeconds(v.RetryAfter); v.Decision.Verdict != policy.Defer || v.Decision.Reason != reason.Draining || s < 1 || s > 60 {
						t.Fatalf("closed: %s %s %s", v.Decision.Verdict, v.Decision.Reason, v.RetryAfter)
					}
				}
			}
		}
	}
}

// TestPromisesAreBounded: a flood gets times, but no more tickets than the table holds.
func TestPromisesAreBounded(t *testing.T) {
	c := New(Config{Slots: 1, TicketKey: []byte(testKey), MaxPromises: 10}, compile(t, fullHouse))
	c.Arrive(epoch, arrival("one"))
	tickets := 0
	for i := range 50 {
		v := c.Arrive(epoch, arrival(fmt.Sprint("w", i)))
		if v.RetryAfter == 0 {
			t.Fatalf("%+v", v)
		}
		if v.Ticket != "" {
			tickets++
		}
	}
	if tickets != 10 {
		t.Errorf("%d tickets", tickets)
	}
	checkBooks(t, c)
	// Lapsed promises make room for new ones.
	late := epoch.Add(10 * time.Minute)
	if v := c.Arrive(late, arrival("late")); v.Ticket == "" {
		t.Error("no ticket although all promises have lapsed")
	}
	checkBooks(t, c)
}

func FuzzTicket(f *testing.F) {
	c, now := full(f, fullHouse, 1, 1)
	v := c.Arrive(now, arrival("w"))
	f.Add(v.Ticket)
	f.Add("t1.")
	f.Add("t2." + v.Ticket[3:])
	f.Add(v.Ticket + "=")
	f.Fuzz(func(t *testing.T, s string) {
		seq, ok := c.tickets.decode(s)
		if !ok {
			return
		}
		// Whatever decodes must be the very text that was given out.
		p := c.tickets.bySeq[seq]
		if p == nil || c.tickets.encode(p) != s {
			t.Fatalf("%q was accepted", s)
		}
	})
}
