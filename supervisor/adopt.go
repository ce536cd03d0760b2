package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// adoptToken is how long an engine that is adopted may take for one token before it is served all the same, in doubt: it may
// only be busy with what the admitd that leaves it has in hand.
const adoptToken = 2 * time.Second

// takeOver adopts the engine that an earlier supervisor left in the state directory, which is the first result, or ends
// it: when nothing of it is left both results are nil.
func (s *Supervisor) takeOver(ctx context.Context) (*life, error) {
	if s.o.StateDir == "" {
		return nil, nil
	}
	r, ok := s.claim()
	if why := notOnly(s.only, r, ok); why != "" {
		return nil, &NotAdoptedError{why}
	}
	old := &leftover{record: r, marks: []string{folderMark(s.o.StateDir), r.Mark}}
	found := old.members()
	switch {
	case len(found) == 0 && s.only != 0:
		return nil, &NotAdoptedError{"its processes are dead"}
	case len(found) == 0:
		return nil, s.endLeftover(ctx, old, found, "")
	}
	s.update(func(st *Status) {
		st.State, st.Text = Starting, "looking at the engine that an earlier admitd left behind: "+identsText(found)
	})
	why := "there is no record of it that can be trusted"
	if ok {
		var l *life
		if l, why = s.adopt(ctx, r); l != nil {
			s.decide()
			return l, nil
		}
	}
	if s.only != 0 {
		return nil, &NotAdoptedError{why}
	}
	return nil, s.endLeftover(ctx, old, found, why)
}

// adopt goes on with a recorded engine. No life means that it cannot, and why says so.
func (s *Supervisor) adopt(ctx context.Context, r record) (l *life, why string) {
	sp, why := s.matching(r)
	if sp == nil {
		return nil, why
	}
	c, err := adoptProcess(r)
	if err != nil {
		return nil, err.Error()
	}
	l = &life{child: c, spec: sp, began: r.At, from: s.out.seq(), members: r.Members, adopted: &r}
	s.out.begin(resumeTracker(s.o.dialect(), r), append(sp.secrets, c.secrets()...))
	s.out.note(fmt.Sprintf("found the engine of an earlier admitd, pid %d: its last output follows", r.Leader.PID))
	if err := c.follow(r.Log, s.out); err != nil {
		c.release()
		return nil, err.Error()
	}
	c.hear()
	s.rt.point(&sp.target)
	if r.Ready {
		ready, doubt, err := s.confirm(ctx, sp.names)
		if err != nil && ctx.Err() == nil {
			c.release()
			s.rt.point(nil)
			return nil, err.Error()
		}
		s.showAdopted(l)
		if err == nil {
			l.doubt = doubt
			s.becomeReady(l, ready)
		}
		return l, ""
	}
	s.showAdopted(l)
	s.survey(l)
	s.publish(l)
	return l, ""
}

// showAdopted publishes what is known of an adopted engine.
func (s *Supervisor) showAdopted(l *life) {
	s.launches++
	seen, _ := s.out.view()
	pid, sp := l.child.leader().PID, l.spec
	s.o.Logger.Info("engine adopted", "pid", pid, "launched", l.began, "address", sp.address)
	s.update(func(st *Status) {
		st.State, st.Phase, st.Text = Loading, seen.phases[len(seen.phases)-1].Name, "adopted the engine of an earlier admitd"
		st.Started, st.PID, st.Command, st.Address = l.began, pid, sp.shown, sp.address
		st.Adopted = true
		st.Slots, st.Model, st.Phases = sp.slots, sp.names[0], seen.phases
	})
}

// matching is the launch that led to a recorded engine, nil when today's options would lead to another one, or when the engine
// is not whole.
func (s *Supervisor) matching(r record) (*spec, string) {
	p, alive := readProc("/proc", r.Leader.PID)
	switch {
	case r.Leader.PID == 0:
		return nil, "its launch was not recorded to the end"
	case !alive || p.ident != r.Leader || p.zombie():
		return nil, "its first process is dead"
	case r.Stopping:
		return nil, "it was being stopped"
	case r.Kind != s.o.Kind:
		return nil, fmt.Sprintf("it is another kind of engine: %s, not %s", r.Kind, s.o.Kind)
	case r.Model != s.o.Model:
		return nil, fmt.Sprintf("it has another model: %s, not %s", r.Model, s.o.Model)
	case !strings.HasPrefix(filepath.Base(r.Dir), "admitd-") || !filepath.IsAbs(r.Dir):
		return nil, "its record names no folder of ours"
	case !s.logOfOurs(r):
		return nil, "its record names an output file that is not in our folder"
	case !s.ours(r):
		return nil, "its first process was not launched from this state directory"
	}
	at := place{dir: r.Dir, key: r.Key, taken: true}
	if _, port, err := net.SplitHostPort(strings.TrimPrefix(r.Address, "http://")); err == nil {
		at.port = number(port)
	}
	sp, err := s.o.specAt(at)
	switch {
	case err != nil:
		return nil, "what to launch now is not known: " + err.Error()
	case s.o.hash(sp) != r.Args:
		return nil, "it was launched with other arguments than are configured now"
	case sp.address != r.Address || sp.target.key != r.Key:
		return nil, "its address or its key is not the recorded one"
	}
	sp.log = r.Log
	return sp, ""
}

// confirm asks an engine that had been ready whether it still is: healthy, the model listed to whoever has the key, and one
// token, which only puts it into doubt when it does not come at once.
func (s *Supervisor) confirm(ctx context.Context, names []string) (r readiness, doubt bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.HealthTimeout)
	defer cancel()
	p := s.prober(names)
	if err := p.health(ctx); err != nil {
		return r, false, fmt.Errorf("it does not work: %w", err)
	}
	if r = p.facts(ctx); r.err != nil {
		return r, false, fmt.Errorf("it does not answer as it should: %w", r.err)
	}
	once, done := context.WithTimeout(ctx, adoptToken)
	defer done()
	if err = p.token(once, r.model); err != nil && errors.Is(err, context.DeadlineExceeded) {
		return r, true, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("it brings out no token: %w", err)
	}
	return r, false, nil
}

// endLeftover ends what is left of an engine that is not adopted, and its folder; why is the reason, for people. Two engines
// on one GPU would be worse.
func (s *Supervisor) endLeftover(ctx context.Context, old *leftover, found []ident, why string) error {
	if len(found) > 0 {
		text := "ending the engine that an earlier admitd left behind, because " + why + ": " + identsText(found)
		s.out.note(text)
		s.update(func(st *Status) { st.State, st.Text = Starting, text })
		s.decide()
		s.o.Logger.Warn("engine not adopted", "why", why, "processes", identsText(found))
		if err := s.endProcesses(old.members, old.kill, 0); err != nil {
			if _, err = s.wedged(ctx, err); err != nil {
				return err
			}
		}
	}
	r := old.record
	if dir := filepath.Base(r.Dir); strings.HasPrefix(dir, "admitd-") && filepath.IsAbs(r.Dir) {
		if err := os.RemoveAll(r.Dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.o.Logger.Warn("leftover folder stays", "error", err)
		}
	}
	// The claim that replaces it holds off an admitd that we take over from while it still lives.
	err := s.owning(func() error {
		return record{Version: recordVersion, BootID: bootID(), Owner: s.me, Mark: folderMark(s.o.StateDir)}.write(s.o.StateDir)
	})
	if err != nil {
		s.o.Logger.Warn("engine record stays", "error", err)
	}
	return nil
}
