package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// User is a process that uses an engine.
type User struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
}

// String names it for people.
func (u User) String() string { return fmt.Sprintf("pid %d (%s)", u.PID, u.Name) }

// InUseError says who uses an engine that was to be removed.
type InUseError struct {
	Name  string
	Users []User
}

// Error implements error.
func (e *InUseError) Error() string {
	who := "an admitd that serves with it"
	if len(e.Users) > 0 {
		names := make([]string, len(e.Users))
		for i, u := range e.Users {
			names[i] = u.String()
		}
		who = strings.Join(names, ", ")
	}
	return fmt.Sprintf("engine %s is in use by %s; stop that first (kill %s)", e.Name, who, e.pids())
}

// pids are those to end: an admitd ends its engine itself, and would start it again if only that ended.
func (e *InUseError) pids() string {
	if len(e.Users) == 0 {
		return "PID"
	}
	var all, own []string
	for _, u := range e.Users {
		pid := strconv.Itoa(u.PID)
		all = append(all, pid)
		if u.Name == "admitd" {
			own = append(own, pid)
		}
	}
	if len(own) > 0 {
		return strings.Join(own, " ")
	}
	return strings.Join(all, " ")
}

// Remove deletes one installed or half-installed engine. Errors: ErrNotInstalled, *InUseError, *BusyError. A removal that is
// cut is finished by the next install or removal.
func Remove(dataDir, name, proc string) error {
	dir := enginesDir(dataDir)
	folder := filepath.Join(dir, name)
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%w: %q; `admitd engine list` shows the names", ErrNotInstalled, name)
	}
	if _, err := os.Stat(folder); err != nil {
		return fmt.Errorf("%w: %s below %s; `admitd engine list` shows the names", ErrNotInstalled, name, dataDir)
	}
	_, release, err := lock(dir)
	if err != nil {
		return err
	}
	defer release()
	sweep(dir)
	// From here no serve can begin to use it: Hold needs the marker's lock.
	if f, err := os.Open(filepath.Join(folder, markerFile)); err == nil {
		defer func() { _ = f.Close() }()
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return &InUseError{Name: name, Users: Users(proc, folder)}
		}
	}
	if users := Users(proc, folder); len(users) > 0 {
		return &InUseError{Name: name, Users: users}
	}
	// Renamed first: nobody sees a half-removed engine.
	grave, err := os.MkdirTemp(dir, ".removing-")
	if err == nil {
		err = os.Rename(folder, filepath.Join(grave, name))
	}
	if err == nil {
		err = os.RemoveAll(grave)
	}
	if err != nil {
		return fmt.Errorf("remove engine %s: %w", name, err)
	}
	return nil
}

// sweep finishes removals that were cut.
func sweep(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, ".removing-*")) // the pattern is well-formed
	for _, l := range left {
		_ = os.RemoveAll(l) // it is no engine any more; what stays is tried again next time
	}
}

// Users lists the processes that run from a folder, have mapped a file below it or hold its engine, this one left out.
// Processes of other users cannot be looked into unless we are root. proc is /proc on a real machine.
func Users(proc, folder string) []User {
	prefix := folder + string(filepath.Separator)
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	var out []User
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		at := filepath.Join(proc, e.Name())
		if uses(at, prefix) {
			comm, _ := os.ReadFile(filepath.Join(at, "comm")) // a process that has just ended has no name
			out = append(out, User{PID: pid, Name: strings.TrimSpace(string(comm))})
		}
	}
	return out
}

func uses(at, prefix string) bool {
	// Engines give themselves titles, so that the command line alone does not tell.
	if args, err := os.ReadFile(filepath.Join(at, "cmdline")); err == nil {
		for a := range strings.SplitSeq(string(args), "\x00") {
			if strings.HasPrefix(a, prefix+"bin/") {
				return true
			}
		}
	}
	if maps, err := os.ReadFile(filepath.Join(at, "maps")); err == nil && strings.Contains(string(maps), " "+prefix) {
		return true
	}
	fds, err := os.ReadDir(filepath.Join(at, "fd"))
	if err != nil {
		return false
	}
	for _, fd := range fds {
		if link, err := os.Readlink(filepath.Join(at, "fd", fd.Name())); err == nil && link == prefix+markerFile {
			return true
		}
	}
	return false
}

// Room says how much this user may still write on the file system of a folder, and how large that is, in bytes. The folder
// need not be there yet.
func Room(path string) (free, total uint64, err error) {
	for {
		var fs unix.Statfs_t
		err := unix.Statfs(path, &fs)
		if parent := filepath.Dir(path); errors.Is(err, unix.ENOENT) && parent != path {
			path = parent
			continue
		}
		if err != nil {
			return 0, 0, fmt.Errorf("look for room in %s: %w", path, err)
		}
		return fs.Bavail * uint64(fs.Bsize), fs.Blocks * uint64(fs.Bsize), nil
	}
}
