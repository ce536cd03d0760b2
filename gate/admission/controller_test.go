package admission

import (
	"testing"
	"time"

	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/signals"
)

// TestVerdictNamesTheRevisionThatJudged: a request that was held under one policy and let in by the next names the next.
func TestVerdictNamesTheRevisionThatJudged(t *testing.T) {
	before := compile(t, "policy: queue-depth\nparams: {max_waiting: 0}\n")
	after := compile(t, "policy: concurrency\nparams: {max_in_flight: 9}\n")
	c := New(Config{Slots: 1}, before)
	c.Arrive(epoch, arrival("a"))
	if v := c.Arrive(epoch, arrival("b")); v.Decision.Verdict != policy.Hold || v.PolicyRev != before.Rev || v.PolicyName != policy.QueueDepth {
		t.Fatalf("%+v", v)
	}
	if c.Policy() != before {
		t.Error("not the policy it was made with")
	}
	vs := c.SetPolicy(epoch.Add(time.Second), after)
	if len(vs) != 1 || vs[0].Decision.Verdict != policy.Admit || vs[0].PolicyRev != after.Rev || vs[0].PolicyName != policy.Concurrency {
		t.Fatalf("%+v", vs)
	}
	if got := c.SetPolicy(epoch, nil); got != nil || c.Policy() != after {
		t.Error("a nil policy changed something")
	}
}

// TestVerdictCanBeJudgedAgain: what a verdict records is enough to repeat the policy's decision, and to ask another policy.
func TestVerdictCanBeJudgedAgain(t *testing.T) {
	p := compile(t, "policy: queue-depth\nparams: {max_waiting: 0}\nhold: {max_wait: 0s}\n")
	c := New(Config{Slots: 1}, p)
	c.Arrive(epoch, arrival("a"))
	v := c.Arrive(epoch, arrival("b"))
	r := policy.Request{PromptTokens: v.PromptTokens, OutputTokens: v.OutputTokens, Sequences: 1}
	if d := Rejudge(p, r, v.State); d.Verdict != policy.Defer || d.Reason != v.Decision.Reason {
		t.Errorf("judged again: %+v", d)
	}
	if d := Rejudge(compile(t, "policy: admit-all\n"), r, v.State); d.Verdict != policy.Admit {
		t.Errorf("admit-all says %+v", d)
	}
	want := View{InFlight: 1, Unseen: 1, Unstarted: 1, ReservedTokens: 256, Slots: 1}
	if got := ViewOf(v.State); got != want {
		t.Errorf("view %+v, want %+v", got, want)
	}
}

func TestDumpTellsNoMoreThanAsked(t *testing.T) {
	c := New(Config{Slots: 1}, compile(t, "policy: queue-depth\nparams: {max_waiting: 0}\n"))
	a := arrival("a")
	a.Tenant = "x"
	c.Arrive(epoch, a)
	c.Arrive(epoch, arrival("b"))
	c.Progress(epoch.Add(time.Second), "a", 5)
	totals := c.Dump(epoch, Totals)
	if totals.InFlight != 1 || totals.Held != 1 || totals.ByTenant != nil || totals.Requests != nil || totals.HeldRequests != nil {
		t.Errorf("totals %+v", totals)
	}
	tenants := c.Dump(epoch, PerTenant)
	if tenants.ByTenant["x"] != 1 || tenants.Requests != nil || tenants.HeldRequests != nil {
		t.Errorf("by tenant %+v", tenants)
	}
	all := c.Dump(epoch, PerRequest)
	if len(all.Requests) != 1 || all.Requests[0].Generated != 5 || !all.Requests[0].FirstTokenAt.Equal(epoch.Add(time.Second)) || len(all.HeldRequests) != 1 {
		t.Errorf("by request %+v", all)
	}
	// A copy: changing it changes nothing.
	all.ByTenant["x"] = 99
	if c.Dump(epoch, PerTenant).ByTenant["x"] != 1 {
		t.Error("the digest shares the controller's map")
	}
}

// TestNilPolicyAndZeroConfigWork: bad configuration must not panic.
func TestNilPolicyAndZeroConfigWork(t *testing.T) {
	c := New(Config{Slots: -3, DefaultOutputTokens: -1, MaxPromises: -1}, nil)
	if c.Policy().Policy.Name() != policy.DualGate {
		t.Errorf("%s is the default", c.Policy().Policy.Name())
	}
	if v := c.Arrive(epoch, arrival("a")); v.Decision.Verdict != policy.Admit {
		t.Errorf("%+v", v.Decision)
	}
	c.Observe(epoch, nil)
	c.Observe(epoch, signals.NewSnapshot(signals.Snapshot{}))
	if _, err := c.Settle(epoch, Settlement{ID: "a", Ending: dialect.EndWhole}); err != nil {
		t.Error(err)
	}
}

// TestAnOldScrapeDoesNotReplaceANewerOne: scrapes may arrive out of order.
func TestAnOldScrapeDoesNotReplaceANewerOne(t *testing.T) {
	c := New(Config{Slots: 4, Shared: true}, compile(t, "policy: queue-depth\n"))
	snap := func(seq uint64, at time.Time, waiting float64) *signals.Snapshot {
		return signals.NewSnapshot(signals.Snapshot{Seq: seq, At: at, Life: 1},
			signals.Signal{Name: signals.Running, At: at, State: signals.Live, Value: 4},
			signals.Signal{Name: signals.Waiting, At: at, State: signals.Live, Value: waiting})
	}
	c.Observe(epoch.Add(2*time.Second), snap(2, epoch.Add(2*time.Second), 3))
	c.Observe(epoch.Add(3*time.Second), snap(1, epoch.Add(time.Second), 0))
	if got := c.State(epoch.Add(3 * time.Second)).Waiting.Value; got != 3 {
		t.Errorf("waiting %v", got)
	}
}
