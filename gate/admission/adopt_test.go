package admission

import (
	"errors"
	"testing"
	"time"

	"admitd/gate/dialect"
	"admitd/gate/policy"
)

// Requests that another gate still serves must take room here, or two gates promise the same slots.
func TestAdoptedRequestsTakeRoomUntilTheyAreSettled(t *testing.T) {
	p, err := policy.Compile("", []byte("policy: concurrency\nparams: {max_in_flight: 2}\nhold: {max_wait: 0s, max_requests: 0}\n"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	c := New(Config{}, p)
	theirs := []Reservation{
		{ID: "a", Tenant: "t", AdmittedAt: now.Add(-time.Minute), PromptTokens: 10, ReservedTokens: 110, Generated: 5, FirstTokenAt: now.Add(-time.Second), Sequences: 1},
		{ID: "b", Tenant: "t", AdmittedAt: now.Add(time.Hour), PromptTokens: 900, ReservedTokens: 20}, // a clock that is ahead, sums that cannot be
		{ID: ""},
	}
	c.Adopt(now, theirs)
	c.Adopt(now, theirs) // the same list twice changes nothing
	d := c.Dump(now, PerTenant)
	if d.InFlight != 2 || d.ReservedTokens != 130 || d.Admitted != 2 || d.Arrivals != 2 || d.ByTenant["t"] != 2 {
		t.Errorf("%+v", d)
	}
	if s := c.State(now); s.Unstarted != 1 {
		t.Errorf("%d have not begun, want 1: one had its first token", s.Unstarted)
	}
	arrive := func(id ID) policy.Verdict {
		return c.Arrive(now, Arrival{ID: id, Tenant: "u", Class: "default"}).Decision.Verdict
	}
	if v := arrive("c"); v == policy.Admit {
		t.Error("a third was admitted beside two, the limit being two")
	}
	if _, err := c.Settle(now, Settlement{ID: "a", Ending: dialect.EndWhole, PromptTokens: 10, CompletionTokens: 50}); err != nil {
		t.Error(err)
	}
	if _, err := c.Settle(now, Settlement{ID: "a", Ending: dialect.EndWhole}); !errors.Is(err, ErrNotInFlight) {
		t.Errorf("settled twice: %v", err)
	}
	if v := arrive("d"); v != policy.Admit {
		t.Errorf("%s although one has ended", v)
	}
	if _, err := c.Settle(now, Settlement{ID: "b", Ending: dialect.EndCut}); err != nil {
		t.Error(err)
	}
	if d := c.Dump(now, Totals); d.InFlight != 1 || d.EstimateCorrection != 1 {
		t.Errorf("%+v: nothing is to be learnt of prompts that were not seen", d)
	}
}
