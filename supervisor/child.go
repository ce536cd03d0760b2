package supervisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-cmd/cmd"
	"golang.org/x/sys/unix"
)

// child is a launched engine as the state machine sees it; tests have their own.
type child interface {
	// leader names the process that was started.
	leader() ident
	// done is closed when the leader has ended and was reaped, whoever still holds its output.
	done() <-chan struct{}
	// exit says how the leader ended; only after done.
	exit() string
	// terminate sends SIGTERM to the leader and to nobody else: workers that get one leave in the middle of a request.
	terminate() error
	// members lists the living processes of the engine and reaps the dead ones that were given to us.
	members() []ident
	// kill sends SIGKILL to every living process of the engine; sparing leaves alone those that only tidy up.
	kill(sparing bool)
	// release lets go of the output, also of one that a stranger holds open.
	release()
}

// process is a child on go-cmd/cmd.
type process struct {
	cmd   *cmd.Cmd
	id    ident
	pidfd int
	mark  string
	read  *os.File
	eof   chan struct{}

	mu     sync.Mutex
	seen   map[ident]bool
	closed bool
}

// adoptOrphans makes the kernel give us the processes whose parent died, so that none of the engine's becomes a stranger's
// and all of them can be reaped (PR_SET_CHILD_SUBREAPER, prctl(2)). It holds for the whole process.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of the engine's orphans: %w", err)
	}
	return nil
}

// startProcess launches a spec. Its output goes through a pipe of our own, straight from the child's descriptor: so neither
// go-cmd's line buffer nor its channel can block the engine, and its wait ends with the leader although somebody else still
// holds the pipe.
func startProcess(s *spec, out *output) (child, error) {
	r, w, err := outputPipe()
	if err != nil {
		return nil, err
	}
	p := &process{pidfd: -1, mark: s.mark, read: r, eof: make(chan struct{}), seen: map[ident]bool{}}
	p.cmd = cmd.NewCmdOptions(cmd.Options{BeforeExec: []func(*exec.Cmd){func(c *exec.Cmd) {
		c.Stdout, c.Stderr = w, w
		// A session of its own is a process group of its own that keeps its members when they change groups.
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, PidFD: &p.pidfd}
	}}}, s.path, s.args...)
	p.cmd.Env = s.env
	p.cmd.Start()
	err = p.awaitStart()
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	go p.pump(out)
	return p, nil
}

// outputPipe makes a pipe whose reading end can be closed under a reader and whose writing end blocks, as a child expects.
func outputPipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make the output pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("make the output pipe: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "engine output"), os.NewFile(uintptr(fds[1]), "engine output"), nil
}

// awaitStart waits until go-cmd has a pid or an error; it tells of a start in no other way.
func (p *process) awaitStart() error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		st := p.cmd.Status()
		if st.PID > 0 {
			p.id = ident{PID: st.PID}
			// Even a leader that has ended already leaves its row until it is reaped; once reaped it needs no start time.
			if info, ok := readProc("/proc", st.PID); ok {
				p.id = info.ident
			}
			return nil
		}
		select {
		case <-p.cmd.Done():
			if st = p.cmd.Status(); st.PID > 0 {
				p.id = ident{PID: st.PID}
				return nil
			}
			if st.Error == nil {
				st.Error = errors.New("it ended before it began")
			}
			return fmt.Errorf("start the engine: %w", st.Error)
		case <-tick.C:
		}
	}
}

// pump moves output until the last holder of the pipe closes it or release does.
func (p *process) pump(out *output) {
	defer close(p.eof)
	buf := make([]byte, 32<<10)
	for {
		n, err := p.read.Read(buf)
		if n > 0 {
			_, _ = out.Write(buf[:n]) // never fails
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				out.note("reading the engine's output failed: " + err.Error())
			}
			out.end()
			return
		}
	}
}

func (p *process) leader() ident         { return p.id }
func (p *process) done() <-chan struct{} { return p.cmd.Done() }

func (p *process) exit() string {
	st := p.cmd.Status()
	if st.Error != nil {
		return st.Error.Error()
	}
	return fmt.Sprintf("exit status %d", st.Exit)
}

func (p *process) terminate() error {
	select {
	case <-p.done():
		return nil
	default:
	}
	if p.pidfd >= 0 {
		err := unix.PidfdSendSignal(p.pidfd, unix.SIGTERM, nil, 0)
		if err == nil || errors.Is(err, unix.ESRCH) {
			return nil
		}
	}
	return p.id.signal(unix.SIGTERM)
}

func (p *process) members() []ident {
	p.mu.Lock()
	defer p.mu.Unlock()
	alive, reaped := p.look()
	// Reaping a dead parent can hand us its dead children, so look again; a few times are as deep as engines go.
	for range 8 {
		if !reaped {
			break
		}
		alive, reaped = p.look()
	}
	return alive
}

// look reads the process table once: who lives, and whether anything was reaped. Without a process table the leader is all
// that is known.
func (p *process) look() (alive []ident, reaped bool) {
	all, err := scanProcs("/proc")
	if err != nil {
		if isDone(p) {
			return nil, false
		}
		return []ident{p.id}, false
	}
	f := family{
		leader: p.id, self: os.Getpid(), known: p.seen,
		marked: func(pid int) bool { return hasMark("/proc", p.mark, pid) },
	}
	seen := map[ident]bool{}
	for _, m := range f.members(all) {
		seen[m.ident] = true
		// Dead: the leader is waited for by go-cmd, the child of another process by that one, or by us once that has ended.
		if m.zombie() && (m.pid == p.id.PID || m.ppid != f.self) {
			continue
		}
		if m.zombie() && reap(m.pid) {
			reaped = true
			continue
		}
		alive = append(alive, m.ident)
	}
	p.seen = seen
	return alive, reaped
}

// reap takes a dead orphan of ours off the process table; false when the kernel is not done with it. Only ever a process that is
// known by its pid: waiting for any child would steal the children of other packages.
func reap(pid int) bool {
	var ws unix.WaitStatus
	got, err := unix.Wait4(pid, &ws, unix.WNOHANG, nil)
	return got == pid || errors.Is(err, unix.ECHILD)
}

func (p *process) kill(sparing bool) {
	for _, id := range p.members() {
		if sparing && tidies("/proc", id.PID) {
			continue
		}
		// A process that cannot be signalled stays a member, and the wait for an empty list tells.
		_ = id.signal(unix.SIGKILL)
	}
}

// release waits a moment for output that is on its way, then closes the pipe whoever holds its other end.
func (p *process) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	select {
	case <-p.eof:
	case <-time.After(500 * time.Millisecond):
	}
	p.read.Close()
	<-p.eof
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
	}
}

// identsText lists processes for people.
func identsText(ids []ident) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d", id.PID)
		if p, ok := readProc("/proc", id.PID); ok && p.ident == id {
			fmt.Fprintf(&b, " (%s)", p.comm)
		}
	}
	return b.String()
}
