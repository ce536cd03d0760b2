package supervisor

import (
	"errors"
	"fmt"
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
	// hear waits until what the engine has printed so far was read.
	hear()
	// release lets go of the output, also of one that a stranger holds open.
	release()
}

// process is a child on go-cmd/cmd.
type process struct {
	tree
	cmd   *cmd.Cmd
	pidfd int
	tail  *tailer
	once  sync.Once
}

// adoptOrphans makes the kernel give us the processes whose parent died, so that none of the engine's becomes a stranger's
// and all of them can be reaped (PR_SET_CHILD_SUBREAPER, prctl(2)). It holds for the whole process.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of the engine's orphans: %w", err)
	}
	return nil
}

// startProcess launches a spec. Its output goes into a file, straight from the child's descriptor: so neither go-cmd's line
// buffer nor its channel can block the engine, its wait ends with the leader although somebody else still holds the output,
// and the engine can print when we are dead.
func startProcess(s *spec, out *output) (child, error) {
	w, err := createLog(s.log)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	p := &process{pidfd: -1, tree: tree{mark: s.mark, seen: map[ident]bool{}}}
	if p.tail, err = follow(s.log, 0, out); err != nil {
		return nil, err
	}
	p.cmd = cmd.NewCmdOptions(cmd.Options{BeforeExec: []func(*exec.Cmd){func(c *exec.Cmd) {
		c.Stdout, c.Stderr = w, w
		// A session of its own is a process group of its own that keeps its members when they change groups.
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, PidFD: &p.pidfd}
	}}}, s.path, s.args...)
	p.cmd.Env = s.env
	p.ended = p.cmd.Done
	p.cmd.Start()
	if err = p.awaitStart(); err != nil {
		p.tail.close()
		return nil, err
	}
	return p, nil
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

func (p *process) hear() { p.tail.hear() }

// release takes what was printed so far and lets go of the file, whoever else holds it.
func (p *process) release() {
	p.once.Do(func() {
		p.tail.close()
		if p.pidfd >= 0 {
			unix.Close(p.pidfd)
		}
	})
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
