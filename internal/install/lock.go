package install

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

// BusyError says that something else works in a folder of engines.
type BusyError struct {
	// Folder is what is busy; PID who works in it, 0 when that is not known.
	Folder string
	PID    int
}

// Error implements error.
func (e *BusyError) Error() string {
	who := "another install or removal"
	if e.PID > 0 {
		who += fmt.Sprintf(" (pid %d, or what it started)", e.PID)
	}
	return who + " works in " + e.Folder + "; wait for it, or end it and try again: it will be taken up where it was"
}

// lock makes a folder ours until release. The file can be handed to programs that must hold the lock as well.
func lock(folder string) (f *os.File, release func(), err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // engines hold no secrets, and a service user must read them
		return nil, nil, fmt.Errorf("make the folder: %w; choose one that this user can write with --data-dir", err)
	}
	f, err = os.OpenFile(filepath.Join(folder, lockFile), os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // holds a pid only
	if err != nil {
		return nil, nil, fmt.Errorf("lock the folder: %w; choose one that this user can write with --data-dir", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		b, _ := io.ReadAll(io.LimitReader(f, 32)) // only for the message
		_ = f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil, fmt.Errorf("lock %s: %w", folder, err)
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		return nil, nil, &BusyError{Folder: folder, PID: pid}
	}
	// Who holds it is a help for people; the lock itself is the kernel's.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return f, func() { _ = f.Close() }, nil
}

// Hold says that this process uses the engine that a program belongs to, until release is called or the process ends, so
// that Remove refuses. A program that is no installed engine's is not held: release then does nothing. Its error says that
// the engine is being removed.
func Hold(binary string) (release func(), err error) {
	folder := filepath.Dir(filepath.Dir(binary))
	f, err := os.Open(filepath.Join(folder, markerFile))
	if err != nil {
		return func() {}, nil //nolint:nilerr // somebody else's program
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("the engine in %s is being removed or checked", folder)
	}
	return func() { _ = f.Close() }, nil
}
