package sockets

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"

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

// Bequest is what a process hands down to one that it starts. The zero value is empty.
type Bequest struct {
	names []string
	files []*os.File
}

// Add hands a descriptor down under a name. The bequest closes it.
func (b *Bequest) Add(name string, f *os.File) {
	b.names, b.files = append(b.names, name), append(b.files, f)
}

// AddListener hands a copy of a listener down.
func (b *Bequest) AddListener(name string, l *Listener) error {
	f, err := l.File()
	if err != nil {
		return fmt.Errorf("hand %s down: %w", name, err)
	}
	if l.Owned() {
		name += ownSuffix
	}
	b.Add(name, f)
	return nil
}

// Files are what exec.Cmd.ExtraFiles must be.
func (b *Bequest) Files() []*os.File { return b.files }

// Env is the environment for the child: base without what was meant for this process, and the names.
func (b *Bequest) Env(base []string) []string {
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
	for _, f := range b.files {
		f.Close()
	}
	b.files = nil
}
