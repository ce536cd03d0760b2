package admission

import (
	"fmt"
	"time"

	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
)

// Controller implements Controlling. It is not safe for concurrent use; the gate puts one lock around it.
type Controller struct {
	cfg     Config
	policy  *policy.Compiled
	engine  engineFacts
	books   ledger
	est     estimator
	rate    releaseRate
	tickets ticketBook
	hold    holdQueue
	counts  counts
	cached  cachedBook

	snap *signals.Snapshot
	// prevAt is when the good scrape before snap was sent; zero when there was none.
	prevAt time.Time
	// lastKV is the KV use of the last scrape that did not contradict the ledger, and lastKVAt when that was sent.
	lastKV     float64
	lastKVAt   time.Time
	learnt     slotLearner
	ghosts     ghosts
	queueLimit QueueLimit

	closed   bool
	closedBy reason.Code
	closeMsg string
	// closedSlot is the schedule of those who come while closed.
	closedSlot time.Time
	// leaving is the number of sequences held that are about to be let go.
	leaving int
	// seen is what the policy is shown; here, so that showing it allocates nothing.
	seen policy.State
	// wakeAt asks for a Tick although no deadline is near: a first token may have made room.
	wakeAt time.Time
}

var _ Controlling = (*Controller)(nil)

type counts struct {
	arrivals, admitted, deferred, rejected, withdrawn, settled uint64
}

// engineFacts is what was told about the engine when it became ready; 0 where not known.
type engineFacts struct {
	slots, kvCapacity, maxModelLen int
	// kvTold is true when the engine itself said its capacity as it started.
	kvTold bool
	at     time.Time
}

// SetEngine tells what an engine that became ready said about itself; 0 where it said nothing. It takes effect with
// the next decision.
func (c *Controller) SetEngine(now time.Time, slots, kvCapacityTokens, maxModelLen int) {
	c.engine = engineFacts{slots: max(0, slots), kvCapacity: max(0, kvCapacityTokens), maxModelLen: max(0, maxModelLen),
		kvTold: kvCapacityTokens > 0, at: now}
	if c.engine.slots == 0 {
		c.engine.slots = c.cfg.Slots
	}
	if c.engine.kvCapacity == 0 {
		c.engine.kvCapacity = c.cfg.KVCapacityTokens
	}
	if c.engine.maxModelLen == 0 {
		c.engine.maxModelLen = c.cfg.MaxContextTokens
	}
	if c.hold.len() > 0 {
		c.wake(now)
	}
}

// slots is the engine's limit on running sequences: as told, else as learnt, else 0.
func (c *Controller) slots() int {
	if c.engine.slots > 0 {
		return c.engine.slots
	}
	return c.learnt.slots
}

// Arrive implements Controlling.
func (c *Controller) Arrive(now time.Time, a Arrival) Verdict {
	est := c.est.estimate(a.Facts).cutTo(c.engine.maxModelLen, a.Facts)
	v := c.verdict(a, est)
	if !a.DryRun {
		c.counts.arrivals++
		c.tickets.sweep(now)
	}
	if d, ok := c.refusedOutright(a, est); ok {
		v.State = c.state(now, 0)
		return c.refuse(now, v, a, est, d, nil, false)
	}
	p, bad := c.tickets.find(now, a)
	returned := p != nil && p.due(now)
	if !a.DryRun {
		c.noteTicket(p, bad, returned)
	}
	v.State = c.state(now, c.promisedTo(now, returned))
	r := requestOf(a, est)
	if c.seen = v.State; c.plain(a, est, r, &c.seen) {
		v.judge, v.request = c.policy.Policy, r
		return c.admit(now, v, a, est, policy.Decision{Verdict: policy.Admit, Reason: reason.OK}, p)
	}
	d := c.within(c.policy.Policy.Decide(r, v.State), est, v.State)
	why := d.Message
	if first := c.hold.ahead(returned); first != nil && d.Verdict == policy.Admit {
		d, why = behind(d, first, c.hold.len()), first.why
	}
	if d.Verdict == policy.Admit {
		return c.admit(now, v, a, est, d, p)
	}
	if until, ok := c.holdUntil(now, now, a); ok && c.hold.len() < c.policy.Spec.Hold.MaxRequests {
		v.Decision, v.HoldUntil = d, until
		v.Decision.Verdict = policy.Hold
		if !a.DryRun {
			c.enqueue(now, &heldItem{a: a, est: est, since: now, until: until, returned: returned, promise: p, last: d, why: why, state: v.State})
		}
		return v
	}
	return c.refuse(now, v, a, est, d, p, returned)
}

