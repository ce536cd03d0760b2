package supervisor

import (
	"context"
	"sync/atomic"
	"time"
)

// slowProbeGap is the least time between two health probes of an engine whose probe is a real request (SGLang).
const slowProbeGap = 10 * time.Second

// briskly is the pause between probes, and between looks at the counters, while the engine is stalled: a stall is left as soon
// as it is over.
const briskly = time.Second

// vital is what the health watch tells: that a probe begins, or its result.
type vital struct {
	begins bool
	err    error
	// token is true when the probe also generated one.
	token bool
	// unasked is true when /health was not asked this time; facts is what a look at the model list found, nil without one. Both
	// only for External.
	unasked bool
	facts   *readiness
}

// pulse is how the watch and its prober talk beside the results.
type pulse struct {
	askToken, brisk atomic.Bool
	// now asks for a probe at once.
	now chan struct{}
}

// watch follows a ready engine until it is over.
func (s *Supervisor) watch(ctx context.Context, l *life) *ending {
	p := &pulse{now: make(chan struct{}, 1)}
	vitals := make(chan vital)
	defer background(ctx, func(ctx context.Context) { s.takeVitals(ctx, p, vitals) })()
	live := &liveness{failures: s.o.HealthFailures, stallAfter: s.o.StallAfter, idleSince: s.now()}
	if l.doubt {
		live.declare()
	}
	deaths := 0
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
		case v := <-vitals:
			if end := s.hear(live, v); end != nil {
				return end
			}
		}
		if end := s.judge(live, p); end != nil {
			return end
		}
		p.askToken.Store(live.askToken())
		if stalled := s.status.Load().State == Stalled; stalled != p.brisk.Swap(stalled) {
			if look.Reset(pace); stalled {
				look.Reset(min(pace, briskly))
				notify(p.now)
			}
		}
	}
}

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
	why, stalled := live.stalled(now)
	st := s.status.Load()
	switch {
	case stalled && st.State == Ready:
		live.declare()
		s.update(func(st *Status) { st.State, st.Text = Stalled, "the engine is stalled: "+why })
	case stalled && s.o.Kind != External && live.overdue(now, st.Since, s.o.StallRestartAfter):
		// The last word has a fresh look, not a probe of some time ago.
		if live.looked(now, min(s.o.HealthTimeout, probePatience)) {
			return &ending{kind: endStall, why: why}
		}
		notify(p.now)
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

// askLaunched asks an engine of ours for its health, and in doubt for a token.
func (s *Supervisor) askLaunched(p *pulse) asker {
	pr := s.prober(nil)
	return func(ctx context.Context, tell func(vital) bool) bool {
		if !tell(vital{begins: true}) {
			return false
		}
		ctx, cancel := context.WithTimeout(ctx, s.o.HealthTimeout)
		defer cancel()
		v := vital{err: pr.health(ctx)}
		if v.err == nil && p.askToken.Load() {
			v.err = pr.token(ctx, s.status.Load().Model)
			v.token = v.err == nil
		}
		return tell(v)
	}
}

// notify leaves a note in a channel of capacity 1.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
