package gate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"admitd/gate/admission"
	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/gate/reason"
)

const twoSecondHold = "policy: concurrency\nparams:\n  max_in_flight: 1\nhold:\n  max_wait: 2s\n  max_requests: 5\n"

// started returns a running Admission; it must be called inside a bubble.
func started(t *testing.T) *Admission {
	t.Helper()
	p := compile(t, twoSecondHold)
	a := NewAdmission(admission.New(admission.Config{TicketKey: []byte("0123456789abcdef0123456789abcdef")}, p), nil)
	a.SetPolicy(p)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return a
}

func ask(id string) admission.Arrival {
	return admission.Arrival{ID: admission.ID(id), Tenant: "t", Class: "c",
		Facts: dialect.Facts{Endpoint: dialect.Classify("POST", chatPath), Sequences: 1, Prompts: 1}}
}

func end(id string) admission.Settlement {
	return admission.Settlement{ID: admission.ID(id), Ending: dialect.EndWhole, Estimated: true}
}

// held asks in a goroutine and returns once the request is held.
func held(ctx context.Context, a *Admission, id string) <-chan admission.Verdict {
	out := make(chan admission.Verdict, 1)
	go func() { out <- a.Decide(ctx, ask(id)) }()
	synctest.Wait()
	return out
}

func want(t *testing.T, v admission.Verdict, verdict policy.Verdict) {
	t.Helper()
	if v.Decision.Verdict != verdict {
		t.Errorf("%s: %s (%s), want %s", v.ID, v.Decision.Verdict, v.Decision.Reason, verdict)
	}
}

func TestHeldRequestLeavesWhenRoomComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := started(t)
		want(t, a.Decide(t.Context(), ask("a")), policy.Admit)
		b, c := held(t.Context(), a, "b"), held(t.Context(), a, "c")
		<-time.After(time.Second)
		if err := a.Settle(end("a")); err != nil {
			t.Fatal(err)
		}
		v := <-b
		want(t, v, policy.Admit)
		if v.HeldFor != time.Second {
			t.Errorf("held for %s", v.HeldFor)
		}
		// c does not fit beside b, and its time runs out.
		want(t, <-c, policy.Defer)
		if err := a.Settle(end("b")); err != nil {
			t.Fatal(err)
		}
		if err := a.Settle(end("b")); !errors.Is(err, admission.ErrNotInFlight) {
			t.Errorf("second settlement: %v", err)
		}
		if d := a.Dump(admission.PerRequest); d.InFlight != 0 || d.Held != 0 || len(a.held) != 0 {
			t.Errorf("books %+v, %d waiters", d, len(a.held))
		}
	})
}

func TestHoldEndsInTimeWithoutAnyOtherEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := started(t)
		a.Decide(t.Context(), ask("a"))
		begun := time.Now()
		v := a.Decide(t.Context(), ask("b"))
		want(t, v, policy.Defer)
		if took := time.Since(begun); took < 2*time.Second || took > 2*time.Second+10*time.Millisecond {
			t.Errorf("the hold of 2s ended after %s", took)
		}
	})
}

func TestCallerWhoLeavesIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := started(t)
		a.Decide(t.Context(), ask("a"))
		ctx, cancel := context.WithCancel(t.Context())
		b := held(ctx, a, "b")
		<-time.After(300 * time.Millisecond)
		cancel()
		v := <-b
		want(t, v, policy.Hold)
		if v.HeldFor != 300*time.Millisecond {
			t.Errorf("held for %s", v.HeldFor)
		}
		if d := a.Dump(admission.Totals); d.Held != 0 || d.InFlight != 1 {
			t.Errorf("books %+v", d)
		}
	})
}

// Leaving and being admitted in the same instant: whichever wins, the reservation is not lost.
func TestLeavingAndRoomAtOnceLosesNoReservation(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			a := started(t)
			a.Decide(t.Context(), ask("a"))
			ctx, cancel := context.WithCancel(t.Context())
			b := held(ctx, a, "b")
			var wg sync.WaitGroup
			wg.Go(cancel)
			wg.Go(func() { _ = a.Settle(end("a")) })
			wg.Wait()
			if v := <-b; v.Decision.Verdict == policy.Admit {
				if err := a.Settle(end("b")); err != nil {
					t.Error(err)
				}
			} else {
				want(t, v, policy.Hold)
			}
			if d := a.Dump(admission.Totals); d.InFlight != 0 || d.Held != 0 {
				t.Errorf("books %+v", d)
			}
		})
	}
}

func TestPolicySwapAndCloseReachTheHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := started(t)
		a.Decide(t.Context(), ask("a"))
		b := held(t.Context(), a, "b")
		p := compile(t, admitAll)
		a.SetPolicy(p)
		v := <-b
		want(t, v, policy.Admit)
		if v.PolicyRev != p.Rev || a.policyMark().rev != p.Rev {
			t.Errorf("judged by %s, marked %s, want %s", v.PolicyRev, a.policyMark().rev, p.Rev)
		}
		a.SetPolicy(compile(t, twoSecondHold))
		c := held(t.Context(), a, "c")
		a.Close(reason.Draining, "stopping")
		v = <-c
		want(t, v, policy.Defer)
		if v.Decision.Reason != reason.Draining || !strings.Contains(v.Decision.Message, "stopping") {
			t.Errorf("decision %+v", v.Decision)
		}
		if a.closed() == nil {
			t.Error("not closed")
		}
		want(t, a.Decide(t.Context(), ask("d")), policy.Defer)
		a.Open()
		if a.closed() != nil {
			t.Error("still closed")
		}
	})
}

func TestDryRunIsNeverHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := started(t)
		a.Decide(t.Context(), ask("a"))
		q := ask("q")
		q.DryRun = true
		want(t, a.Decide(t.Context(), q), policy.Hold)
		if d := a.Dump(admission.Totals); d.Held != 0 || d.Arrivals != 1 || len(a.held) != 0 {
			t.Errorf("books %+v", d)
		}
	})
}

// The policy's name is known before the first arrival, even from a controller that does not say.
func TestPolicyNameIsKnownFromTheStart(t *testing.T) {
	p := compile(t, admitAll)
	a := NewAdmission(admission.New(admission.Config{}, p), nil)
	if m := a.policyMark(); m == nil || m.name != "admit-all" || m.rev != p.Rev {
		t.Errorf("mark %+v", m)
	}
	if d := a.Dump(admission.Totals); d.Arrivals != 0 {
		t.Errorf("asking counted as an arrival: %+v", d)
	}
}

func TestWithReachesTheController(t *testing.T) {
	a := NewAdmission(admission.New(admission.Config{}, compile(t, admitAll)), nil)
	a.With(func(now time.Time, c admission.Controlling) { c.(*admission.Controller).SetEngine(now, 7, 0, 0) })
	if d := a.Dump(admission.Totals); d.Slots != 7 {
		t.Errorf("slots %d", d.Slots)
	}
}
