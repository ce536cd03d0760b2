package policy

import (
	"fmt"

	"admitd/gate/reason"
	"admitd/signals"
)

// newConcurrency builds concurrency.
//
// Idea: at most so many sequences at the engine; Little's law turns a target residence and a throughput into
// that number. Source: the classic limit of every server; Little (1961), L = lambda * W.
// Formula: in flight + promised + sequences <= max_in_flight. Everything is the gate's own knowledge, so it works
// on any engine and with no scrape at all. Parameters: max_in_flight, 32 by default, in sequences (n = 4 counts 4,
// a batch of 16 prompts counts 16).
// When it fails: a number that suits short prompts overfills the KV cache with long ones; the right number
// moves with the mix, and nothing here moves it. A request larger than the limit runs only alone.
// on_stale: of no effect, since no signal is read.
func newConcurrency(s Spec) *ruled {
	return &ruled{policy: Concurrency, onStale: StaleLedger, rules: []rule{inFlightRule{max: *s.Params.MaxInFlight}}}
}

type inFlightRule struct{ max int }

func (c inFlightRule) name() string   { return "in_flight" }
func (c inFlightRule) limit() float64 { return float64(c.max) }

func (c inFlightRule) after(r Request, s *State) int { return s.InFlight + s.Promised + r.Sequences }

func (c inFlightRule) passes(r Request, s *State) bool { return c.after(r, s) <= c.max }

func (c inFlightRule) eval(r Request, s State) finding {
	after := c.after(r, &s)
	f := finding{step: Step{Result: Pass, Margin: float64(c.max - after), Inputs: []Input{
		ledgerInput("in_flight", float64(s.InFlight), signals.UnitRequests),
		ledgerInput("promised", float64(s.Promised), signals.UnitRequests),
		ledgerInput("sequences", float64(r.Sequences), signals.UnitRequests),
	}}}
	if after <= c.max {
		f.step.Text = fmt.Sprintf("%d would be in flight, limit %d", after, c.max)
		return f
	}
	f.step.Result = Fail
	f.step.Text = fmt.Sprintf("%d would be in flight, above the limit %d", after, c.max)
	f.code = reason.SlotsFull
	f.message = fmt.Sprintf("%s would be in flight with this one%s, and the policy allows %d (max_in_flight)", count(after, "request"), promised(s), c.max)
	f.flip = fmt.Sprintf("admitted with max_in_flight %d, or after %s", after, count(after-c.max, "ending"))
	return f
}
