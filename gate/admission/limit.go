package admission

import (
	"fmt"
	"time"

	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
)

// SetQueueLimit tells how many sequences may be at the engine, waiting ones included, before its own queue limit
// refuses some; 0 for no limit. Engines refuse late and badly: after seconds, inside a 200, without a time to come back
// (vllm#58192), or hang (sglang#33858). So the gate lets no more in, whatever the policy says.
func (c *Controller) SetQueueLimit(now time.Time, sequences int) {
	c.queueLimit = max(0, sequences)
	if c.hold.len() > 0 {
		c.wake(now)
	}
}

// atEngine is how many sequences the engine has in hand or will have, as far as can be told.
func (c *Controller) atEngine(s *policy.State) int {
	strangers, _ := c.Ghosts(s.Now)
	return s.InFlight + s.Promised + strangers
}

// beyondQueue reports whether the engine's own queue limit would not bear the request.
func (c *Controller) beyondQueue(est estimate, s *policy.State) bool {
	taken := c.atEngine(s)
	return c.queueLimit > 0 && taken > 0 && taken+est.seqs > c.queueLimit
}

// within turns an admission that the engine's own queue limit would not bear into a wait. A request that is alone goes
// through: the engine itself says if it is too large.
func (c *Controller) within(d policy.Decision, est estimate, s policy.State) policy.Decision {
	if d.Verdict != policy.Admit || !c.beyondQueue(est, &s) {
		return d
	}
	after := c.atEngine(&s) + est.seqs
	text := fmt.Sprintf("%d would be at the engine, whose own queue takes %d", after, c.queueLimit)
	d.Verdict, d.Reason, d.Message = policy.Defer, reason.SlotsFull, text
	d.Counterfactual = fmt.Sprintf("admitted after %d endings, or with a higher queue limit of the engine", after-c.queueLimit)
	d.Trace = append(d.Trace, policy.Step{Rule: "engine_queue", Text: text, Result: policy.Fail, Margin: float64(c.queueLimit - after),
		Inputs: []policy.Input{
			{Name: "in_flight", Value: float64(s.InFlight), Unit: string(signals.UnitRequests), State: "ledger"},
			{Name: "queue_limit", Value: float64(c.queueLimit), Unit: string(signals.UnitRequests), State: "engine arguments"},
		}})
	return d
}
