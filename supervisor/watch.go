package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// slowProbeGap is the least time between two health probes of an engine whose probe is a real request (SGLang).
const slowProbeGap = 10 * time.Second

// listEvery is the pause between two looks at the model list of an engine of ours: 1 ms of its server's time that tells whether
// anything but /health answers.
const listEvery = 15 * time.Second

// canaryPatience is how many HealthTimeouts an idle engine gets for one token: it may have been swapped out.
const canaryPatience = 2

// briskly is the pause between probes, and between looks at the counters, while the engine is stalled: a stall is left as soon
// as it is over.
const briskly = time.Second

// vital is what the health watch tells: that a probe begins, or its result.
type vital struct {
	begins bool
	err    error
	// token is true when the probe also generated one.
	token bool
	// unasked is true when /health was not asked this time, only for External.
	unasked bool
	// facts is what a look at the model list found, nil without one.
	facts *readiness
	// canary is what came of asking an idle engine for a token, nil when it was not asked, or load came in between.
	canary *canary
}

// canary is one token asked of an engine that has nothing else to do.
type canary struct{ err error }

// pulse is how the watch and its prober talk beside the results.
type pulse struct {
	askToken, askCanary, brisk atomic.Bool
	// now asks for a probe at once.
	now chan struct{}
	// flying ends the canary on its way; nil when there is none.
	flying atomic.Pointer[context.CancelFunc]
}

// land ends the canary on its way: load has come, which tells more and must not share the engine with it.
func (p *pulse) land() {
	if cancel := p.flying.Load(); cancel != nil {
		(*cancel)()
	}
}

// watch follows a ready engine until it is over.
func (s *Supervisor) watch(ctx context.Context, l *life) *ending {
	p := &pulse{now: make(chan struct{}, 1)}
	vitals := make(chan vital)
	defer background(ctx, func(ctx context.Context) { s.takeVitals(ctx, p, vitals) })()
	live := &liveness{failures: s.o.HealthFailures, stallAfter: s.o.StallAfter, idleSince: s.now(), provenAt: s.now()}
	if l.doubt {
		live.declare()
	}
	deaths, kin := 0, slices.Clone(l.members)
	pace := max(min(surveyEvery, s.o.StallAfter/4), time.Millisecond)
	look := time.NewTicker(pace)
	defer look.Stop()
	for {
		select {
		case <-l.child.done():
			return &ending{kind: endExit}
		case <-ctx.Done():
			return &ending{kind: endStop}
		case r := <-s.requests:
			return &ending{kind: endRestart, reply: r.reply}
		case reply := <-s.releases:
			return &ending{kind: endRelease, reply: reply}
		case <-s.out.wakeup:
			s.publish(l)
			if seen, _ := s.out.view(); seen.deaths > deaths {
				deaths, live.hinted = seen.deaths, true
				notify(p.now)
			}
		case <-look.C:
			s.survey(l)
			kin = s.mourn(live, kin, l.members)
		case v := <-vitals:
			if end := s.hear(live, v); end != nil {
				return end
			}
		}
		if end := s.judge(live, p); end != nil {
			return end
		}
		p.askToken.Store(live.askToken())
		s.release(live, p)
		if stalled := s.status.Load().State == Stalled; stalled != p.brisk.Swap(stalled) {
			if look.Reset(pace); stalled {
				look.Reset(min(pace, briskly))
				notify(p.now)
			}
		}
	}
}

// mourn looks for processes that have gone, and returns those that are left. kin were there when the engine became ready.
func (s *Supervisor) mourn(live *liveness, kin, now []ident) (left []ident) {
	for _, id := range kin {
		if slices.Contains(now, id) {
			left = append(left, id)
			continue
		}
		live.bereaved(s.now())
		s.out.note(fmt.Sprintf("process %d of the engine has gone; if it has nothing to do it is asked for a token", id.PID))
	}
	return left
}

// release says whether a canary may be sent, and takes back one that load has overtaken.
func (s *Supervisor) release(live *liveness, p *pulse) {
	idle := s.idle()
	if !idle {
		p.land()
	}
	due := idle && live.canaryDue(s.now(), s.o.CanaryAfter)
	if due && !p.askCanary.Swap(due) {
		notify(p.now)
	}
	p.askCanary.Store(due)
}

// idle reports whether nothing at all is at the engine, so that a token asked of it disturbs nobody. Any goroutine.
func (s *Supervisor) idle() bool { return s.o.Idle == nil || s.o.Idle() }

// hear takes what the health watch tells. An external engine can be over by that.
func (s *Supervisor) hear(live *liveness, v vital) *ending {
	now := s.now()
	switch {
	case v.begins:
		live.asked(now)
		return nil
	case !v.unasked:
		live.healthy(now, v.err)
	}
	if v.token {
		live.proved(now)
	}
	if v.facts != nil {
		live.listed(v.facts.err)
	}
	switch {
	case v.canary == nil:
	case v.canary.err == nil:
		live.proved(now)
	case !refusal(v.canary.err):
		live.unproved(v.canary.err)
	}
	if s.o.Kind == External {
		return s.hearExternal(v)
	}
	return nil
}

