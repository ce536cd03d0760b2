// Package harness runs the real admitd program for tests, as a user would: the built binary, its listeners, its output.
//
// Goal: tests that see what a caller and an operator see. Non-goals: looking inside.
// Invariants: every program started is stopped and waited for; all traffic is on loopback; waiting is for conditions,
// with deadlines that a slow machine can keep.
package harness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Build compiles admitd once for a test binary and returns its path and a function that removes it.
func Build() (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "admitd-test-")
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "admitd")
	out, err := exec.CommandContext(context.Background(), "go", "build", "-o", path, "admitd/cmd/admitd").CombinedOutput()
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, fmt.Errorf("build admitd: %w\n%s", err, out)
	}
	return path, func() { _ = os.RemoveAll(dir) }, nil
}

// Admitd is one running program.
type Admitd struct {
	*Client
	cmd      *exec.Cmd
	output   *Output
	exited   chan struct{}
	ExitCode int
}

// Output collects what the program prints.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String returns everything so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Options say how to start admitd.
type Options struct {
	Binary string
	// Args follow `serve`; listeners on free ports and a state folder of its own are added.
	Args []string
	// EngineArgs follow --.
	EngineArgs []string
	Env        []string
	// Files become descriptors 3, 4 and so on of the program.
	Files []*os.File
	// StateDir is kept over several starts when given.
	StateDir string
}

// Start runs `admitd serve` and returns at once. The test's end stops it.
func Start(t testing.TB, o Options) *Admitd {
	t.Helper()
	if o.StateDir == "" {
		o.StateDir = t.TempDir()
	}
	gate, admin := FreePort(t), FreePort(t)
	args := append([]string{"serve", "--listen", gate, "--admin", admin, "--state-dir", o.StateDir, "--log-level", "info"}, o.Args...)
	if len(o.EngineArgs) > 0 {
		args = append(append(args, "--"), o.EngineArgs...)
	}
	a := &Admitd{output: &Output{}, exited: make(chan struct{})}
	a.Client = &Client{TB: t, Gate: "http://" + gate, Admin: "http://" + admin, State: o.StateDir, Ended: a.exited, How: func() string {
		return fmt.Sprintf("exit code %d", a.ExitCode)
	}}
	a.cmd = exec.CommandContext(context.Background(), o.Binary, args...)
	drained := a.collect()
	a.cmd.Env, a.cmd.ExtraFiles = append(os.Environ(), o.Env...), o.Files
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = a.cmd.Stdout.(*os.File).Close()
	go func() {
		_ = a.cmd.Wait()
		a.ExitCode = a.cmd.ProcessState.ExitCode()
		// A successor has the same output and goes on writing to it.
		select {
		case <-drained:
		case <-time.After(time.Second):
		}
		close(a.exited)
	}()
	t.Cleanup(func() {
		a.Stop()
		if t.Failed() {
			t.Logf("admitd's output:\n%s", tail(a.output.String(), 12000))
		}
	})
	return a
}

// collect gives the program a pipe for its output; what it returns is closed when nobody holds its other end any more.
func (a *Admitd) collect() <-chan struct{} {
	a.TB.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		a.TB.Fatal(err)
	}
	a.cmd.Stdout, a.cmd.Stderr = w, w
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		defer func() { _ = r.Close() }()
		_, _ = io.Copy(a.output, r)
	}()
	return drained
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// PID is the program's own process id.
func (a *Admitd) PID() int { return a.cmd.Process.Pid }

// Exited reports whether the program has ended.
func (a *Admitd) Exited() bool {
	select {
	case <-a.exited:
		return true
	default:
		return false
	}
}

// Output is what it has printed so far.
func (a *Admitd) Output() string { return a.output.String() }

// Stop asks the program to stop and waits for its end.
func (a *Admitd) Stop() {
	select {
	case <-a.exited:
		return
	default:
	}
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.exited:
	case <-time.After(90 * time.Second):
		_ = a.cmd.Process.Kill()
		<-a.exited
		a.TB.Error("admitd did not stop within 90 s of SIGTERM")
	}
}

// Signal sends a signal to the program.
func (a *Admitd) Signal(s os.Signal) { _ = a.cmd.Process.Signal(s) }

// WaitExit waits for the program to end by itself and returns its exit code.
func (a *Admitd) WaitExit(limit time.Duration) int {
	a.TB.Helper()
	select {
	case <-a.exited:
		return a.ExitCode
	case <-time.After(limit):
		a.TB.Fatalf("admitd has not ended within %s", limit)
		return -1
	}
}

// WriteFile writes a file into a new folder of the test and returns its path.
func WriteFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
