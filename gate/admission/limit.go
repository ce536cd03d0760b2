package admission

import (
	"fmt"
	"time"

	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
)

// QueueLimit is what an engine bears before its own queue limit refuses requests, in sequences; 0 for no such limit.
type QueueLimit struct {
	// AtEngine bounds all that it has, running ones included.
	AtEngine int
	// Waiting bounds those that it has not begun. What arrives between two of its steps waits for the next one, even when all
	// slots are free: a burst can fill the queue of an idle engine.
	Waiting int
}

// SetQueueLimit tells the engine's own queue limit. Engines refuse late and badly: after seconds, inside a 200, without a time
// to come back (vllm#58192), or hang (sglang#33858). So the gate lets no more in, whatever the policy says.
func (c *Controller) SetQueueLimit(now time.Time, l QueueLimit) {
	c.queueLimit = QueueLimit{AtEngine: max(0, l.AtEngine), Waiting: max(0, l.Waiting)}
	if c.hold.len() > 0 {
		c.wake(now)
	}
}

// overfull says how the engine's own queue limit would not bear a request; the zero value that it does.
type overfull struct {
	what, input string
	// taken of limit before the request, after with it.
	taken, after, limit int
}

func (f overfull) yes() bool { return f.limit > 0 }

// beyondQueue tells whether the engine's own queue limit would not bear the request. One that is alone goes through: the engine
// itself says if it is too large.
func (c *Controller) beyondQueue(est estimate, s *policy.State) overfull {
	if c.queueLimit == (QueueLimit{}) {
		return overfull{}
	}
	strangers, _ := c.Ghosts(s.Now)
	left, leftWaiting, _ := c.books.lingering(s.Now)
	at := overfull{what: "be at the engine", input: "in_flight", taken: s.InFlight + s.Promised + strangers + left, limit: c.queueLimit.AtEngine}
	wait := overfull{what: "wait at the engine", input: "not_begun", taken: c.untaken(s) + leftWaiting, limit: c.queueLimit.Waiting}
	for _, f := range []overfull{at, wait} {
		if f.after = f.taken + est.seqs; f.limit > 0 && f.taken > 0 && f.after > f.limit {
			return f
		}
	}
	return overfull{}
}

// untaken is how many sequences at the engine may not have been begun. A token proves that one was, and so do gauges that can be
// believed: an answer that is no stream shows no other sign before its end.
func (c *Controller) untaken(s *policy.State) int {
	running, waiting := c.read(signals.Running, s.Now), c.read(signals.Waiting, s.Now)
	if c.snap == nil || !fresh(running) || !fresh(waiting) {
		return c.books.unstarted
	}
	t, r, w := c.books.view(c.snap.At, c.prevAt), gauge(running), gauge(waiting)
	n := fuseLoad(r, w, s.Slots, t).untaken
	if contradiction(r, w, t) != "" {
		n = max(n, c.books.unstarted)
	}
	return n
}

// within turns an admission that the engine's own queue limit would not bear into a wait.
func (c *Controller) within(d policy.Decision, est estimate, s policy.State) policy.Decision {
	if d.Verdict != policy.Admit {
		return d
	}
	f := c.beyondQueue(est, &s)
	if !f.yes() {
		return d
	}
	text := fmt.Sprintf("%d would %s, whose own queue takes %d", f.after, f.what, f.limit)
	d.Verdict, d.Reason, d.Message = policy.Defer, reason.SlotsFull, text
	d.Counterfactual = fmt.Sprintf("admitted with %d fewer there, or with a higher queue limit of the engine", f.after-f.limit)
	d.Trace = append(d.Trace, policy.Step{Rule: "engine_queue", Text: text, Result: policy.Fail, Margin: float64(f.limit - f.after),
		Inputs: []policy.Input{
			{Name: f.input, Value: float64(f.taken), Unit: string(signals.UnitRequests), State: "ledger"},
			{Name: "queue_limit", Value: float64(f.limit), Unit: string(signals.UnitRequests), State: "engine arguments"},
		}})
	return d
}
