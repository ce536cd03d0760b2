package admission

import (
	"fmt"
	"time"

	"admitd/gate/policy"
	"admitd/gate/reason"
)

// pump admits held requests from the head for as long as the policy lets them in, then lets those go whose time is up.
func (c *Controller) pump(now time.Time) []Verdict {
	c.tickets.sweep(now)
	out := c.admitHeld(now)
	expired := c.hold.expired(now)
	c.leave(expired)
	for _, h := range expired {
		c.reconsider(now, h)
		out = append(out, c.letGo(now, h, expiredDecision(now, h)))
	}
	c.setWake(now)
	return out
}

// admitHeld admits from the head until one must wait: strictly in order, so that nobody starves.
func (c *Controller) admitHeld(now time.Time) []Verdict {
	var out []Verdict
	for h := c.hold.head(); h != nil; h = c.hold.head() {
		c.reconsider(now, h)
		if h.last.Verdict != policy.Admit {
			break
		}
		out = append(out, c.letIn(now, h))
	}
	return out
}

// letIn ends a hold with admission.
func (c *Controller) letIn(now time.Time, h *heldItem) Verdict {
	c.hold.remove(h)
	v := c.verdict(h.a, h.est)
	v.State, v.HeldFor = h.state, now.Sub(h.since)
	return c.admit(now, v, h.a, h.est, h.last, h.promise)
}

// setWake asks for a Tick when room lapses that is kept for ticket holders, or for what the engine may still have: the head may
// get it then.
func (c *Controller) setWake(now time.Time) {
	c.wakeAt = time.Time{}
	if c.hold.len() == 0 {
		return
	}
	if at := c.tickets.nextLapse(now); !at.IsZero() {
		c.wake(at.Add(time.Millisecond))
	}
	if _, _, until := c.books.lingering(now); c.queueLimit != (QueueLimit{}) && !until.IsZero() {
		c.wake(until)
	}
	if h := c.hold.head(); h.promise != nil && h.promise.slot.After(now) {
		c.wake(h.promise.slot)
	}
}

// reconsider judges one held request again, at its place in the queue.
func (c *Controller) reconsider(now time.Time, h *heldItem) {
	if h.promise != nil && (now.After(h.promise.end) || !c.tickets.stands(h.promise)) {
		h.promise = nil
	}
	privileged := h.returned || (h.promise != nil && h.promise.due(now))
	h.state = c.state(now, c.promisedTo(now, privileged))
	d := c.within(c.policy.Policy.Decide(requestOf(h.a, h.est), h.state), h.est, h.state)
	h.why = d.Message
	if first := c.hold.head(); first != h && d.Verdict == policy.Admit {
		d, h.why = behind(d, first, c.hold.len()-1), first.why
	}
	h.last = d
}

func expiredDecision(now time.Time, h *heldItem) policy.Decision {
	d := h.last
	d.Verdict, d.Reason = policy.Defer, reason.HoldExpired
	d.Message = fmt.Sprintf("held for %s and no room came: %s", now.Sub(h.since).Round(time.Millisecond), h.last.Message)
	return d
}

// leave announces who will be let go next: the first of them must not be given a time behind the others.
func (c *Controller) leave(hs []*heldItem) {
	for _, h := range hs {
		c.leaving += h.est.seqs
	}
}

// letGo ends a hold without admission.
func (c *Controller) letGo(now time.Time, h *heldItem, d policy.Decision) Verdict {
	c.hold.remove(h)
	c.leaving = max(0, c.leaving-h.est.seqs)
	v := c.verdict(h.a, h.est)
	v.State, v.HeldFor = h.state, now.Sub(h.since)
	return c.refuse(now, v, h.a, h.est, d, h.promise, h.returned)
}

