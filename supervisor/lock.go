package supervisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

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
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(stateDir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the state directory's lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		pid := lockHolder(f)
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &StateDirBusyError{Dir: stateDir, PID: pid}
		}
		return nil, fmt.Errorf("lock the state directory %s: %w", stateDir, err)
	}
	// The number only helps people; a disk too full to take it is no reason not to start.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return func() { f.Close() }, nil
}

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
