package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// factsEvery is the pause between two looks at the model list of an external engine: its owner can put another in its place
// without a word.
const factsEvery = 5 * time.Second

// slowProbeTimeout bounds a health probe that is a real request: SGLang itself waits 20 s for a token.
const slowProbeTimeout = 25 * time.Second

// absent is the child of an engine that is not ours: there is no process to watch or to end.
type absent struct{ never chan struct{} }

func (absent) leader() ident           { return ident{} }
func (a absent) done() <-chan struct{} { return a.never }
func (absent) exit() string            { return "" }
func (absent) terminate() error        { return nil }
func (absent) members() []ident        { return nil }
func (absent) kill(bool)               {}
func (absent) hear()                   {}
func (absent) release()                {}

// prober makes a prober of the engine; names are the served names of which one must be listed.
func (s *Supervisor) prober(names []string) *prober {
	p := &prober{rt: s.probeVia, names: names}
	if s.o.Kind == External {
		// The query, if there is one, is nobody's business.
		p.at, _, _ = strings.Cut(s.o.URL, "?")
		p.at, p.keyed = strings.TrimRight(p.at, "/"), s.o.APIKey != ""
	}
	return p
}

// runExternal probes an engine that somebody else runs. It is never stopped or restarted; when it does not answer it is
// loading or stalled, for as long as that takes.
func (s *Supervisor) runExternal(ctx context.Context) error {
	at, err := externalTarget(s.o.URL, s.o.APIKey)
	if err != nil {
		return err
	}
	s.rt.point(at)
	l := &life{child: absent{}, spec: &spec{names: s.o.ServedNames}}
	s.seekExternal(l, "waiting for the engine at "+s.o.URL)
	end := s.awaitReady(ctx, l)
	for end == nil || end.kind != endStop && end.kind != endRelease {
		if end != nil {
			// What it was is not known to be what it is: it is looked at as if it were new.
			if end.kind == endLost {
				s.seekExternal(l, end.why)
			}
			end = s.awaitReady(ctx, l)
			continue
		}
		end = s.watch(ctx, l)
	}
	if end.kind == endRelease {
		s.letGo(nil, end.reply, nil)
		return nil
	}
	if l.ready && s.o.BeforeStop != nil {
		s.update(func(st *Status) { st.State, st.Text = Draining, "finishing the requests in hand" })
		s.drain(l, s.o.DrainTimeout)
	}
	s.update(func(st *Status) { st.State, st.Text = Stopped, "no longer watching the engine at "+s.o.URL })
	return nil
}

// seekExternal begins to wait for the engine.
func (s *Supervisor) seekExternal(l *life, text string) {
	now := s.now()
	l.began = now
	t := newProbeTracker(now)
	s.out.begin(t, nil)
	s.update(func(st *Status) {
		st.State, st.Started, st.Address, st.Text = Loading, now, s.o.URL, text
		st.Phase, st.Phases = phaseProbe, t.copy().phases
	})
}

// askExternal asks an external engine for its health, in doubt for a token, and now and then what it serves. One whose health
// probe is a real request is asked for that more seldom; in between its model list shows that it is there.
func (s *Supervisor) askExternal(p *pulse) asker {
	pr := s.prober(s.o.ServedNames)
	var healthAt time.Time
	factsAt := s.now() // readiness has just seen them
	failed := false
	return func(whole context.Context, tell func(vital) bool) bool {
		now, limit, v := s.now(), s.o.HealthTimeout, vital{}
		if s.costly.Load() {
			limit = max(limit, slowProbeTimeout)
			v.unasked = now.Sub(healthAt) < slowProbeGap
		}
		if !v.unasked && !tell(vital{begins: true}) {
			return false
		}
		ctx, cancel := context.WithTimeout(whole, limit)
		defer cancel()
		if !v.unasked {
			healthAt = now
			v.err = pr.health(ctx)
		}
		if v.err == nil && (v.unasked || failed || now.Sub(factsAt) >= factsEvery) {
			facts := pr.facts(ctx)
			v.facts, factsAt = &facts, now
		}
		failed = v.err != nil || v.facts != nil && v.facts.err != nil
		switch {
		case v.err != nil || v.unasked:
		case p.askToken.Load():
			v.err = pr.token(ctx, s.status.Load().Model)
			v.token = v.err == nil
		case p.askCanary.Load():
			v.canary = s.sendCanary(whole, pr, p)
		}
		return tell(v)
	}
}

// hearExternal judges what only an external engine can do: go away, or become another one.
func (s *Supervisor) hearExternal(v vital) *ending {
	if unreachable(v.err) {
		return &ending{kind: endLost, why: "the engine is gone: " + v.err.Error()}
	}
	if v.facts == nil {
		return nil
	}
	f, st := v.facts, s.status.Load()
	switch {
	case unreachable(f.err):
		return &ending{kind: endLost, why: "the engine is gone: " + f.err.Error()}
	case errors.Is(f.err, errNoModel) || errors.Is(f.err, errNoKey):
		return &ending{kind: endLost, why: "the engine is another one now: " + f.err.Error()}
	case f.err != nil || st.State != Ready:
		return nil // slow, which is for the health probe to judge; or looked at again before it is ready
	}
	changed := f.model != st.Model || f.maxModelLen != st.MaxModelLen || f.version != "" && f.version != st.Version
	if !changed {
		return nil
	}
	text := fmt.Sprintf("the engine at %s was replaced: it serves %s with %d tokens of context", s.o.URL, f.model, f.maxModelLen)
	s.o.Logger.Warn("external engine changed", "text", text, "version", f.version)
	s.costly.Store(f.costly)
	now := s.now() // when it was launched nobody told
	s.update(func(st *Status) {
		st.Model, st.MaxModelLen, st.Started, st.ReadyAt, st.Text = f.model, f.maxModelLen, now, now, text
		if f.version != "" {
			st.Version = f.version
		}
	})
	if s.o.OnReady != nil {
		s.o.OnReady()
	}
	return nil
}
