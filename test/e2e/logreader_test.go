package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"admitd/test/harness"
)

// In `admitd serve 2>&1 | tee log` Ctrl-C ends tee as well, and often first: every line from then on is written into a pipe
// that nobody reads.
func TestAStopWithoutALogReaderLeavesNoEngineBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sig  syscall.Signal
		code int
	}{"SIGINT": {syscall.SIGINT, 130}, "SIGTERM": {syscall.SIGTERM, 143}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			a, cmd := serveInto(t, out)
			a.WaitReady(readyWithin)
			r, ok := harness.ReadRecord(a.State)
			if !ok || len(harness.Engines(r.Mark)) != 1 {
				t.Fatalf("one engine is wanted, its record is %+v", r)
			}
			t.Cleanup(func() { harness.EndEngines(t, r.Mark) })

			// While it serves, a lost reader costs nothing but the lines.
			_ = reader.Close()
			if status, body := a.PutPolicy("policy: concurrency\nparams: {max_in_flight: 3}\n", ""); status != http.StatusOK { // which is logged
				t.Fatalf("%d: %s", status, body)
			}
			if ans := harness.Post(harness.Timeout(t, time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "Hello", 4, false)); ans.Status != http.StatusOK {
				t.Fatalf("with nobody reading the log: %+v", ans)
			}

			if err := cmd.Process.Signal(c.sig); err != nil {
				t.Fatal(err)
			}
			select {
			case <-a.Ended:
			case <-time.After(2 * time.Minute):
				t.Fatal("it has not ended")
			}
			if got := cmd.ProcessState.ExitCode(); got != c.code {
				t.Errorf("it ended with %s, want exit code %d", cmd.ProcessState, c.code)
			}
			if left := harness.Engines(r.Mark); len(left) > 0 {
				t.Errorf("the engine goes on without admitd: pids %v", left)
			}
		})
	}
}

// serveInto starts an admitd that logs all it can into a pipe, whose writing end it takes over.
func serveInto(t *testing.T, out *os.File) (*harness.Client, *exec.Cmd) {
	t.Helper()
	gate, admin, state := harness.FreePort(t), harness.FreePort(t), t.TempDir()
	cmd := exec.CommandContext(context.Background(), binary, "serve", "--listen", gate, "--admin", admin, "--state-dir", state, "--log-level", "debug",
		"--quiet", "--engine", "sim", "--model", model, "--", "--load-time", "0s")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return &harness.Client{TB: t, Gate: "http://" + gate, Admin: "http://" + admin, State: state, Ended: ended, How: func() string {
		return cmd.ProcessState.String()
	}}, cmd
}
