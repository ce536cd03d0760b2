package supervisor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MarkName is the variable in the environment of every engine that an admitd launched.
const MarkName = markName

// LockName is the file in a state directory that the admitd which serves from there holds open.
const LockName = lockFile

// EngineMark is the value of MarkName for engines that were launched from a state directory, "" for one that is not there.
func EngineMark(stateDir string) string {
	return strings.TrimPrefix(folderMark(stateDir), markName+"=")
}

// WriteJSON replaces a file as a whole: a reader sees the old content or the new, never a part, and it is on the disk before
// its name is. Only its owner can read it.
func WriteJSON(path string, v any) error { return writeJSON(path, v) }

// PortHolder names the process that listens on a TCP port of this machine, "" when none does or it cannot be seen.
func PortHolder(port int) string { return holder("/proc", port) }

// Serving gives the pid of the admitd that has a state directory, 0 when none has, -1 when it is not known who. It looks only:
// trying the lock would refuse it to an admitd that starts at that moment.
func Serving(stateDir string) int {
	f, err := os.Open(filepath.Join(stateDir, lockFile))
	if err != nil {
		return 0
	}
	defer f.Close()
	var st unix.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if err != nil || unix.Fstat(int(f.Fd()), &st) != nil || !flocked(string(locks), st.Ino) {
		return 0
	}
	if pid := lockHolder(f); pid > 0 {
		return pid
	}
	return -1
}

// flocked reports whether a file's inode has a lock by flock(2) in the text of /proc/locks (proc(5)).
func flocked(locks string, inode uint64) bool {
	for line := range strings.Lines(locks) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" {
			continue
		}
		if at := strings.Split(f[5], ":"); at[len(at)-1] == strconv.FormatUint(inode, 10) {
			return true
		}
	}
	return false
}
