package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// life is one launch from its process to the end of it.
type life struct {
	child child
	spec  *spec
	began time.Time
	// from is the number of the last output line before this launch.
	from  uint64
	ready bool
	// stopping is set when the engine is asked to end. members are its processes as last seen.
	stopping bool
	members  []ident
	// adopted is the record of an engine that another supervisor launched, nil of our own. doubt says that it answered when it
	// was adopted but brought out no token in time.
	adopted *record
	doubt   bool
}

// ending says why a life is over.
type ending struct {
	kind endKind
	// why is a sentence for crash-like endings.
	why string
	// reply answers the request that asked for a restart.
	reply chan error
}

type endKind int

const (
	// endExit: the leader ended although nobody asked it to.
	endExit endKind = iota
	// endLate: it did not become ready in time.
	endLate
	// endStall: it stopped working and did not recover.
	endStall
	// endStop: our context ended.
	endStop
	// endLost: an external engine is gone, or no longer what it was.
	endLost
	// endBack: an external engine works again after a stall, and may be another one.
	endBack
	// endRestart: somebody asked for a restart.
	endRestart
	// endRelease: the engine is left to another supervisor.
	endRelease
)

// Run launches the engine and keeps it running until ctx ends; then it drains, stops and reaps it. It returns nil when
// nothing of the engine is left, and a *WedgedError when something is. An engine that cannot be kept running leaves Run
// waiting with Status.GaveUp set, because Restart can still mend that. A state directory that another admitd has gives a
// *StateDirBusyError, before anything was touched. A supervisor runs once.
func (s *Supervisor) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("a supervisor runs once")
	}
	defer close(s.ended)
	defer func() {
		if !s.released.Load() {
			s.rt.point(nil)
		}
	}()
	if s.o.Kind != External {
		if err := adoptOrphans(); err != nil {
			return err
		}
	}
	// Also before an external engine is watched: one that an earlier admitd launched would hold the GPU beside it.
	if s.o.StateDir != "" {
		if !s.o.StateDirLocked {
			release, err := Lock(s.o.StateDir)
			if err != nil {
				return err
			}
			defer release()
		}
	}
	l, err := s.takeOver(ctx)
	if err != nil {
		return err
	}
	if s.o.Kind == External {
		return s.runExternal(ctx)
	}
	return s.keep(ctx, l)
}

// keep runs l, unless it is nil, and launches again and again until ctx ends.
func (s *Supervisor) keep(ctx context.Context, l *life) error {
	var reply chan error
	for ; ; l = nil {
		var err error
		if l == nil {
			l, err = s.start(ctx)
			s.answer(reply, err)
		}
		var next *ending
		switch {
		case ctx.Err() != nil && l == nil:
			s.stopped()
			return nil
		case errors.Is(err, errTaken):
			s.letGo(nil, nil, nil)
			return nil
		case err != nil:
			s.launchFailed(err)
			next, err = s.pause(ctx, lasting(err), false)
		default:
			next, err = s.through(ctx, l)
		}
		if err != nil {
			next, err = s.wedged(ctx, err)
			if err != nil {
				return err
			}
		}
		switch next.kind {
		case endStop:
			s.stopped()
			return nil
		case endRelease:
			return nil
		}
		reply = next.reply
	}
}

// answer replies to the request that led to this launch and to those that came meanwhile, which it satisfies as well.
func (s *Supervisor) answer(reply chan error, err error) {
	if reply != nil {
		reply <- err
	}
	for {
		select {
		case r := <-s.requests:
			r.reply <- err
		default:
			return
		}
	}
}

// start makes a process.
func (s *Supervisor) start(ctx context.Context) (*life, error) {
	s.launches++
	began := s.now()
	s.update(func(st *Status) {
		st.State, st.Text, st.Started = Starting, "launching the engine", began
		st.PID, st.Adopted, st.Phase, st.Phases, st.RestartAt, st.GaveUp = 0, false, "", nil, time.Time{}, false
		st.Restarts = s.launches - 1
	})
	s.decide()
	if err := s.beforeLaunch(ctx); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	sp, err := s.o.buildSpec(s.launches, s.key)
	if err != nil {
		return nil, err
	}
	l := &life{spec: sp, began: began, from: s.out.seq()}
	s.out.begin(newTracker(s.o.dialect(), began), sp.secrets)
	s.out.note(redact(fmt.Sprintf("launching %q", sp.shown), sp.secrets))
	if err := s.owning(func() error { return s.launchRecorded(l) }); err != nil {
		return nil, errors.Join(err, os.RemoveAll(sp.dir))
	}
	s.rt.point(&sp.target)
	s.update(func(st *Status) {
		st.State, st.Phase, st.Text = Loading, phaseLaunched, "the engine was launched"
		st.PID, st.Command, st.Address = l.child.leader().PID, sp.shown, sp.address
		st.Slots, st.KVCapacityTokens, st.MaxModelLen, st.Version = sp.slots, 0, 0, ""
		st.Model = sp.names[0]
	})
	s.survey(l)
	s.publish(l)
	return l, nil
}

