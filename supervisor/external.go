package supervisor

import (
	"context"
	"fmt"
)

// absent is the child of an engine that is not ours: there is no process to watch or to end.
type absent struct{ never chan struct{} }

func (absent) leader() ident           { return ident{} }
func (a absent) done() <-chan struct{} { return a.never }
func (absent) exit() string            { return "" }
func (absent) terminate() error        { return nil }
func (absent) members() []ident        { return nil }
func (absent) kill(bool)               {}
func (absent) release()                {}

// runExternal probes an engine that somebody else runs. It is never stopped or restarted; when it does not answer it is
// loading or stalled, for as long as that takes.
func (s *Supervisor) runExternal(ctx context.Context) error {
	at, err := externalTarget(s.o.URL, s.o.APIKey)
	if err != nil {
		return err
	}
	s.rt.point(at)
	now := s.now()
	l := &life{child: absent{}, spec: &spec{names: s.o.ServedNames}, began: now}
	s.out.begin(newTracker(External, now), nil)
	s.update(func(st *Status) {
		st.State, st.Started, st.Address = Loading, now, s.o.URL
		st.Text = "waiting for the engine at " + s.o.URL
	})
	end := s.awaitReady(ctx, l)
	for end == nil || end.kind != endStop {
		// An answer that is late is no reason to stop asking: the engine's owner may still be starting it.
		if end == nil {
			end = s.watch(ctx, l)
		} else {
			s.update(func(st *Status) { st.Text = fmt.Sprintf("the engine at %s is not ready: %s", s.o.URL, end.why) })
			end = s.awaitReady(ctx, l)
		}
	}
	if l.ready && s.o.BeforeStop != nil {
		s.update(func(st *Status) { st.State, st.Text = Draining, "finishing the requests in hand" })
		s.drain(l, s.o.DrainTimeout)
	}
	s.update(func(st *Status) { st.State, st.Text = Stopped, "no longer watching the engine at "+s.o.URL })
	return nil
}
