package supervisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrStateDirBusy is what a *StateDirBusyError is: another admitd has the state directory.
var ErrStateDirBusy = errors.New("the state directory is in use")

// StateDirBusyError says who has a state directory. errors.Is finds ErrStateDirBusy in it.
type StateDirBusyError struct {
	// Dir is the state directory; PID its holder, 0 when that is not known.
	Dir string
	PID int
}

// Error implements error.
func (e *StateDirBusyError) Error() string {
	by := "another admitd"
	if e.PID > 0 {
		by += " (pid " + strconv.Itoa(e.PID) + ")"
	}
	return fmt.Sprintf("state directory %s: %s runs from it; stop that one or use another directory", e.Dir, by)
}

// Is implements the comparison of errors.Is.
func (*StateDirBusyError) Is(target error) bool { return target == ErrStateDirBusy }

// Lock makes a state directory, which it creates when needed, ours alone until release is called, so that two supervisors
// never end each other's engine and two admitds never write each other's files. A directory that somebody else has gives a
// *StateDirBusyError. Run takes the lock itself unless Options.StateDirLocked says that its caller has it.
func Lock(stateDir string) (release func(), err error) {
	l, err := Hold(stateDir)
	if err != nil {
		return nil, err
	}
	return l.Release, nil
}

// DirLock is a directory's lock in our hands. Copies of its descriptor share it: it ends when the last one is closed, so a
// process can hand it down without a moment in which nobody has it (flock(2)).
type DirLock struct{ f *os.File }

// Hold is Lock for a caller that may hand the lock down.
func Hold(stateDir string) (*DirLock, error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(stateDir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the state directory's lock: %w", err)
	}
	if err := lockFor(stateDir, f); err != nil {
		f.Close()
		return nil, err
	}
	l := &DirLock{f}
	l.Sign()
	return l, nil
}

// Inherit makes a lock of a descriptor that was handed down, and takes the file over. It fails when the descriptor is not the
// lock of that directory.
func Inherit(stateDir string, f *os.File) (*DirLock, error) {
	want, err := os.Stat(filepath.Join(stateDir, lockFile))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("the lock that was handed down: %w", err)
	}
	if have, err := f.Stat(); err != nil || !os.SameFile(have, want) {
		f.Close()
		return nil, fmt.Errorf("the lock that was handed down is not that of %s", stateDir)
	}
	if err := lockFor(stateDir, f); err != nil {
		f.Close()
		return nil, err
	}
	return &DirLock{f}, nil
}

func lockFor(stateDir string, f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return busyBy(stateDir, f)
	}
	return fmt.Errorf("lock the state directory %s: %w", stateDir, err)
}

// busyBy says who has a directory's lock. A pid of the dead is nobody's: whoever has the lock has not signed it yet.
func busyBy(stateDir string, f *os.File) error {
	pid := lockHolder(f)
	if !Alive(pid) {
		pid = 0
	}
	return &StateDirBusyError{Dir: stateDir, PID: pid}
}

// Drain says, until release is called or the process ends, that an admitd which has given up a state directory still finishes
// requests from it. Several may at once.
func Drain(stateDir string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(stateDir, drainFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return func() {}, fmt.Errorf("say that requests are being finished: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		f.Close()
		return func() {}, fmt.Errorf("say that requests are being finished: %w", err)
	}
	return func() { f.Close() }, nil
}

// Drained reports whether no admitd finishes requests from a state directory that it has given up, so that what its record
// leaves open is over. The caller has the directory's lock.
func Drained(stateDir string) bool {
	f, err := os.Open(filepath.Join(stateDir, drainFile))
	if err != nil {
		return true
	}
	defer f.Close()
	return !errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Sign writes our pid into the lock file. The number only helps people; a disk too full to take it is no reason not to start.
func (l *DirLock) Sign() {
	if l.f.Truncate(0) == nil {
		_, _ = l.f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
}

// SyscallConn implements syscall.Conn, by which the descriptor can be copied for another process.
func (l *DirLock) SyscallConn() (syscall.RawConn, error) { return l.f.SyscallConn() }

// Release gives our copy up.
func (l *DirLock) Release() { l.f.Close() }

// lockHolder reads the pid in a lock file, 0 when there is none.
func lockHolder(r io.Reader) int {
	b, err := io.ReadAll(io.LimitReader(r, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}
