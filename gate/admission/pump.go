package admission

import (
	"fmt"
	"time"

	"admitd/gate/policy"
	"admitd/gate/reason"
)

// pump admits held requests from the head for as long as the policy lets them in, then lets those go whose time is up.
func (c *Controller) pump(now time.Time) []Verdict {
	c.wakeAt = time.Time{}
	if c.hold.len() == 0 {
		return nil
	}
	c.rate.pass(now, c.books.seqs > 0)
	c.tickets.sweep(now)
	var out []Verdict
	for {
		h := c.hold.head()
		if h == nil {
			break
		}
		v, admitted := c.rejudge(now, h)
		if !admitted {
			break
		}
		out = append(out, v)
	}
	for _, h := range c.hold.expired(now) {
		out = append(out, c.letGo(now, h, expiredDecision(now, h)))
	}
	if at := c.tickets.nextLapse(now); !at.IsZero() && c.hold.len() > 0 {
		c.wakeAt = at.Add(time.Millisecond)
	}
	return out
}

// rejudge judges one held request again and admits it if the policy says so.
func (c *Controller) rejudge(now time.Time, h *heldItem) (Verdict, bool) {
	if h.promise != nil && now.After(h.promise.end) {
		h.promise = nil
	}
	privileged := h.returned || (h.promise != nil && h.promise.due(now))
	v := c.verdict(h.a, h.est)
	v.State = c.state(now, c.promisedTo(now, privileged))
	d := c.policy.Policy.Decide(requestOf(h.a, h.est), v.State)
	if d.Verdict != policy.Admit {
		h.last = d
		return v, false
	}
	v.HeldFor = now.Sub(h.since)
	c.hold.remove(h)
	return c.admit(now, v, h.a, h.est, d, h.promise), true
}

func expiredDecision(now time.Time, h *heldItem) policy.Decision {
	d := h.last
	d.Verdict, d.Reason = policy.Defer, reason.HoldExpired
	d.Message = fmt.Sprintf("held for %s and no room came: %s", now.Sub(h.since).Round(time.Millisecond), h.last.Message)
	return d
}

// letGo ends a hold without admission.
func (c *Controller) letGo(now time.Time, h *heldItem, d policy.Decision) Verdict {
	c.hold.remove(h)
	v := c.verdict(h.a, h.est)
	v.State = c.state(now, 0)
	v.HeldFor = now.Sub(h.since)
	if h.returned && d.Verdict == policy.Defer {
		return c.refuseReturned(now, v, h, d)
	}
	return c.refuse(now, v, h.a, h.est, d, h.promise)
}

// refuse answers with Defer or Reject: when to come back, and the ticket.
func (c *Controller) refuse(now time.Time, v Verdict, a Arrival, est estimate, d policy.Decision, p *promise) Verdict {
	v.Decision = d
	if d.Verdict == policy.Defer {
		c.appoint(now, &v, a, est, p)
	}
	return c.count(v, a)
}

// refuseReturned sends a ticket holder away that came in its window and was held in vain: its next time is soon.
func (c *Controller) refuseReturned(now time.Time, v Verdict, h *heldItem, d policy.Decision) Verdict {
	v.Decision = d
	slot := now.Add(c.policy.Spec.Retry.Min)
	c.give(now, slot, &v, c.tickets.promise(now, slot, h.a, h.est.seqs))
	return c.count(v, h.a)
}

func (c *Controller) count(v Verdict, a Arrival) Verdict {
	if a.DryRun {
		return v
	}
	if v.Decision.Verdict == policy.Reject {
		c.counts.rejected++
	} else {
		c.counts.deferred++
	}
	return v
}

// appoint chooses the time to come back. Successive appointments are spaced by the measured release rate, so that
// obedient callers do not return together; one that came early keeps its time; when the schedule is full up to the
// policy's longest Retry-After, the request is rejected as saturated.
func (c *Controller) appoint(now time.Time, v *Verdict, a Arrival, est estimate, p *promise) {
	retry := c.policy.Spec.Retry
	if p != nil && p.slot.After(now) {
		c.give(now, p.slot, v, p)
		return
	}
	slot, next := c.nextSlot(now, est.seqs)
	if slot.After(now.Add(retry.Max)) {
		v.RetryAfter = retry.Max
		if !c.closed {
			v.Decision.Verdict, v.Decision.Reason = policy.Reject, reason.Saturated
			v.Decision.Message = fmt.Sprintf("no room is in sight within %s: %s", retry.Max, v.Decision.Message)
		}
		v.Decision.Message += fmt.Sprintf("; come back in %d s at the earliest", RetrySeconds(v.RetryAfter))
		return
	}
	if a.DryRun {
		c.give(now, slot, v, nil)
		return
	}
	if p != nil {
		c.tickets.use(p)
	}
	c.tickets.nextSlot = next
	if c.closed {
		c.give(now, slot, v, nil)
		return
	}
	c.give(now, slot, v, c.tickets.promise(now, slot, a, est.seqs))
}

func (c *Controller) give(now, slot time.Time, v *Verdict, p *promise) {
	v.RetryAfter = min(maxRetryAfter, max(minRetryAfter, slot.Sub(now)))
	if p != nil {
		v.Ticket = c.tickets.encode(p)
	}
	v.Decision.Message += fmt.Sprintf("; come back in %d s", RetrySeconds(v.RetryAfter))
}

const (
	// unknownRate is assumed while no ending has been seen, in sequences per second.
	unknownRate  = 1.0
	leastSpacing = 10 * time.Millisecond
	// Only 1 to 60 s of Retry-After are honoured by all SDKs.
	minRetryAfter = time.Second
	maxRetryAfter = time.Minute
)

// nextSlot is the next free time of the schedule, and the one after it.
func (c *Controller) nextSlot(now time.Time, seqs int) (slot, next time.Time) {
	rate := c.rate.perSecond()
	if rate <= 0 {
		rate = unknownRate
	}
	retry := c.policy.Spec.Retry
	slot = now.Add(max(retry.Min, atRate(c.hold.seqs+seqs, rate)))
	if c.tickets.nextSlot.After(slot) {
		slot = c.tickets.nextSlot
	}
	return slot, slot.Add(max(leastSpacing, atRate(seqs, rate)))
}

// atRate is the time that n sequences take to be released, bounded well beyond any Retry-After.
func atRate(n int, rate float64) time.Duration {
	const most = 3600.0
	return time.Duration(min(most, float64(n)/rate) * float64(time.Second))
}

// RetrySeconds is what goes into the Retry-After header: whole seconds, rounded up, always from 1 to 60.
func RetrySeconds(d time.Duration) int {
	s := int((d + time.Second - 1) / time.Second)
	return min(60, max(1, s))
}
