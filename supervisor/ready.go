package supervisor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// surveyEvery is the pause between two looks at the process table.
const surveyEvery = 2 * time.Second

// background runs f until the returned stop is called; stop waits for its end.
func background(ctx context.Context, f func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// wait sleeps for d; false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// awaitReady follows a launch until it is ready, which is a nil result, or over.
func (s *Supervisor) awaitReady(ctx context.Context, l *life) *ending {
	results := make(chan readiness)
	defer background(ctx, func(ctx context.Context) { s.seekReady(ctx, l.spec.names, results) })()
	deadline := time.NewTimer(s.o.StartTimeout)
	defer deadline.Stop()
	look := time.NewTicker(surveyEvery)
	defer look.Stop()
	lastErr := "no probe was answered"
	for {
		select {
		case <-l.child.done():
			return &ending{kind: endExit}
		case <-ctx.Done():
			return &ending{kind: endStop}
		case r := <-s.requests:
			return &ending{kind: endRestart, reply: r.reply}
		case <-deadline.C:
			return &ending{kind: endLate, why: fmt.Sprintf("it was not ready %s after its launch (%s)", s.o.StartTimeout, lastErr)}
		case <-look.C:
			s.survey(l)
			if _, heard := s.out.view(); s.now().Sub(heard) >= s.o.SilenceTimeout {
				return &ending{kind: endLate, why: fmt.Sprintf("it printed nothing for %s while loading (%s)", s.o.SilenceTimeout, lastErr)}
			}
		case <-s.out.wakeup:
			s.publish(l)
		case r := <-results:
			if r.alive {
				s.out.advance(phaseProbe)
			}
			if r.err == nil {
				s.becomeReady(l, r)
				return nil
			}
			lastErr = r.err.Error()
			s.publish(l)
		}
	}
}

// seekReady probes one after the other until one succeeds.
func (s *Supervisor) seekReady(ctx context.Context, names []string, results chan<- readiness) {
	p := &prober{rt: s.probeVia, names: names}
	for wait(ctx, s.o.ReadyInterval) {
		// The first token may take longer than a health answer: kernels are compiled for it.
		once, cancel := context.WithTimeout(ctx, 3*s.o.HealthTimeout)
		r := p.ready(once)
		cancel()
		select {
		case results <- r:
		case <-ctx.Done():
			return
		}
		if r.err == nil {
			return
		}
	}
}

// becomeReady publishes the ready state and remembers how long it took.
func (s *Supervisor) becomeReady(l *life, r readiness) {
	now := s.now()
	l.ready = true
	s.out.finish(now)
	s.crashes.unready = 0
	s.survey(l)
	s.publish(l)
	seen, _ := s.out.view()
	took := now.Sub(l.began)
	if s.o.Kind != External {
		s.remember(seen.phases, now, took)
	}
	s.update(func(st *Status) {
		st.State, st.Phase, st.ReadyAt = Ready, "", now
		st.Text = fmt.Sprintf("ready after %s", took.Round(100*time.Millisecond))
		st.Model, st.MaxModelLen = r.model, r.maxModelLen
		if st.Version == "" {
			st.Version = r.version
		}
	})
	if s.o.OnReady != nil {
		s.o.OnReady()
	}
}

// remember stores the durations of a successful start for the forecast of the next one.
func (s *Supervisor) remember(phases []PhaseTime, now time.Time, took time.Duration) {
	t := startTimes{At: now, Total: took, Phases: map[string]time.Duration{}}
	for _, p := range phases {
		t.Phases[p.Name] = p.Took
	}
	s.history.Starts[historyKey(s.o.Kind, s.o.Model)] = t
	s.expect.Store(int64(took))
	if err := s.history.write(s.o.StateDir); err != nil {
		s.o.Logger.Warn("start times not remembered", "error", err)
	}
}

// vital is one result of the health watch.
type vital struct {
	err error
	// token is true when the probe also generated one.
	token bool
}

// watch follows a ready engine until it is over.
func (s *Supervisor) watch(ctx context.Context, l *life) *ending {
	var askToken atomic.Bool
	vitals, now := make(chan vital), make(chan struct{}, 1)
	model := s.status.Load().Model
	defer background(ctx, func(ctx context.Context) { s.takeVitals(ctx, model, &askToken, now, vitals) })()
	live := &liveness{failures: s.o.HealthFailures, stallAfter: s.o.StallAfter, idleSince: s.now()}
	deaths := 0
	look := time.NewTicker(min(surveyEvery, s.o.StallAfter))
	defer look.Stop()
	for {
		select {
		case <-l.child.done():
			return &ending{kind: endExit}
		case <-ctx.Done():
			return &ending{kind: endStop}
		case r := <-s.requests:
			return &ending{kind: endRestart, reply: r.reply}
		case <-s.out.wakeup:
			s.publish(l)
			if seen, _ := s.out.view(); seen.deaths > deaths {
				deaths, live.hinted = seen.deaths, true
				notify(now)
			}
		case <-look.C:
			s.survey(l)
		case v := <-vitals:
			live.healthy(s.now(), v.err)
			if v.token {
				live.proved(s.now())
			}
		}
		if why, over := s.judge(live); over {
			return &ending{kind: endStall, why: why}
		}
		askToken.Store(live.askToken())
	}
}

// judge moves between Ready and Stalled; over means that the stall has lasted too long.
func (s *Supervisor) judge(live *liveness) (why string, over bool) {
	now := s.now()
	if s.o.Progress != nil {
		running, tokens, ok := s.o.Progress()
		live.progress(now, running, tokens, ok)
	}
	why, stalled := live.stalled(now)
	st := s.status.Load()
	switch {
	case stalled && st.State == Ready:
		live.declare()
		s.update(func(st *Status) { st.State, st.Text = Stalled, "the engine is stalled: "+why })
	case stalled && s.o.Kind != External && now.Sub(st.Since) >= s.o.StallRestartAfter:
		return why, true
	case !stalled && st.State == Stalled:
		s.update(func(st *Status) { st.State, st.Text = Ready, "ready again after a stall" })
		if s.o.OnReady != nil {
			s.o.OnReady()
		}
	}
	return "", false
}

// takeVitals probes at intervals and when now says so, one probe after the other.
func (s *Supervisor) takeVitals(ctx context.Context, model string, askToken *atomic.Bool, now <-chan struct{}, results chan<- vital) {
	p := &prober{rt: s.probeVia}
	pause := time.NewTimer(s.o.HealthInterval)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-now:
		case <-pause.C:
		}
		once, cancel := context.WithTimeout(ctx, s.o.HealthTimeout)
		v := vital{err: p.health(once)}
		if v.err == nil && askToken.Load() {
			v.err = p.token(once, model)
			v.token = v.err == nil
		}
		cancel()
		select {
		case results <- v:
		case <-ctx.Done():
			return
		}
		pause.Reset(s.o.HealthInterval)
	}
}

// notify leaves a note in a channel of capacity 1.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
