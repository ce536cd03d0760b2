package supervisor

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// abandon starts a process as an engine that was launched from dir and whose admitd is gone; nothing of it is on disk.
func abandon(t *testing.T, mark string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(environ(os.Environ(), mark), scriptEnv+"=hold")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	// Start returns in the middle of the exec, when a process has no environment yet that others could read.
	until(t, "it carries its mark", func() bool { return hasMark("/proc", mark, c.Process.Pid) })
	return c
}

func killed(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if alive(c) {
		t.Fatal("the leftover still runs")
	}
	if err := c.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the leftover ended with %v; want killed", err)
	}
}

func alive(c *exec.Cmd) bool {
	p, ok := readProc("/proc", c.Process.Pid)
	return ok && !p.zombie()
}

// An admitd that is killed right after a launch leaves no word of it, and one with a full disk neither.
func TestLeftoverWithoutARecordIsKnownByItsMark(t *testing.T) {
	t.Parallel()
	o := fakeOptions(t, "serve")
	old := abandon(t, folderMark(o.StateDir))
	other := abandon(t, folderMark(t.TempDir()))
	r := run(t, o)
	r.ready()
	killed(t, old)
	if !alive(other) {
		t.Error("the engine of another state directory was ended")
	}
}

func TestRecordIsWrittenBeforeTheLaunch(t *testing.T) {
	t.Parallel()
	o := fakeOptions(t, "serve")
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var at record
	var found bool
	s.launch = func(sp *spec, _ *output) (child, error) {
		at, found = readRecord(o.StateDir, bootID())
		stop()
		return nil, errors.New("no such luck")
	}
	if err := s.Run(ctx); err != nil {
		t.Errorf("Run = %v", err)
	}
	if !found || at.Mark != folderMark(o.StateDir) || at.Dir == "" || at.Leader.PID != 0 {
		t.Errorf("record at the launch %+v, %v; want mark and folder, and no process yet", at, found)
	}
}

func TestAttachingToAnExternalEngineEndsTheLaunchedOneFirst(t *testing.T) {
	srv := httptest.NewServer(fakeHandler(nil))
	defer srv.Close()
	t.Setenv("VLLM_API_KEY", "theirs")
	dir := t.TempDir()
	old := abandon(t, folderMark(dir))
	r := run(t, Options{Kind: External, URL: srv.URL, APIKey: "theirs", ServedNames: []string{""}, StateDir: dir})
	r.ready()
	killed(t, old)
	second, err := New(Options{Kind: External, URL: srv.URL, StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); !errors.Is(err, ErrStateDirBusy) {
		t.Errorf("a second admitd on the same state directory: %v; want a refusal", err)
	}
}
