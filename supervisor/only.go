package supervisor

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// NotAdoptedError is how Run ends that was to adopt one engine or do nothing (AdoptOnly).
type NotAdoptedError struct {
	// Why says what is in the way, for people; "it" is the engine.
	Why string
}

// Error implements error.
func (e *NotAdoptedError) Error() string { return "the running engine cannot be adopted: " + e.Why }

// AdoptOnly makes Run adopt the engine whose first process has that pid, or end with a *NotAdoptedError before it has ended
// or launched anything: another admitd answers for that engine still. It is called before Run.
func (s *Supervisor) AdoptOnly(pid int) { s.only = pid }

// Adoptable looks, and touches nothing, whether Run would adopt the engine whose first process has that pid as far as that
// can be known without talking to it. Its error is a *NotAdoptedError.
func (s *Supervisor) Adoptable(pid int) error {
	r, ok := readRecord(s.o.StateDir, bootID())
	if why := notOnly(pid, r, ok); why != "" {
		return &NotAdoptedError{why}
	}
	if sp, why := s.matching(r); sp == nil {
		return &NotAdoptedError{why}
	}
	return nil
}

// notOnly says why a record is not that of the engine with that first process; "" when it is, or any will do.
func notOnly(pid int, r record, ok bool) string {
	switch {
	case pid == 0:
		return ""
	case !ok:
		return "there is no record of it that can be trusted"
	case r.Leader.PID != pid:
		return "the record is that of another one"
	}
	return ""
}

// Decided is closed once Run knows whether the engine of an earlier supervisor is adopted, and has published so.
func (s *Supervisor) Decided() <-chan struct{} { return s.decided }

// decide closes that channel. Only Run's goroutine calls it.
func (s *Supervisor) decide() {
	select {
	case <-s.decided:
	default:
		close(s.decided)
	}
}

// Alive reports whether a process runs; one that has ended and waits to be reaped does not.
func Alive(pid int) bool {
	p, ok := readProc("/proc", pid)
	return ok && !p.zombie()
}

// ours reports whether a process is the engine that was launched from our state directory: it has our mark in its
// environment, or, where it wrote its title over that as Python programs do, it prints into the engine's output file.
func (s *Supervisor) ours(r record) bool {
	env, err := processEnv("/proc", r.Leader.PID)
	if err != nil {
		return false
	}
	if v := lookEnv(env, markName); v != "" {
		return markName+"="+v == folderMark(s.o.StateDir)
	}
	return printsInto("/proc", r.Leader.PID, r.Log)
}

// stranger reports whether a recorded process cannot have been launched from a state directory: its environment is whole, has
// no mark of ours, and it does not print into the engine's output file. A worker that wrote its title over its environment
// cannot be told, and is believed by pid and start time.
func stranger(r record, pid int) bool {
	env, err := processEnv("/proc", pid)
	if err != nil || lookEnv(env, markName) != "" {
		return false
	}
	return slices.ContainsFunc(env, assigns) && !printsInto("/proc", pid, r.Log)
}

// assigns reports whether a text is an entry of an environment, NAME=VALUE.
func assigns(entry string) bool {
	name, _, ok := strings.Cut(entry, "=")
	return ok && name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
}

// printsInto reports whether a process has a file as its standard output, also when that file has been removed since.
func printsInto(root string, pid int, path string) bool {
	out := filepath.Join(root, strconv.Itoa(pid), "fd", "1")
	have, err := os.Stat(out)
	if err != nil {
		return false
	}
	if want, err := os.Stat(path); err == nil && os.SameFile(have, want) {
		return true
	}
	name, err := os.Readlink(out)
	if err != nil {
		return false
	}
	name, removed := strings.CutSuffix(name, " (deleted)")
	if !removed {
		return false
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return err == nil && name == filepath.Join(dir, filepath.Base(path))
}

// logOfOurs reports whether a recorded output file is where an engine of ours prints: following any other would read, and in
// the end cut, a stranger's file.
func (s *Supervisor) logOfOurs(r record) bool {
	return filepath.IsAbs(r.Log) && sameDir(filepath.Dir(r.Log), filepath.Dir(s.o.logPath(r.Dir))) && filepath.Base(r.Log) == logFile
}

// sameDir reports whether two names lead to one folder.
func sameDir(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
