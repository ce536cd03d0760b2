package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// adopted is an engine that another process launched. Its end is seen by its process descriptor; its exit status only its
// parent could know.
type adopted struct {
	tree
	fd    *os.File
	end   chan struct{}
	watch sync.WaitGroup
	quit  chan struct{}
	once  sync.Once
	tail  *tailer
}

// adoptProcess takes hold of a recorded engine's leader.
func adoptProcess(r record) (*adopted, error) {
	c := &adopted{end: make(chan struct{}), quit: make(chan struct{})}
	c.tree = tree{id: r.Leader, mark: r.Mark, seen: map[ident]bool{}, ended: func() <-chan struct{} { return c.end }}
	for _, m := range r.Members {
		if !stranger(r, m.PID) {
			c.seen[m] = true
		}
	}
	// Without an own flag, PIDFD_NONBLOCK, the descriptor could not be waited for with the others.
	fd, err := unix.PidfdOpen(r.Leader.PID, unix.O_NONBLOCK)
	switch {
	case errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL):
		c.watch.Go(c.look4)
		return c, nil
	case err != nil:
		return nil, fmt.Errorf("its first process cannot be watched: %w", err)
	}
	c.fd = os.NewFile(uintptr(fd), "engine")
	// The descriptor holds on to whoever has the pid now: only now can it be told that this is the engine.
	if p, ok := readProc("/proc", r.Leader.PID); !ok || p.ident != r.Leader {
		c.fd.Close()
		return nil, errors.New("its first process is dead")
	}
	c.watch.Go(c.await)
	return c, nil
}

// await closes end when the leader has ended: its descriptor is readable then (pidfd_open(2)), whoever has to reap it.
func (c *adopted) await() {
	raw, err := c.fd.SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return err == nil && n > 0
		})
	}
	select {
	case <-c.quit:
		return
	default:
	}
	if err == nil {
		close(c.end)
		return
	}
	c.look4()
}

// look4 is for kernels whose process descriptors cannot be waited for.
func (c *adopted) look4() {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if p, ok := readProc("/proc", c.id.PID); !ok || p.ident != c.id || p.zombie() {
			close(c.end)
			return
		}
		select {
		case <-tick.C:
		case <-c.quit:
			return
		}
	}
}

func (c *adopted) exit() string {
	return "its exit status is not known, because an earlier admitd launched it"
}

func (c *adopted) terminate() error { return c.id.signal(unix.SIGTERM) }

// follow reads the engine's output: the end of what is there, and what comes. A file that somebody has removed the engine still
// holds open.
func (c *adopted) follow(path string, out *output) (err error) {
	if c.tail, err = follow(path, logReplay, out); errors.Is(err, fs.ErrNotExist) {
		c.tail, err = follow(fmt.Sprintf("/proc/%d/fd/1", c.id.PID), logReplay, out)
	}
	return err
}

func (c *adopted) hear() { c.tail.hear() }

// secrets are the values in the engine's environment that must not be shown.
func (c *adopted) secrets() []string {
	env, err := processEnv("/proc", c.id.PID)
	if err != nil {
		return nil
	}
	return secretValues(env)
}

// release lets go of the engine and its output, whoever holds it.
func (c *adopted) release() {
	c.once.Do(func() {
		close(c.quit)
		if c.tail != nil {
			c.tail.close()
		}
		if c.fd != nil {
			c.fd.Close()
		}
		c.watch.Wait()
	})
}

// processEnv reads the environment that a process was given, as far as we may.
func processEnv(root string, pid int) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(root, strconv.Itoa(pid), "environ")) //nolint:gosec // root is /proc, or a test's copy of it
	if err != nil {
		return nil, fmt.Errorf("read its environment: %w", err)
	}
	var env []string
	for e := range bytes.SplitSeq(b, []byte{0}) {
		env = append(env, string(e))
	}
	return env, nil
}
