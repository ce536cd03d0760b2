package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	defer background(ctx, func(ctx context.Context) { s.seekReady(ctx, l, results) })()
	external := s.o.Kind == External
	// An adopted engine has had a part of its time already.
	deadline := time.NewTimer(max(s.o.StartTimeout-s.now().Sub(l.began), s.o.HealthTimeout))
	defer deadline.Stop()
	if external {
		deadline.Stop() // its owner may take any time to start it
	}
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
		case reply := <-s.releases:
			return &ending{kind: endRelease, reply: reply}
		case <-deadline.C:
			return &ending{kind: endLate, why: fmt.Sprintf("it was not ready %s after its launch (%s)", s.o.StartTimeout, lastErr)}
		case <-look.C:
			s.survey(l)
			if _, heard := s.out.view(); !external && s.now().Sub(heard) >= s.o.SilenceTimeout {
				return &ending{kind: endLate, why: fmt.Sprintf("it printed nothing for %s while loading (%s)", s.o.SilenceTimeout, lastErr)}
			}
		case <-s.out.wakeup:
			s.publish(l)
		case r := <-results:
			if r.alive {
				l.child.hear() // the phases before come first
				s.out.advance(phaseProbe)
			}
			if r.err == nil {
				s.becomeReady(l, r)
				return nil
			}
			lastErr = r.err.Error()
			if l.adopted != nil && errors.Is(r.err, errNoKey) {
				return &ending{kind: endLate, why: "it was adopted and does not take the recorded key: " + lastErr}
			}
			if external {
				s.update(func(st *Status) { st.Text = "waiting for the engine: " + lastErr })
			}
			s.publish(l)
		}
	}
}

// seekReady probes one after the other until one succeeds. An engine that somebody else launched may have been there for days
// and is asked at once.
func (s *Supervisor) seekReady(ctx context.Context, l *life, results chan<- readiness) {
	p := s.prober(l.spec.names)
	for first := s.o.Kind == External || l.adopted != nil; first || wait(ctx, s.o.ReadyInterval); first = false {
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
	text := fmt.Sprintf("ready after %s", took.Round(100*time.Millisecond))
	if s.o.Kind == External {
		s.costly.Store(r.costly)
		text = "the engine at " + s.o.URL + " is ready"
	} else if l.adopted != nil && l.adopted.Ready {
		text = fmt.Sprintf("ready: adopted from an earlier admitd, which launched it %s ago", took.Round(time.Second))
	} else {
		s.remember(seen.phases, now, took)
		if l.adopted != nil {
			text += "; adopted from an earlier admitd while it was loading"
		}
	}
	s.update(func(st *Status) {
		st.State, st.Phase, st.ReadyAt = Ready, "", now
		st.Text = text
		st.Model, st.MaxModelLen = r.model, r.maxModelLen
		if st.Version == "" || s.o.Kind == External {
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
