package supervisor

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// tree is the processes of one engine: a leader and all that came from it.
type tree struct {
	id   ident
	mark string
	// ended is closed when the leader has ended.
	ended func() <-chan struct{}

	mu   sync.Mutex
	seen map[ident]bool
	// foster is the parent of a leader that is not our child: the kernel gives it, or one above it, the engine's orphans.
	foster int
}

func (t *tree) leader() ident         { return t.id }
func (t *tree) done() <-chan struct{} { return t.ended() }

func (t *tree) over() bool {
	select {
	case <-t.ended():
		return true
	default:
		return false
	}
}

func (t *tree) members() []ident {
	t.mu.Lock()
	defer t.mu.Unlock()
	alive, reaped := t.look()
	// Reaping a dead parent can hand us its dead children, so look again; a few times are as deep as engines go.
	for range 8 {
		if !reaped {
			break
		}
		alive, reaped = t.look()
	}
	return alive
}

// look reads the process table once: who lives, and whether anything was reaped. Without a process table the leader is all
// that is known.
func (t *tree) look() (alive []ident, reaped bool) {
	all, err := scanProcs("/proc")
	if err != nil {
		if t.over() {
			return nil, false
		}
		return []ident{t.id}, false
	}
	for _, p := range all {
		if p.ident == t.id && p.ppid != 0 {
			t.foster = p.ppid
		}
	}
	f := family{
		leader: t.id, self: os.Getpid(), foster: t.foster, known: t.seen,
		marked: func(pid int) bool { return hasMark("/proc", t.mark, pid) },
	}
	seen := map[ident]bool{}
	for _, m := range f.members(all) {
		seen[m.ident] = true
		// Dead: the leader is waited for by whoever launched it, the child of another process by that one, or by us once that has
		// ended.
		if m.zombie() && (m.pid == t.id.PID || m.ppid != f.self) {
			continue
		}
		if m.zombie() && reap(m.pid) {
			reaped = true
			continue
		}
		alive = append(alive, m.ident)
	}
	t.seen = seen
	return alive, reaped
}

// reap takes a dead orphan of ours off the process table; false when the kernel is not done with it. Only ever a process that is
// known by its pid: waiting for any child would steal the children of other packages.
func reap(pid int) bool {
	var ws unix.WaitStatus
	got, err := unix.Wait4(pid, &ws, unix.WNOHANG, nil)
	return got == pid || errors.Is(err, unix.ECHILD)
}

func (t *tree) kill(sparing bool) {
	for _, id := range t.members() {
		if sparing && tidies("/proc", id.PID) {
			continue
		}
		// A process that cannot be signalled stays a member, and the wait for an empty list tells.
		_ = id.signal(unix.SIGKILL)
	}
}