// refuse answers with Defer or Reject: when to come back, and the ticket. p is the slot that the caller has already,
// returned says that it came in its window.
func (c *Controller) refuse(now time.Time, v Verdict, a Arrival, est estimate, d policy.Decision, p *promise, returned bool) Verdict {
	v.Decision = d
	if p != nil && !c.tickets.stands(p) {
		p = nil
	}
	if d.Verdict == policy.Defer {
		if c.closed {
			c.appointClosed(now, &v, a, est)
		} else {
			c.appoint(now, &v, a, est, p, returned)
		}
	}
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

// appoint chooses the time to come back: the first that the promises still outstanding leave free. Successive
// appointments are spaced by the measured release rate, so that obedient callers do not return together; one that came
// early gets no later time than it has, and an earlier one where there is room; one that came in time and found no room
// comes back soon, outside the schedule; when the schedule is full up to the policy's longest Retry-After, the request
// is rejected as saturated, except on an idle engine, which can take whoever comes next.
func (c *Controller) appoint(now time.Time, v *Verdict, a Arrival, est estimate, p *promise, returned bool) {
	retry := c.policy.Spec.Retry
	if p != nil && p.slot.After(now) {
		c.bringForward(now, v, p, a.DryRun)
		return
	}
	slot := c.freeSlot(now, est.seqs, nil)
	if returned || p != nil {
		slot = now.Add(retry.Min)
	}
	if latest := now.Add(retry.Max); slot.After(latest) && c.idle() {
		slot = latest
	}
	if slot.After(now.Add(retry.Max)) {
		v.RetryAfter = retry.Max
		v.Decision.Verdict, v.Decision.Reason = policy.Reject, reason.Saturated
		v.Decision.Message = fmt.Sprintf("no room is in sight within %s: %s; come back in %d s at the earliest",
			retry.Max, v.Decision.Message, RetrySeconds(retry.Max))
		return
	}
	if a.DryRun {
		c.give(now, slot, v, nil)
		return
	}
	if p != nil {
		c.tickets.use(p)
	}
	c.give(now, slot, v, c.tickets.promise(now, slot, a, est.seqs))
}

// bringForward answers a caller that came before its time.
func (c *Controller) bringForward(now time.Time, v *Verdict, p *promise, dry bool) {
	slot := c.freeSlot(now, p.seqs, p)
	if !slot.Before(p.slot) {
		c.give(now, p.slot, v, p)
		return
	}
	if dry {
		c.give(now, slot, v, nil)
		return
	}
	c.tickets.move(now, p, slot)
	c.give(now, slot, v, p)
}

// idle: nothing of ours is at the engine or held, and nobody else uses it.
func (c *Controller) idle() bool { return c.books.seqs == 0 && c.hold.len() == 0 && !c.cfg.Shared }

// freeSlot is the first time at which seqs sequences can come, beside the promises outstanding but without that of
// except. Only the promises themselves are fixed; how long each takes is asked of the rate as it is now, so that what
// was promised at an unknown rate weighs little once a high one is known, and next to nothing while the engine is idle.
func (c *Controller) freeSlot(now time.Time, seqs int, except *promise) time.Time {
	least := c.policy.Spec.Retry.Min
	if c.idle() {
		takes := func(int) time.Duration { return leastSpacing }
		latest := now.Add(least + time.Duration(len(c.tickets.ahead(now)))*leastSpacing)
		return earlier(latest, c.tickets.gap(now, now.Add(least), takes, seqs, except))
	}
	takes, held := c.releaseTime(now), c.hold.seqs-c.leaving
	return c.tickets.gap(now, now.Add(max(least, takes(held+seqs))), takes, seqs, except)
}

// releaseTime gives the time in which so many sequences are released.
func (c *Controller) releaseTime(now time.Time) func(seqs int) time.Duration {
	rate := c.rate.at(now, c.books.seqs > 0).perSecond()
	if rate <= 0 {
		rate = unknownRate
	}
	return func(seqs int) time.Duration { return max(leastSpacing, atRate(seqs, rate)) }
}

// appointClosed spaces those who come while nothing is let in. Nothing is promised: nobody knows when it opens.
func (c *Controller) appointClosed(now time.Time, v *Verdict, a Arrival, est estimate) {
	takes := c.releaseTime(now)
	slot := now.Add(max(c.policy.Spec.Retry.Min, takes(c.hold.seqs+est.seqs)))
	if c.closedSlot.After(slot) {
		slot = c.closedSlot
	}
	next := slot.Add(takes(est.seqs))
	if latest := now.Add(c.policy.Spec.Retry.Max); slot.After(latest) {
		slot, next = latest, c.closedSlot
	}
	if !a.DryRun {
		c.closedSlot = next
	}
	c.give(now, slot, v, nil)
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
