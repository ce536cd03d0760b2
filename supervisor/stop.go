package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// linger is how long the engine's remaining processes may take to leave by themselves after a clean stop of the leader.
const linger = 2 * time.Second

// tidyTime is how long those that only tidy up may take after the others were killed.
const tidyTime = 5 * time.Second

// stalledGrace is the grace of an engine that does not work: it most likely does not hear the signal either.
const stalledGrace = 10 * time.Second

// stop asks the engine to end: close the gate and drain, then SIGTERM to the leader alone, then grace. What does not obey is
// for clear to kill. An engine that was never ready is not asked: its signal handlers are not there yet, and its workers
// would be left behind. False means that another supervisor has taken the engine during the drain.
func (s *Supervisor) stop(l *life, end *ending) bool {
	if !l.ready {
		s.update(func(st *Status) { st.State, st.Text = Draining, "stopping the engine, which was not ready yet" })
		return s.commit(l)
	}
	drain, grace := s.o.DrainTimeout, s.o.StopGrace
	text := "finishing the requests in hand before the engine is stopped"
	if end.kind == endStall {
		drain, grace = min(drain, 5*time.Second), min(grace, stalledGrace)
		text = "restarting the engine: " + end.why
	}
	s.update(func(st *Status) { st.State, st.Text = Draining, text })
	s.drain(l, drain)
	if !s.commit(l) {
		return false
	}
	if err := l.child.terminate(); err != nil {
		s.o.Logger.Warn("engine not signalled", "error", err)
		return true
	}
	s.update(func(st *Status) { st.Text = "waiting for the engine to end" })
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-l.child.done():
	case <-t.C:
		s.out.note(fmt.Sprintf("the engine did not end within %s of SIGTERM and is killed", grace))
	case <-s.hurry:
	}
	return true
}

// commit records that the engine is about to be ended, so that nobody adopts it from here on; false when somebody has.
func (s *Supervisor) commit(l *life) bool {
	l.stopping = true
	return !errors.Is(s.owning(func() error { return s.put(s.recordOf(l)) }), errTaken)
}

// drain runs BeforeStop until it returns, its time is up, the engine dies or somebody is in a hurry.
func (s *Supervisor) drain(l *life, limit time.Duration) {
	if s.o.BeforeStop == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.o.BeforeStop(ctx)
	}()
	select {
	case <-drained:
		return
	case <-ctx.Done():
	case <-l.child.done():
	case <-s.hurry:
	}
	cancel()
	// A hook that honours its context is done in a moment; one that does not must not hold up the stop.
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-drained:
	case <-t.C:
		s.o.Logger.Warn("the drain goes on after its time was up")
	}
}

// clear ends whatever is left of a life. After a clean end of the leader the others may leave by themselves first. A nil
// result means that no process is left.
func (s *Supervisor) clear(l *life, wanted bool) error {
	patience := time.Duration(0)
	if wanted && l.ready && isDone(l.child) {
		patience = linger
	}
	if err := s.endProcesses(l.child.members, l.child.kill, patience); err != nil {
		return err
	}
	// The leader is reaped by its own waiter; only then has it really gone.
	t := time.NewTimer(s.o.ReapTimeout)
	defer t.Stop()
	select {
	case <-l.child.done():
	case <-t.C:
		left := func() []ident {
			if isDone(l.child) {
				return l.child.members()
			}
			return []ident{l.child.leader()}
		}
		return &wedge{members: left, kill: func() { l.child.kill(false) }, left: left()}
	}
	s.publishPids(nil)
	return nil
}

func isDone(c child) bool {
	select {
	case <-c.done():
		return true
	default:
		return false
	}
}

// endProcesses kills until members is empty. It waits patience first, and spares those that only tidy up for a while.
func (s *Supervisor) endProcesses(members func() []ident, kill func(sparing bool), patience time.Duration) error {
	began := s.now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		left := members()
		if len(left) == 0 {
			return nil
		}
		past := s.now().Sub(began)
		if past > s.o.ReapTimeout+patience {
			return &wedge{members: members, kill: func() { kill(false) }, left: left}
		}
		s.stillThere(left, began.Add(patience), began.Add(s.o.ReapTimeout+patience))
		if past >= patience || s.hurrying() {
			kill(past < patience+tidyTime)
		}
		<-tick.C
	}
}

func (s *Supervisor) hurrying() bool {
	select {
	case <-s.hurry:
		return true
	default:
		return false
	}
}

// leftover is an engine known only from its record, which may be empty, and its marks.
type leftover struct {
	record record
	marks  []string
}

// marked picks the processes that carry one of the marks, whoever is their parent now: the directory is ours alone, so nobody
// else can have launched them.
func (l *leftover) marked(all []procInfo) map[int]bool {
	found := map[int]bool{}
	for _, p := range all {
		for _, m := range l.marks {
			if m != "" && p.pid != os.Getpid() && !p.zombie() && hasMark("/proc", m, p.pid) {
				found[p.pid] = true
			}
		}
	}
	return found
}

// members are the living processes of the record and their kin. A pid is believed only with its start time, or with our
// mark in its environment.
func (l *leftover) members() []ident {
	all, err := scanProcs("/proc")
	if err != nil {
		return nil
	}
	marked := l.marked(all)
	known := map[ident]bool{l.record.Leader: true}
	for _, p := range all {
		if marked[p.pid] {
			known[p.ident] = true
		}
	}
	for _, m := range l.record.Members {
		known[m] = true
	}
	var found []ident
	alive := false
	f := family{leader: l.record.Leader, self: os.Getpid(), known: known}
	for _, m := range f.members(all) {
		if m.zombie() {
			continue
		}
		found = append(found, m.ident)
		alive = alive || known[m.ident]
	}
	if !alive {
		// Only a session number in common, which may have been given away since.
		return nil
	}
	return found
}

func (l *leftover) kill(sparing bool) {
	for _, id := range l.members() {
		if sparing && tidies("/proc", id.PID) {
			continue
		}
		_ = id.signal(9) // what cannot be signalled stays in the list, and the wait for an empty one tells
	}
}