// judge moves between Ready and Stalled; a result means that the stall has lasted too long, or is over for an external engine,
// which may be another one now.
func (s *Supervisor) judge(live *liveness, p *pulse) *ending {
	now := s.now()
	if s.o.Progress != nil {
		running, tokens, known := s.o.Progress()
		live.progress(now, running, tokens, known)
	}
	if live.askHealth(now) {
		notify(p.now)
	}
	f, stalled := live.stalled(now)
	st := s.status.Load()
	switch {
	case stalled && st.State == Ready:
		live.declare()
		s.update(func(st *Status) {
			st.State, st.Text, st.Trouble = Stalled, "the engine is stalled: "+f.why, s.stallTrouble(f.code, now)
		})
	case stalled && s.o.Kind != External && live.overdue(now, st.Since, s.patience(codeOf(st.Trouble))):
		// The last word has a fresh look, not a probe of some time ago.
		if live.looked(now, min(s.o.HealthTimeout, probePatience)) {
			return &ending{kind: endStall, why: f.why}
		}
		notify(p.now)
	case stalled && f.code == CoreDead && codeOf(st.Trouble) != CoreDead:
		s.update(func(st *Status) {
			st.Text, st.Trouble = "the engine is stalled: "+f.why, s.stallTrouble(CoreDead, st.Since)
		})
	case !stalled && st.State == Stalled && s.o.Kind == External:
		return &ending{kind: endBack}
	case !stalled && st.State == Stalled:
		s.update(func(st *Status) { st.State, st.Text = Ready, "ready again after a stall" })
		if s.o.OnReady != nil {
			s.o.OnReady()
		}
	}
	return nil
}

// codeOf is the code of a trouble, "" when there is none.
func codeOf(t *Trouble) TroubleCode {
	if t == nil {
		return ""
	}
	return t.Code
}

// takeVitals probes at intervals and when now says so, one probe after the other.
func (s *Supervisor) takeVitals(ctx context.Context, p *pulse, results chan<- vital) {
	ask := s.askLaunched(p)
	gap := time.Duration(0)
	if s.o.dialect() == SGLang {
		gap = min(slowProbeGap, s.o.HealthInterval)
	}
	if s.o.Kind == External {
		ask = s.askExternal(p)
	}
	tell := func(v vital) bool {
		select {
		case results <- v:
			return true
		case <-ctx.Done():
			return false
		}
	}
	pause := time.NewTimer(s.o.HealthInterval)
	defer pause.Stop()
	var began time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.now:
			if rest := gap - s.now().Sub(began); rest > 0 {
				pause.Reset(rest)
				continue
			}
		case <-pause.C:
		}
		began = s.now()
		if !ask(ctx, tell) {
			return
		}
		next := s.o.HealthInterval
		if p.brisk.Load() {
			next = max(min(next, briskly), gap-s.now().Sub(began))
		}
		pause.Reset(next)
	}
}

// asker makes one probe and tells of it; false when ctx ended.
type asker func(ctx context.Context, tell func(vital) bool) bool

// askLaunched asks an engine of ours for its health, now and then for its model list, in doubt for a token.
func (s *Supervisor) askLaunched(p *pulse) asker {
	pr := s.prober(nil)
	listedAt := s.now() // readiness has just seen the list
	deaf := false
	return func(ctx context.Context, tell func(vital) bool) bool {
		if !tell(vital{begins: true}) {
			return false
		}
		once, cancel := context.WithTimeout(ctx, s.o.HealthTimeout)
		defer cancel()
		v := vital{err: pr.health(once)}
		switch {
		case v.err != nil:
		case p.askToken.Load():
			v.err = pr.token(once, s.status.Load().Model)
			v.token = v.err == nil
		case p.askCanary.Load():
			v.canary = s.sendCanary(ctx, pr, p)
		case deaf || s.now().Sub(listedAt) >= listEvery:
			listedAt = s.now()
			v.facts = &readiness{}
			_, _, _, v.facts.err = pr.models(once)
			deaf = v.facts.err != nil
		}
		return tell(v)
	}
}

// sendCanary asks an idle engine for one token, patiently. nil means that load came in between and nothing is known.
func (s *Supervisor) sendCanary(ctx context.Context, pr *prober, p *pulse) *canary {
	ctx, cancel := context.WithTimeout(ctx, canaryPatience*s.o.HealthTimeout)
	defer cancel()
	p.flying.Store(&cancel)
	defer p.flying.Store(nil)
	if !s.idle() {
		return nil
	}
	err := pr.token(ctx, s.status.Load().Model)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return &canary{err}
}

// notify leaves a note in a channel of capacity 1.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