// launchRecorded makes the process of a life.
func (s *Supervisor) launchRecorded(l *life) (err error) {
	// Before there is a process: an admitd that is killed right after the launch has no time to write anything.
	if err := s.put(s.recordOf(l)); err != nil {
		s.o.Logger.Warn("engine record not written: if admitd crashes, the next one ends the engine and starts it anew", "error", err)
	}
	if l.child, err = s.launch(l.spec, s.out); err != nil {
		return &LaunchError{Err: err, Permanent: errors.Is(err, os.ErrPermission)}
	}
	l.members = []ident{l.child.leader()}
	if err := s.put(s.recordOf(l)); err != nil {
		s.o.Logger.Warn("engine record is not complete", "error", err)
	}
	return nil
}

// through leads a life to its end and past it: what it returns is what happens next, or that the engine is wedged.
func (s *Supervisor) through(ctx context.Context, l *life) (*ending, error) {
	var end *ending
	if !l.ready {
		end = s.awaitReady(ctx, l)
	}
	if end == nil {
		end = s.watch(ctx, l)
	}
	if end.kind == endRelease {
		return s.letGo(l, end.reply, nil), nil
	}
	if s.lost() {
		return s.letGo(l, end.reply, errTaken), nil
	}
	wanted := end.kind == endStop || end.kind == endRestart
	if end.kind == endStall || wanted {
		if !s.stop(l, end) {
			return s.letGo(l, end.reply, errTaken), nil
		}
	} else {
		s.commit(l)
		s.update(func(st *Status) { st.State, st.Text = Failed, "ending what is left of the engine" })
	}
	err := s.clear(l, wanted)
	sig := s.bury(l, end, wanted)
	if err == nil {
		err = s.afterStop()
	}
	if err != nil {
		s.answer(end.reply, err)
		return nil, err
	}
	if wanted {
		s.crashes = crashes{}
		return end, nil
	}
	return s.pause(ctx, !l.ready && sig != nil && sig.permanent, l.ready)
}

// bury records how a life ended, throws its leftovers away and returns the cause that its output gives, nil when it gives none.
func (s *Supervisor) bury(l *life, end *ending, wanted bool) *signature {
	exit := &Exit{At: s.now(), Text: "still running", Wanted: wanted}
	select {
	case <-l.child.done():
		exit.Text = l.child.exit()
	default:
	}
	l.child.release()
	sig := s.diagnose(l) // only now is all of the output there
	if !wanted {
		exit.Tail = s.out.tail(l.from, 20)
		exit.Cause = end.why
		if sig != nil && end.kind == endExit {
			exit.Cause, exit.Hint = sig.cause, sig.hint
		}
	}
	s.out.note("the engine's process ended: " + exit.Text)
	s.rt.point(nil)
	_ = os.RemoveAll(l.spec.dir) // a temporary folder; the next launch has its own
	text := "the engine ended unasked (" + exit.Text + ")"
	if end.kind != endExit {
		text = "the engine was ended"
	}
	if exit.Cause != "" {
		text += ": " + exit.Cause
	}
	s.update(func(st *Status) {
		st.LastExit, st.PID, st.Phase = exit, 0, ""
		if !wanted {
			st.State, st.Text = Failed, text
		}
	})
	return sig
}

// diagnose looks for the cause of a death: anywhere in the output of a start, but only among the last lines of an engine that
// had worked, where an old trouble need not be the present one.
func (s *Supervisor) diagnose(l *life) *signature {
	if !l.ready {
		seen, _ := s.out.view()
		if seen.cause == nil && s.o.Kind == Sim {
			return s.simUsage(l)
		}
		return seen.cause
	}
	t := newTracker(s.o.dialect(), l.began)
	for _, line := range s.out.tail(l.from, 200) {
		t.failure(line)
	}
	return t.cause
}

// exitUsage is what admitd's own commands end with when they were called wrongly.
const exitUsage = "exit status 2"

