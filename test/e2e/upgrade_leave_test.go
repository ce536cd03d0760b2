package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"admitd/test/harness"
	"admitd/ui/api"
)

func upgraded(t *testing.T, a *harness.Admitd, args ...string) (pid int) {
	t.Helper()
	text, code, pid := harness.Upgrade(t, binary, a, args...)
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, text)
	}
	return pid
}

func TestAdmitdStartsAgainAtOnceWhileAnOldOneStillFinishes(t *testing.T) {
	t.Parallel()
	a, file := onFile(t, engineConfig(model, ""))
	engine := a.Status().Pools[0].Engine.PID
	id, rest, leave := streaming(t, a, 30000)
	pid := upgraded(t, a)
	_ = syscall.Kill(pid, syscall.SIGKILL)
	harness.Eventually(t, "dead: the new one", func() bool { return !harness.Alive(pid) })
	next := harness.Start(t, harness.Options{Binary: binary, StateDir: a.State, Args: []string{"--config", file}})
	next.WaitReady(readyWithin)
	if now := next.Status().Pools[0].Engine.PID; now != engine {
		t.Errorf("the next one runs engine %d, not %d", now, engine)
	}
	ans := harness.Post(harness.Timeout(t, 5*time.Minute), next.Gate+"/v1/chat/completions", harness.Chat(model, "still there?", 2, false))
	if ans.Status != http.StatusOK || a.Exited() {
		t.Errorf("the next one answers %d %v; the old one has ended: %v", ans.Status, ans.Err, a.Exited())
	}
	if _, err := io.ReadFull(rest, make([]byte, 64)); err != nil {
		t.Errorf("the old one's stream: %v", err)
	}
	leave()
	if code := a.WaitExit(5 * time.Minute); code != 0 {
		t.Errorf("the old one ended with exit code %d", code)
	}
	next.Stop()
	decisions, outcomes, _ := harness.Books(t, a.State)
	if decisions[id] != 1 || outcomes[id] != 1 {
		t.Errorf("%d decisions, %d outcomes", decisions[id], outcomes[id])
	}
}

// limits.idle_timeout is an hour here: only the end of its successor can make the old one leave.
func TestIdleConnectionDoesNotKeepAnOldAdmitdAliveAfterTheNewOneHasEnded(t *testing.T) {
	t.Parallel()
	a, _ := onFile(t, engineConfig(model, "")+"limits: {idle_timeout: 1h}\n")
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.Gate, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 12)); err != nil {
		t.Fatal(err)
	}
	pid := upgraded(t, a)
	if a.Exited() {
		t.Error("it has left although the connection may bring a request")
	}
	harness.End(t, pid)
	if code := a.WaitExit(5 * time.Minute); code != 0 {
		t.Errorf("the old one ended with exit code %d", code)
	}
}

func TestStreamThatOutlastsTheDrainOfAnUpgradeEndsWithAnErrorAndItsMark(t *testing.T) {
	t.Parallel()
	a, _ := onFile(t, strings.Replace(engineConfig(model, ""), "timeout: 1h", "timeout: 1h, drain_timeout: 1s", 1))
	id, rest, _ := streaming(t, a, 30000)
	upgraded(t, a)
	text, err := io.ReadAll(rest)
	if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") || !strings.Contains(string(text), "has been replaced by a new one") {
		t.Errorf("%v, %q", err, text)
	}
	a.WaitExit(5 * time.Minute)
	var item api.DecisionItem
	harness.Eventually(t, "on record", func() bool {
		a.Get("/api/v1/decisions/"+id, &item)
		return item.Outcome != nil
	})
	if item.Outcome.Ending != "engine_error" {
		t.Errorf("%+v", item.Outcome)
	}
}

func TestSocketFileThatAnUpgradeGivesUpIsRemoved(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "admitd-sock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	sock := filepath.Join(dir, "gate.sock")
	a, _ := onFile(t, engineConfig(model, ""), "--listen", "unix:"+sock)
	port := harness.FreePort(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", sock)
		}}}
	// One that fails leaves the socket as it was.
	if text, code, _ := harness.Upgrade(t, binary, a, "--binary", program(t, "exec "+binary+` "$@" --listen `+port+" --model-name other")); code != 1 {
		t.Fatalf("exit code %d\n%s", code, text)
	}
	if _, err := harness.Call(client, "http://localhost", model, 1, true); err != nil {
		t.Error(err)
	}
	upgraded(t, a, "--binary", program(t, "exec "+binary+` "$@" --listen `+port))
	if _, err := harness.Call(http.DefaultClient, "http://"+port, model, 1, true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(sock); !os.IsNotExist(err) {
		t.Errorf("the file of the socket that nobody listens on: %v", err)
	}
}
