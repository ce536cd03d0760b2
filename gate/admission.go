package gate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"admitd/gate/admission"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
)

// Admission gives the controller what it must not have itself: a lock, a clock, a timer and callers that wait.
// It is safe for concurrent use. Nothing is called while its lock is held but the controller and the clock.
type Admission struct {
	clock func() time.Time

	mu   sync.Mutex
	c    admission.Controlling
	held map[admission.ID]chan ruling
	shut *closure

	flights flights

	wake   chan struct{}
	policy atomic.Pointer[policyMark]
	snap   atomic.Pointer[signals.Snapshot]
}

// closure says why nothing is let in.
type closure struct {
	why     reason.Code
	message string
}

// policyMark names the revision that judges now, and its status codes.
type policyMark struct {
	name, rev string
	codes     map[reason.Code]int
}

// NewAdmission wraps a controller, which must not be used by anyone else from then on. clock nil means time.Now.
func NewAdmission(c admission.Controlling, clock func() time.Time) *Admission {
	if clock == nil {
		clock = time.Now
	}
	a := &Admission{clock: clock, c: c, held: map[admission.ID]chan ruling{}, wake: make(chan struct{}, 1)}
	if has, ok := c.(interface{ Policy() *policy.Compiled }); ok {
		a.mark(has.Policy())
	}
	return a
}

func (a *Admission) mark(p *policy.Compiled) {
	if p == nil || p.Policy == nil {
		return
	}
	a.policy.Store(&policyMark{name: p.Policy.Name(), rev: p.Rev, codes: p.Spec.Codes})
}

// policyMark names the policy that judges now; nil when the controller does not say.
func (a *Admission) policyMark() *policyMark {
	if m := a.policy.Load(); m != nil {
		return m
	}
	// A dry run changes nothing and tells the revision, whatever else the controller has to say.
	a.arrive(admission.Arrival{DryRun: true})
	return a.policy.Load()
}

// ruling is a verdict with the revision that judged, so that a swap in the same instant cannot part the two.
type ruling struct {
	admission.Verdict
	by *policyMark
}

// rule pairs a verdict with the revision that gave it. The lock is held.
func (a *Admission) rule(v admission.Verdict) ruling {
	m := a.policy.Load()
	if v.PolicyName != "" && (m == nil || m.rev != v.PolicyRev) {
		m = &policyMark{name: v.PolicyName, rev: v.PolicyRev}
		a.policy.Store(m)
	}
	return ruling{Verdict: v, by: m}
}

// Decide asks for a decision and, when it is Hold, waits until the controller has another one. A verdict that is
// still Hold means that ctx ended first and the request was withdrawn. An Admit verdict has reserved and must be
// settled, even when ctx has ended meanwhile.
func (a *Admission) Decide(ctx context.Context, arr admission.Arrival) admission.Verdict {
	return a.decide(ctx, arr).Verdict
}

func (a *Admission) decide(ctx context.Context, arr admission.Arrival) ruling {
	v, wait, since := a.arrive(arr)
	if wait == nil {
		return v
	}
	select {
	case v := <-wait:
		return v
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock()
	a.c.Withdraw(now, arr.ID)
	delete(a.held, arr.ID)
	a.poke()
	select {
	case v := <-wait:
		// Decided in the same instant: the verdict counts, its reservation is real.
		return v
	default:
	}
	v.HeldFor = now.Sub(since)
	return v
}

func (a *Admission) arrive(arr admission.Arrival) (v ruling, wait chan ruling, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock()
	v = a.rule(a.c.Arrive(now, arr))
	if v.Decision.Verdict != policy.Hold || arr.DryRun {
		return v, nil, now
	}
	wait = make(chan ruling, 1)
	a.held[arr.ID] = wait
	a.poke()
	return v, wait, now
}

// deliver hands verdicts to those who wait for them. The lock is held.
func (a *Admission) deliver(vs []admission.Verdict) {
	for _, v := range vs {
		if v.Decision.Verdict == policy.Hold {
			continue
		}
		if wait, ok := a.held[v.ID]; ok {
			delete(a.held, v.ID)
			wait <- a.rule(v)
		}
	}
	a.poke()
}

// poke makes Run look at NextWake again.
func (a *Admission) poke() { signal(a.wake) }

// Progress tells that an admitted request has generated so many tokens in all.
func (a *Admission) Progress(id admission.ID, generated int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.c.Progress(a.clock(), id, generated)
	if len(a.held) > 0 {
		a.poke()
	}
}

// Settle ends an admitted request. It returns admission.ErrNotInFlight (wrapped or not) the second time.
func (a *Admission) Settle(s admission.Settlement) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	vs, err := a.c.Settle(a.clock(), s)
	a.deliver(vs)
	return err
}

// Observe takes a new scrape.
func (a *Admission) Observe(snap *signals.Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.snap.Store(snap)
	a.deliver(a.c.Observe(a.clock(), snap))
}

// SetPolicy swaps the policy; held requests are judged again by it, requests in flight are not touched.
func (a *Admission) SetPolicy(p *policy.Compiled) {
	a.mu.Lock()
	defer a.mu.Unlock()
	vs := a.c.SetPolicy(a.clock(), p)
	a.mark(p)
	a.deliver(vs)
}

// Close refuses everything held and everything that comes, with the reason and message given, until Open.
func (a *Admission) Close(why reason.Code, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shut = &closure{why: why, message: message}
	a.deliver(a.c.Close(a.clock(), why, message))
}

// Open lets requests in again.
func (a *Admission) Open() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shut = nil
	a.c.Open(a.clock())
}

// closed returns why nothing is let in; nil when open.
func (a *Admission) closed() *closure {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.shut
}

// Dump copies the books.
func (a *Admission) Dump(d admission.Depth) admission.Digest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.c.Dump(a.clock(), d)
}

// With calls f with the controller and the present time under the lock, for what has no method here, for
// instance telling it the engine's limits. f must not block, nor call the Admission.
func (a *Admission) With(f func(now time.Time, c admission.Controlling)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a.clock(), a.c)
	a.poke()
}

// Run calls Tick when the controller wants it, until ctx ends; it returns nil then. Without it nobody who is
// held ever times out.
func (a *Admission) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if next, ok := a.untilWake(); ok {
			timer.Reset(next)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-timer.C:
			a.tick()
		}
	}
}

func (a *Admission) untilWake() (time.Duration, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.c.NextWake()
	if at.IsZero() {
		return 0, false
	}
	// Not sooner than a millisecond: a controller that asks for the past must not make this loop spin.
	return max(at.Sub(a.clock()), time.Millisecond), true
}

func (a *Admission) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deliver(a.c.Tick(a.clock()))
}