// simUsage recognises a simulator that refused its arguments: it ends at once with the status for that and a line of admitd's.
// The status alone would not do, because a crash of a Go program has the same.
func (s *Supervisor) simUsage(l *life) *signature {
	if !isDone(l.child) || l.child.exit() != exitUsage {
		return nil
	}
	for _, line := range s.out.tail(l.from, 20) {
		if why, ok := strings.CutPrefix(line, "admitd: "); ok && !strings.HasPrefix(why, "launching ") {
			return &signature{permanent: true, cause: "the simulator refused its arguments: " + why, hint: "correct the argument after --; see admitd sim --help"}
		}
	}
	return nil
}

// launchFailed records a launch that made no process.
func (s *Supervisor) launchFailed(err error) {
	exit := &Exit{At: s.now(), Text: "could not be launched: " + err.Error(), Cause: err.Error()}
	if le, ok := errors.AsType[*LaunchError](err); ok {
		exit.Hint = le.Hint
	}
	s.out.note(exit.Text)
	s.update(func(st *Status) {
		st.State, st.Text, st.LastExit, st.PID = Failed, "the engine "+exit.Text, exit, 0
	})
}

// lasting reports whether a launch failed in a way that trying again cannot mend.
func lasting(launch error) bool {
	var le *LaunchError
	return errors.As(launch, &le) && le.Permanent
}

// pause waits after a crash or a failed launch for the time of the next one; for ever after giving up. It ends early for a
// restart, which also forgives, and for the end of ctx.
func (s *Supervisor) pause(ctx context.Context, permanent, wasReady bool) (*ending, error) {
	v := s.o.Restart.crashed(&s.crashes, s.now(), wasReady, s.o.Random())
	if permanent {
		v = verdict{giveUp: true, why: "trying again cannot help"}
	}
	var due <-chan time.Time
	if v.giveUp {
		s.update(func(st *Status) {
			st.GaveUp, st.RestartAt = true, time.Time{}
			st.Text += "; it is not launched again (" + v.why + ")"
		})
		s.o.Logger.Error("engine given up", "engine", string(s.o.Kind), "text", s.status.Load().Text)
	} else {
		t := time.NewTimer(v.delay)
		defer t.Stop()
		due = t.C
		at := s.now().Add(v.delay)
		s.update(func(st *Status) { st.RestartAt = at })
	}
	select {
	case <-due:
		return &ending{kind: endExit}, nil
	case r := <-s.requests:
		s.crashes = crashes{}
		return &ending{kind: endRestart, reply: r.reply}, nil
	case reply := <-s.releases:
		return s.letGo(nil, reply, nil), nil
	case <-ctx.Done():
		return &ending{kind: endStop}, nil
	}
}

// stopped publishes the end.
func (s *Supervisor) stopped() {
	s.publishPids(nil)
	if s.o.StateDir != "" {
		if err := s.owning(func() error { return removeFiles(s.o.StateDir) }); err != nil {
			s.o.Logger.Warn("engine record stays", "error", err)
		}
	}
	s.update(func(st *Status) {
		st.State, st.Text, st.PID, st.Phase, st.RestartAt = Stopped, "stopped, and none of its processes is left", 0, "", time.Time{}
	})
}

// survey refreshes the list of the engine's processes and the record of them on disk.
func (s *Supervisor) survey(l *life) {
	l.members = l.child.members()
	slices.SortFunc(l.members, func(a, b ident) int { return a.PID - b.PID })
	s.publishPids(l.members)
	s.save(l)
}

// publish shows what the output has told so far.
func (s *Supervisor) publish(l *life) {
	seen, _ := s.out.view()
	past := s.history.Starts[historyKey(s.o.Kind, s.o.Model)]
	for i := range seen.phases {
		seen.phases[i].LastTook = past.Phases[seen.phases[i].Name]
	}
	if s.o.Kind == External {
		return // it has no output
	}
	s.save(l)
	s.update(func(st *Status) {
		st.Phases = seen.phases
		if seen.capacity > 0 {
			st.KVCapacityTokens = seen.capacity
		}
		if seen.slots > 0 {
			st.Slots = seen.slots
		}
		if seen.version != "" {
			st.Version = seen.version
		}
		if !l.ready && st.State == Loading {
			st.Phase = seen.phases[len(seen.phases)-1].Name
			st.Text = "the engine is loading: " + phaseText(st.Phase)
			if l.adopted != nil {
				st.Text += "; it was adopted from an earlier admitd"
			}
		}
	})
}

// phaseText says a phase in plain words.
func phaseText(phase string) string {
	return map[string]string{
		phaseLaunched: "its process has started", phaseEngineInit: "setting up", phaseWeights: "loading the weights",
		phaseCompile: "compiling", phaseKVCache: "making the KV cache", phaseGraphs: "capturing graphs", phaseWarmup: "warming up",
		phaseHTTP: "starting its HTTP server", phaseProbe: "answering a first request",
	}[phase]
}