// plain reports whether a request is admitted with nothing to be said about it.
func (c *Controller) plain(a Arrival, est estimate, r policy.Request, s *policy.State) bool {
	return !a.DryRun && c.hold.len() == 0 && c.policy.Policy.Admits(r, s) && !c.beyondQueue(est, s).yes()
}

func (c *Controller) noteTicket(p *promise, bad, returned bool) {
	switch {
	case bad:
		c.tickets.ignored++
	case p != nil && returned:
		c.tickets.honoured++
	case p != nil:
		c.tickets.early++
	}
}

// promisedTo is the room that a request must leave free: none for one that came back in its own window.
func (c *Controller) promisedTo(now time.Time, returned bool) int {
	if returned {
		return 0
	}
	return c.tickets.reserve(now, c.slots())
}

// refusedOutright finds what no waiting can mend.
func (c *Controller) refusedOutright(a Arrival, est estimate) (policy.Decision, bool) {
	if c.closed {
		return policy.Decision{Verdict: policy.Defer, Reason: c.closedBy, Message: c.closeMsg}, true
	}
	if c.books.flights[a.ID] != nil || c.hold.items[a.ID] != nil {
		return policy.Decision{Verdict: policy.Reject, Reason: reason.BadRequest,
			Message: "a request with this id is already in flight or held; ids must be unique"}, true
	}
	return c.tooLarge(a, est)
}

// tooLarge rejects a prompt that cannot fit even if the estimate is off by its margin. What might fit goes on: the
// engine gives an exact 400 for it. An output cap above the context is left to the engine as well, which says so in
// its own words before it takes any memory. A prompt that the engine was asked to cut is never too large.
func (c *Controller) tooLarge(a Arrival, est estimate) (policy.Decision, bool) {
	least := c.est.leastPrompt(a.Facts)
	limit, what := c.engine.maxModelLen, "the model's context"
	if kv := c.kvTokens(); kv > 0 && (limit == 0 || kv < limit) {
		limit, what = kv, "the engine's whole KV cache"
	}
	if limit == 0 || least <= limit || a.Facts.Truncates {
		return policy.Decision{}, false
	}
	said := fmt.Sprintf("at least %d tokens by estimate", least)
	if est.coldText == 0 {
		said = fmt.Sprintf("%d tokens", least)
	}
	d := policy.Decision{
		Verdict: policy.Reject, Reason: reason.TooLarge,
		Message: fmt.Sprintf("the prompt has %s, and %s holds %d; make it smaller", said, what, limit),
		Trace: []policy.Step{{
			Rule: "size", Text: fmt.Sprintf("%s, limit %d", said, limit), Limit: float64(limit), Margin: float64(limit - least), Result: policy.Fail,
			Inputs: []policy.Input{{Name: "prompt_tokens_least", Value: float64(least), Unit: string(signals.UnitTokens), State: "ledger"}},
		}},
		Counterfactual: fmt.Sprintf("a prompt of at most %d tokens could be admitted", limit),
	}
	return d, true
}

func (c *Controller) kvTokens() int {
	if sig := c.kvCapacity(); sig.Present() {
		return int(sig.Value)
	}
	return 0
}

func requestOf(a Arrival, e estimate) policy.Request {
	return policy.Request{
		PromptTokens: e.prompt, OutputTokens: e.output, Sequences: e.seqs,
		Class: a.Class, Tenant: a.Tenant, Session: a.Facts.Session.ID, Attempt: a.Facts.Attempt,
	}
}

// verdict starts an answer with what is the same for all.
func (c *Controller) verdict(a Arrival, e estimate) Verdict {
	v := Verdict{
		ID: a.ID, PolicyName: c.policy.Policy.Name(), PolicyRev: c.policy.Rev,
		PromptTokens: e.prompt, OutputTokens: e.output, ReservedTokens: e.reserved(),
	}
	if c.snap != nil {
		v.SnapshotSeq = c.snap.Seq
	}
	return v
}

