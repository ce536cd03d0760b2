// Package harness runs the real admitd program for tests, as a user would: the built binary, its listeners, its output.
//
// Goal: tests that see what a caller and an operator see. Non-goals: looking inside.
// Invariants: every program started is stopped and waited for; all traffic is on loopback; waiting is for conditions,
// with deadlines that a slow machine can keep.
package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"admitd/ui/api"
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
	t      testing.TB
	cmd    *exec.Cmd
	output *Output
	State  string
	// Gate and Admin are base URLs, known once both listeners are open.
	Gate, Admin string
	Token       string
	exited      chan struct{}
	ExitCode    int
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
	a := &Admitd{t: t, output: &Output{}, State: o.StateDir, Gate: "http://" + gate, Admin: "http://" + admin, exited: make(chan struct{})}
	a.cmd = exec.CommandContext(context.Background(), o.Binary, args...)
	a.cmd.Stdout, a.cmd.Stderr = a.output, a.output
	a.cmd.Env = append(os.Environ(), o.Env...)
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = a.cmd.Wait()
		a.ExitCode = a.cmd.ProcessState.ExitCode()
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

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// PID is the program's own process id.
func (a *Admitd) PID() int { return a.cmd.Process.Pid }

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
		a.t.Error("admitd did not stop within 90 s of SIGTERM")
	}
}

// Signal sends a signal to the program.
func (a *Admitd) Signal(s os.Signal) { _ = a.cmd.Process.Signal(s) }

// WaitExit waits for the program to end by itself and returns its exit code.
func (a *Admitd) WaitExit(limit time.Duration) int {
	a.t.Helper()
	select {
	case <-a.exited:
		return a.ExitCode
	case <-time.After(limit):
		a.t.Fatalf("admitd has not ended within %s", limit)
		return -1
	}
}

// WaitReady waits until the gate lets requests in.
func (a *Admitd) WaitReady(limit time.Duration) {
	a.t.Helper()
	a.Until(limit, "ready", func() bool {
		resp, err := get(a.Admin + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	token, err := os.ReadFile(filepath.Join(a.State, "admin.token"))
	if err != nil {
		a.t.Fatal(err)
	}
	a.Token = strings.TrimSpace(string(token))
}

// Until polls for a condition. It fails the test when the program ends or the limit passes.
func (a *Admitd) Until(limit time.Duration, what string, cond func() bool) {
	a.t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			a.t.Fatalf("not %s within %s", what, limit)
		case <-a.exited:
			a.t.Fatalf("admitd ended with exit code %d before it was %s", a.ExitCode, what)
		}
	}
}

// Status asks GET /api/v1/status.
func (a *Admitd) Status() api.Status {
	a.t.Helper()
	var s api.Status
	a.Get("/api/v1/status", &s)
	return s
}

// Get asks the admin API and decodes the answer.
func (a *Admitd) Get(path string, into any) {
	a.t.Helper()
	resp, err := get(a.Admin + path)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		a.t.Fatalf("GET %s: %s %v\n%s", path, resp.Status, err, b)
	}
	if s, ok := into.(*string); ok {
		*s = string(b)
		return
	}
	if err := json.Unmarshal(b, into); err != nil {
		a.t.Fatalf("GET %s: %v\n%s", path, err, b)
	}
}

// PutPolicy sends a policy text, over the revision ifMatch ("" for whatever runs), and returns the status and body.
func (a *Admitd) PutPolicy(text, ifMatch string) (int, string) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, a.Admin+"/api/v1/policy", strings.NewReader(text))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.Token)
	req.Header.Set("Content-Type", "application/yaml")
	req.Header.Set("If-Match", "*")
	if ifMatch != "" {
		req.Header.Set("If-Match", `"`+ifMatch+`"`)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// Metric sums the samples of admitd's own metric whose line matches the label pattern (a regular expression, "" for all).
func (a *Admitd) Metric(name, labels string) float64 {
	a.t.Helper()
	var page string
	a.Get("/metrics", &page)
	re := regexp.MustCompile(`(?m)^` + name + `(?:\{([^}]*)\})? ([0-9.e+-]+)$`)
	want := regexp.MustCompile(labels)
	sum := 0.0
	for _, m := range re.FindAllStringSubmatch(page, -1) {
		if !want.MatchString(m[1]) {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(m[2], &v); err != nil {
			a.t.Fatalf("metric %s: %v", name, err)
		}
		sum += v
	}
	return sum
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
