package sockets

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Names of what can be handed down.
const (
	// Gate and Admin are the listeners; systemd's FileDescriptorName= says the same words.
	Gate  = "gate"
	Admin = "admin"
	// Control is the socket on which two admitds talk during an upgrade; StateLock and JournalLock hold the folders.
	Control     = "control"
	StateLock   = "state-lock"
	JournalLock = "journal-lock"
)

// firstFD is the first descriptor after standard input, output and error, where systemd and os/exec begin.
const firstFD = 3

// upgradeVar names, in order, what an upgrading admitd hands down; ownSuffix marks a socket file that is the receiver's to remove.
const (
	upgradeVar = "ADMITD_UPGRADE_FDS"
	ownSuffix  = "+own"
)

// Inherited is what this process was handed down. The zero value is nothing. It is not safe for concurrent use.
type Inherited struct {
	files map[string]*os.File
	own   map[string]bool
	// Upgrade is true when another admitd handed it down, false for systemd.
	Upgrade bool
}

// Inherit collects what the environment says was handed down, and takes the variables out of it so that no child of ours
// believes them. A variable meant for another process is ignored; one that cannot be right is an error.
func Inherit() (*Inherited, error) {
	defer func() {
		for _, v := range []string{upgradeVar, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
			_ = os.Unsetenv(v)
		}
	}()
	if names, ok := os.LookupEnv(upgradeVar); ok {
		in, err := inherit(strings.Split(names, ":"))
		if in != nil {
			in.Upgrade = true
		}
		return in, err
	}
	names, err := systemdNames(os.LookupEnv, os.Getpid())
	if err != nil || len(names) == 0 {
		return &Inherited{}, err
	}
	return inherit(names)
}

// systemdNames reads socket activation's variables (sd_listen_fds(3)): the names of descriptors 3, 4 and so on.
func systemdNames(lookup func(string) (string, bool), pid int) ([]string, error) {
	count, ok := lookup("LISTEN_FDS")
	if !ok || count == "" {
		return nil, nil
	}
	if p, _ := lookup("LISTEN_PID"); p != strconv.Itoa(pid) {
		return nil, nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > 1000 {
		return nil, fmt.Errorf("LISTEN_FDS=%s is not a number of sockets", count)
	}
	text, named := lookup("LISTEN_FDNAMES")
	if !named || text == "" {
		if n > 2 {
			return nil, fmt.Errorf("%d sockets were handed down without names; give the socket units FileDescriptorName=%s and %s", n, Gate, Admin)
		}
		return []string{Gate, Admin}[:n], nil
	}
	names := strings.Split(text, ":")
	if len(names) != n {
		return nil, fmt.Errorf("LISTEN_FDS says %d sockets, LISTEN_FDNAMES names %d", n, len(names))
	}
	for _, name := range names {
		if name != Gate && name != Admin {
			return nil, fmt.Errorf("a socket named %q was handed down; the socket unit needs FileDescriptorName=%s or %s", name, Gate, Admin)
		}
	}
	return names, nil
}

func inherit(names []string) (*Inherited, error) {
	in := &Inherited{files: map[string]*os.File{}, own: map[string]bool{}}
	for i, name := range names {
		fd := firstFD + i
		// Before anything is launched: the engine must not keep our listeners open.
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			in.Close()
			return nil, fmt.Errorf("descriptor %d (%s), which was to be handed down, is not there: %w", fd, name, err)
		}
		name, own := strings.CutSuffix(name, ownSuffix)
		if in.files[name] != nil {
			in.Close()
			return nil, fmt.Errorf("two sockets named %q were handed down; a listener is one socket", name)
		}
		in.files[name], in.own[name] = os.NewFile(uintptr(fd), name), own
	}
	return in, nil
}

// FromAdmitd reports whether another admitd handed it down; false for nil.
func (in *Inherited) FromAdmitd() bool { return in != nil && in.Upgrade }

// Take returns what was handed down under a name, nil when nothing was. The caller closes it.
func (in *Inherited) Take(name string) *os.File {
	if in == nil || in.files == nil {
		return nil
	}
	f := in.files[name]
	delete(in.files, name)
	return f
}

// Listener returns the listener that was handed down under a name, nil when none was.
func (in *Inherited) Listener(name string) (*Listener, error) {
	f := in.Take(name)
	if f == nil {
		return nil, nil
	}
	return FromFile(f, in.own[name])
}

// Close closes what nobody took and returns its names, sorted.
func (in *Inherited) Close() []string {
	var left []string
	if in == nil {
		return nil
	}
	for name, f := range in.files {
		left = append(left, name)
		f.Close()
	}
	in.files = nil
	sort.Strings(left)
	return left
}

// Bequest is what a process hands down to one that it starts. The zero value is empty. It holds bare descriptors: os.File
// would make them blocking for whoever starts a process with them, and a socket is blocking or not for all that share it.
type Bequest struct {
	names []string
	fds   []int
}

// Add hands a copy of a file's descriptor down under a name.
func (b *Bequest) Add(name string, f syscall.Conn) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("hand %s down: %w", name, err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var dup int
		if dup, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); failed == nil {
			b.names, b.fds = append(b.names, name), append(b.fds, dup)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("hand %s down: %w", name, err)
	}
	return nil
}

// AddListener hands a copy of a listener down.
func (b *Bequest) AddListener(name string, l *Listener) error {
	if l.Owned() {
		name += ownSuffix
	}
	return b.Add(name, l.inner)
}

// Start starts a program with what is handed down, our output, and base as its environment, less what was meant for us alone.
// Its life is not bound to ours. The caller waits for it.
func (b *Bequest) Start(program string, args, base []string) (*os.Process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), uintptr(syscall.Stdout), uintptr(syscall.Stderr)}
	for _, fd := range b.fds {
		files = append(files, uintptr(fd))
	}
	pid, err := syscall.ForkExec(program, append([]string{program}, args...), &syscall.ProcAttr{Env: b.env(base), Files: files})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return os.FindProcess(pid)
}

// env is base without what was meant for this process, and the names.
func (b *Bequest) env(base []string) []string {
	out := make([]string, 0, len(base)+1)
	for _, kv := range base {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case upgradeVar, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID":
			continue
		}
		out = append(out, kv)
	}
	return append(out, upgradeVar+"="+strings.Join(b.names, ":"))
}

// Close closes this process's copies.
func (b *Bequest) Close() {
	for _, fd := range b.fds {
		unix.Close(fd)
	}
	b.fds = nil
}