// behind turns an admission into a wait: others are held and go first.
func behind(d policy.Decision, first *heldItem, held int) policy.Decision {
	d.Verdict, d.Reason = policy.Defer, first.last.Reason
	ahead := fmt.Sprintf("%d requests are held ahead of this one", held)
	if held == 1 {
		ahead = "1 request is held ahead of this one"
	}
	d.Message = fmt.Sprintf("%s; the first waits because %s", ahead, first.why)
	d.Counterfactual = "admitted when those held ahead have been decided"
	d.Trace = append(d.Trace, policy.Step{Rule: "hold_order", Text: ahead, Result: policy.Fail, Margin: float64(-held),
		Inputs: []policy.Input{{Name: "held", Value: float64(held), Unit: string(signals.UnitRequests), State: "ledger"}}})
	return d
}

// admit reserves and answers in one step.
func (c *Controller) admit(now time.Time, v Verdict, a Arrival, est estimate, d policy.Decision, p *promise) Verdict {
	v.Decision = d
	if a.DryRun {
		return v
	}
	if p != nil {
		c.tickets.use(p)
	}
	c.rate.pass(now, c.books.seqs > 0)
	c.books.add(now, a, est)
	c.counts.admitted++
	return v
}

// holdUntil is how long a request may be held that came at since; false when it is not worth it.
func (c *Controller) holdUntil(now, since time.Time, a Arrival) (time.Time, bool) {
	h := c.policy.Spec.Hold
	if h.MaxWait <= 0 || h.MaxRequests <= 0 {
		return time.Time{}, false
	}
	until := since.Add(h.MaxWait)
	if !a.HoldDeadline.IsZero() && a.HoldDeadline.Before(until) {
		until = a.HoldDeadline
	}
	return until, until.After(now)
}

// enqueue holds a request.
func (c *Controller) enqueue(now time.Time, h *heldItem) {
	if h.returned {
		// The caller is here, so nothing needs to be kept free for it any more.
		c.tickets.use(h.promise)
		h.promise = nil
	}
	c.hold.push(h)
	if h.promise != nil && h.promise.slot.After(now) {
		c.wake(h.promise.slot)
	}
}

// wake asks for a Tick at the time at, or earlier.
func (c *Controller) wake(at time.Time) {
	if c.wakeAt.IsZero() || at.Before(c.wakeAt) {
		c.wakeAt = at
	}
}

// Withdraw implements Controlling.
func (c *Controller) Withdraw(now time.Time, id ID) bool {
	h := c.hold.items[id]
	if h == nil {
		return false
	}
	wasHead := c.hold.head() == h
	c.hold.remove(h)
	c.counts.withdrawn++
	if wasHead && c.hold.len() > 0 {
		c.wake(now)
	}
	return true
}

// Progress implements Controlling.
func (c *Controller) Progress(now time.Time, id ID, generated int) {
	f := c.books.flights[id]
	if f == nil {
		return
	}
	if c.books.progress(now, f, generated) && c.hold.len() > 0 {
		c.wake(now)
	}
}

// OldestUnstarted is the request in flight that has waited longest for its first token; false when there is none.
func (c *Controller) OldestUnstarted() (id ID, ok bool) {
	var first uint64
	for _, f := range c.books.flights {
		if f.firstAt.IsZero() && (!ok || f.order < first) {
			id, first, ok = f.id, f.order, true
		}
	}
	return id, ok
}

// Settle implements Controlling.
func (c *Controller) Settle(now time.Time, s Settlement) ([]Verdict, error) {
	f := c.books.flights[s.ID]
	if f == nil {
		return nil, fmt.Errorf("settling %q: %w", s.ID, ErrNotInFlight)
	}
	c.rate.pass(now, true)
	ran := f.ran(s)
	if ran {
		c.rate.ended(f.est.seqs)
	}
	c.est.learn(f.est, s)
	c.cached.note(now, s)
	c.books.remove(now, f, ran, lingers(s.Ending))
	c.counts.settled++
	return c.pump(now), nil
}

