package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"golang.org/x/sys/unix"
)

// ownerFile is the lock under which the engine record changes hands. It is another one than the state directory's, because
// that one is shared by an admitd and the one that takes over from it.
const ownerFile = "engine.owner"

// ownerPatience is how long another supervisor may have the record; it only ever launches a process or writes a file meanwhile.
const ownerPatience = 10 * time.Second

// errTaken says that another supervisor has the engine now.
var errTaken = errors.New("another admitd has taken the engine over")

// ErrStopping is returned by Release when the engine is being ended.
var ErrStopping = errors.New("the engine is being stopped")

// Release stops supervising without touching the engine, and leaves its record for another supervisor to adopt. It returns
// when Run no longer does anything to the engine; Run then returns nil, and the transport still reaches the engine for what is
// under way. The package documentation has the order of a handover. With an external engine it just ends the watch. Errors:
// ErrNotRunning, ErrStopping, or ctx's.
func (s *Supervisor) Release(ctx context.Context) error {
	if !s.running.Load() {
		return ErrNotRunning
	}
	reply := make(chan error, 1)
	select {
	case s.releases <- reply:
	case <-s.ended:
		if s.released.Load() {
			return nil // the other one was quicker
		}
		return ErrNotRunning
	case <-ctx.Done():
		return fmt.Errorf("release the engine: %w", ctx.Err())
	}
	select {
	case err := <-reply:
		return err
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("release the engine: %w", ctx.Err())
	}
}

// letGo ends the supervision of a life, nil for none, that goes on without us, and answers whoever asked for something with err.
func (s *Supervisor) letGo(l *life, reply chan error, err error) *ending {
	s.released.Store(true)
	if l != nil {
		s.survey(l)
		l.child.release()
	}
	s.update(func(st *Status) { st.Text = "left to another admitd" })
	s.out.note("the engine is left to another admitd")
	if reply != nil {
		reply <- err
	}
	return &ending{kind: endRelease}
}

// owning runs f while no other supervisor can take the engine or give it up. It fails with errTaken when another one has it.
func (s *Supervisor) owning(f func() error) error {
	if s.o.StateDir == "" {
		return f()
	}
	unlock, err := lockOwner(s.o.StateDir)
	if err != nil {
		// Without the lock two could only disagree in the moment of a handover; without an engine nothing works at all.
		s.o.Logger.Warn("engine record not locked", "error", err)
	}
	defer unlock()
	if s.taken() {
		return errTaken
	}
	return f()
}

// taken reports whether the record says that the engine belongs to another supervisor that lives.
func (s *Supervisor) taken() bool {
	if s.o.StateDir == "" {
		return false
	}
	r, ok := readRecord(s.o.StateDir, bootID())
	return ok && r.Owner.ID != s.me.ID && r.Owner.lives()
}

// lost is taken, at a moment when nobody changes it.
func (s *Supervisor) lost() bool {
	return errors.Is(s.owning(func() error { return nil }), errTaken)
}

// claim makes the engine of an earlier supervisor ours and returns its record, which is empty when there is none to be
// trusted. From here on that supervisor, should it still live, leaves the engine alone.
func (s *Supervisor) claim() (record, bool) {
	unlock, err := lockOwner(s.o.StateDir)
	if err != nil {
		s.o.Logger.Warn("engine record not locked", "error", err)
	}
	defer unlock()
	r, ok := readRecord(s.o.StateDir, bootID())
	mine := r
	if !ok {
		mine = record{Version: recordVersion, BootID: bootID(), Kind: s.o.Kind, Model: s.o.Model, Mark: folderMark(s.o.StateDir)}
	}
	mine.Owner = s.me
	if err := mine.write(s.o.StateDir); err != nil {
		s.o.Logger.Warn("engine record not written", "error", err)
	}
	return r, ok
}

// lockOwner takes the record's lock. The returned function is never nil.
func lockOwner(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return func() {}, fmt.Errorf("open the engine record's lock: %w", err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Since(began) > ownerPatience {
			f.Close()
			return func() {}, fmt.Errorf("lock the engine record: %w", err)
		}
	}
}

// save puts what is known of a life into the record on disk, if that is news.
func (s *Supervisor) save(l *life) {
	if s.o.Kind == External || s.o.StateDir == "" {
		return
	}
	r := s.recordOf(l)
	if reflect.DeepEqual(r, s.saved) {
		return
	}
	err := s.owning(func() error { return s.put(r) })
	failed := err != nil && !errors.Is(err, errTaken)
	if failed && !s.unsaved {
		s.o.Logger.Warn("engine record not written: if admitd crashes, the next one ends the engine and starts it anew", "error", err)
	}
	s.unsaved = failed
}

// put writes a record; the caller owns the engine.
func (s *Supervisor) put(r record) error {
	if s.o.StateDir == "" {
		return nil
	}
	if err := r.write(s.o.StateDir); err != nil {
		return err
	}
	s.saved = r
	return nil
}

// recordOf is the record of a life as it is known now.
func (s *Supervisor) recordOf(l *life) record {
	r := record{
		Version: recordVersion, BootID: bootID(), Owner: s.me, Kind: s.o.Kind, Model: s.o.Model, Members: l.members,
		Mark: l.spec.mark, Args: s.o.hash(l.spec), Address: l.spec.address, Key: l.spec.target.key, Dir: l.spec.dir, Log: l.spec.log,
		At: l.began, Ready: l.ready, Stopping: l.stopping,
	}
	if l.child != nil {
		r.Leader = l.child.leader()
	}
	seen, _ := s.out.view()
	r.Phases, r.Capacity, r.Slots, r.Engine = seen.phases, seen.capacity, seen.slots, seen.version
	return r
}