// Observe implements Controlling.
func (c *Controller) Observe(now time.Time, snap *signals.Snapshot) []Verdict {
	if snap == nil || (c.snap != nil && snap.Life == c.snap.Life && snap.Seq < c.snap.Seq) {
		return c.pump(now)
	}
	if c.snap == nil || snap.Life != c.snap.Life {
		c.prevAt, c.lastKV, c.learnt, c.ghosts = time.Time{}, 0, slotLearner{}, ghosts{}
	} else if snap.At.After(c.snap.At) {
		c.prevAt = c.snap.At
	}
	better := c.snap == nil || snap.At.After(c.snap.At) || snap.Life != c.snap.Life
	c.snap = snap
	if better {
		c.books.observed(snap.At)
		c.learnFromScrape(now)
		tokens, counted := snap.TokensTotal()
		c.noteGhosts(now, c.prevAt, tokens, counted)
	}
	return c.pump(now)
}

func (c *Controller) learnFromScrape(now time.Time) {
	running, waiting, kv := c.read(signals.Running, now), c.read(signals.Waiting, now), c.read(signals.KVUsed, now)
	if !fresh(running) || !fresh(waiting) || contradiction(gauge(running), gauge(waiting), c.books.tally(c.snap.At, c.prevAt)) != "" {
		return
	}
	if fresh(kv) {
		c.lastKV, c.lastKVAt = kv.Value, kv.At
	}
	c.learnt.see(gauge(running), gauge(waiting), c.lastKV)
}

// slotLearner finds the engine's slots where nobody told them: the most that ran while others waited, seen twice in
// a row so that a glimpse between two engine steps does not count. Under KV pressure fewer run than there are slots:
// a full cache teaches nothing, and a number that more running requests have proved too low is raised.
type slotLearner struct{ slots, candidate int }

// fullKV is the KV use from which the cache, not the slots, may be what others wait for.
const fullKV = 0.9

func (l *slotLearner) see(running, waiting int, kv float64) {
	if l.slots > 0 && running > l.slots {
		l.slots = running
	}
	if waiting == 0 || running == 0 || kv >= fullKV {
		l.candidate = 0
		return
	}
	if running == l.candidate && running > l.slots {
		l.slots = running
	}
	l.candidate = running
}

// Tick implements Controlling.
func (c *Controller) Tick(now time.Time) []Verdict { return c.pump(now) }

// NextWake implements Controlling.
func (c *Controller) NextWake() time.Time {
	if c.hold.len() == 0 {
		return time.Time{}
	}
	next := c.hold.earliest()
	if !c.wakeAt.IsZero() && c.wakeAt.Before(next) {
		next = c.wakeAt
	}
	return next
}

// SetPolicy implements Controlling. A nil policy changes nothing.
func (c *Controller) SetPolicy(now time.Time, p *policy.Compiled) []Verdict {
	if p == nil {
		return nil
	}
	c.policy = p
	out := c.admitHeld(now)
	var over []*heldItem
	n := 0
	c.hold.each(func(h *heldItem) {
		until, ok := c.holdUntil(now, h.since, h.a)
		h.until = until
		if n++; !ok || n > p.Spec.Hold.MaxRequests {
			over = append(over, h)
		}
	})
	c.hold.wakeValid = false
	c.leave(over)
	for _, h := range over {
		if c.reconsider(now, h); h.last.Verdict == policy.Admit {
			// Those ahead were too large, and are gone.
			c.leaving -= h.est.seqs
			out = append(out, c.letIn(now, h))
			continue
		}
		out = append(out, c.letGo(now, h, h.last))
	}
	c.setWake(now)
	return out
}

// Policy is the revision that judges now.
func (c *Controller) Policy() *policy.Compiled { return c.policy }

// Close implements Controlling.
func (c *Controller) Close(now time.Time, why reason.Code, message string) []Verdict {
	c.closed, c.closedBy, c.closeMsg = true, why, message
	var all []*heldItem
	c.hold.each(func(h *heldItem) { all = append(all, h) })
	out := make([]Verdict, 0, len(all))
	for _, h := range all {
		h.state = c.state(now, 0)
		out = append(out, c.letGo(now, h, policy.Decision{Verdict: policy.Defer, Reason: why, Message: message}))
	}
	return out
}

// Open implements Controlling.
func (c *Controller) Open(time.Time) {
	c.closed, c.closedBy, c.closeMsg, c.closedSlot = false, "", "", time.Time{}
}
