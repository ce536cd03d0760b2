package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"admitd/test/harness"
)

// onFile runs admitd on a configuration file that has the engine, and returns that file.
func onFile(t *testing.T, config string, args ...string) (a *harness.Admitd, file string) {
	t.Helper()
	file = harness.WriteFile(t, "admitd.yaml", config)
	a = harness.Start(t, harness.Options{Binary: binary, Args: append([]string{"--config", file}, args...)})
	a.WaitReady(readyWithin)
	return a, file
}

// engineConfig is the engine's part of a configuration whose answers are as long as was asked for, and slow.
func engineConfig(name, more string) string {
	return fmt.Sprintf("model: %s\nupgrade: {timeout: 1h}\nengine: {kind: sim, args: [--load-time, 200ms, --speed, \"0.2\", --median-output, \"1073741824\"%s]}\n", name, more)
}

// streaming is an open stream of so many tokens that has begun.
func streaming(t *testing.T, a *harness.Admitd, tokens int) (id string, rest io.Reader, leave func()) {
	t.Helper()
	resp, err := harness.Open(harness.Timeout(t, 10*time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "A long story", tokens, true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	rest = harness.FirstData(t, resp)
	return resp.Header.Get("X-Admitd-Request-Id"), rest, func() { _ = resp.Body.Close() }
}

func readyz(t *testing.T, a *harness.Admitd) int {
	t.Helper()
	resp, err := http.Get(a.Admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// program writes a shell script that can be named as another binary.
func program(t *testing.T, text string) string {
	t.Helper()
	path := harness.WriteFile(t, "admitd", "#!/bin/sh\n"+text+"\n")
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUpgradeWithOtherEngineSettingsIsRefusedAndCostsNobodyAnything(t *testing.T) {
	t.Parallel()
	a, file := onFile(t, engineConfig(model, ""))
	engine := a.Status().Pools[0].Engine.PID
	_, rest, _ := streaming(t, a, 60)
	for setting, config := range map[string]string{
		"engine.args":       engineConfig(model, ", --max-num-seqs, \"7\""),
		"model":             engineConfig("Qwen2.5-1.5B", "") + "model_name: " + model + "\n",
		"model_name":        engineConfig(model, "") + "model_name: other\n",
		"engine.kind":       "model: " + model + "\nengine: {kind: external, url: \"http://127.0.0.1:9\"}\n",
		"engine.stop_grace": strings.Replace(engineConfig(model, ""), "kind: sim", "kind: sim, stop_grace: 15s", 1),
	} {
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		text, code, _ := harness.Upgrade(t, binary, a)
		if code != 1 || !strings.Contains(text, setting) || !strings.Contains(text, "changed: the engine would have to be replaced") || !strings.Contains(text, "restart admitd") {
			t.Errorf("%s: exit code %d\n%s", setting, code, text)
		}
		if now := a.Status().Pools[0].Engine.PID; now != engine || !harness.Alive(engine) || readyz(t, a) != http.StatusOK {
			t.Errorf("%s: engine pid %d -> %d, ready %d", setting, engine, now, readyz(t, a))
		}
	}
	if strings.Contains(a.Output(), "engine adopted") {
		t.Error("the engine was given up and had to be found again")
	}
	if text, err := io.ReadAll(rest); err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") || strings.Contains(string(text), `"error"`) {
		t.Errorf("the stream is cut: %v, %q", err, text)
	}
}

// The engine's own time to drain is at most engine.drain_timeout: changed beyond what matters to it, it is the same engine.
func TestSettingThatDoesNotReachTheEngineIsNoReasonToRefuseAnUpgrade(t *testing.T) {
	t.Parallel()
	a, file := onFile(t, engineConfig(model, ""))
	engine := a.Status().Pools[0].Engine.PID
	changed := strings.Replace(engineConfig(model, ""), "kind: sim", "kind: sim, drain_timeout: 11m, max_restarts: 9", 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, code, _ := harness.Upgrade(t, binary, a); code != 0 {
		t.Fatalf("exit code %d\n%s", code, text)
	}
	if now := a.Status().Pools[0].Engine.PID; now != engine {
		t.Errorf("engine pid %d -> %d", engine, now)
	}
}

func TestUpgradeIntoAnotherStateFolderIsRefusedAndLeavesNoSecondEngine(t *testing.T) {
	t.Parallel()
	a, _ := onFile(t, engineConfig(model, ""))
	engine := a.Status().Pools[0].Engine.PID
	token := filepath.Join(t.TempDir(), "token")
	text, err := os.ReadFile(filepath.Join(a.State, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(token, text, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, args ...string) {
		t.Helper()
		said, code, _ := harness.Upgrade(t, binary, a, append(args, "--token-file", token)...)
		if code != 1 || !strings.Contains(said, "state_dir: ") || !strings.Contains(said, "restart admitd") {
			t.Errorf("%s: exit code %d\n%s", what, code, said)
		}
		if now := a.Status().Pools[0].Engine.PID; now != engine || !harness.Alive(engine) || readyz(t, a) != http.StatusOK {
			t.Errorf("%s: engine pid %d -> %d", what, engine, now)
		}
	}
	other := t.TempDir()
	refused("another one", "--binary", program(t, "exec "+binary+` "$@" --state-dir `+other))
	if left, _ := os.ReadDir(other); len(left) > 0 {
		t.Errorf("the folder that was refused has %v", left)
	}
	if err := os.RemoveAll(a.State); err != nil {
		t.Fatal(err)
	}
	refused("removed")
	if err := os.MkdirAll(a.State, 0o700); err != nil {
		t.Fatal(err)
	}
	refused("removed and made anew")
	a.Stop()
	if harness.Alive(engine) {
		t.Error("the engine outlived the stop")
	}
}

// The program plays a successor that hangs after it has said that it could take the engine.
func TestEngineThatDiesInTheMiddleOfAnUpgradeIsNotShownAsReady(t *testing.T) {
	t.Parallel()
	a, _ := onFile(t, engineConfig(model, ""))
	engine := a.Status().Pools[0].Engine.PID
	took := filepath.Join(t.TempDir(), "took")
	hang := program(t, `printf '{"kind":"prepared"}\n' >&3
while read -r line <&3; do case "$line" in *'"take"'*) : >`+took+`;; esac; done`)
	type result struct {
		text string
		code int
	}
	done := make(chan result, 1)
	go func() {
		text, code, _ := harness.Upgrade(t, binary, a, "--binary", hang)
		done <- result{text, code}
	}()
	harness.Eventually(t, "left to the successor", func() bool { _, err := os.Stat(took); return err == nil })
	_ = syscall.Kill(engine, syscall.SIGKILL)
	r := <-done // not after upgrade.timeout, which is an hour
	if r.code != 1 || !strings.Contains(r.text, "the engine ended meanwhile") {
		t.Errorf("exit code %d\n%s", r.code, r.text)
	}
	harness.Eventually(t, "ready with a new engine", func() bool {
		e := a.Status().Pools[0].Engine
		return e.PID != 0 && e.PID != engine && readyz(t, a) == http.StatusOK
	})
}

func TestStopInTheMiddleOfAnUpgradeIsNotToldAsGoingOn(t *testing.T) {
	t.Parallel()
	a, _ := onFile(t, engineConfig(model, ""))
	done := make(chan string, 1)
	go func() {
		text, _, _ := harness.Upgrade(t, binary, a, "--binary", program(t, "exec cat <&3 >/dev/null"))
		done <- text
	}()
	harness.Eventually(t, "begun: the upgrade", func() bool { return strings.Contains(a.Output(), "upgrade begun") })
	a.Signal(syscall.SIGTERM)
	if text := <-done; strings.Contains(text, "goes on") || !strings.Contains(text, "admitd is stopping") {
		t.Errorf("told: %s", text)
	}
	a.WaitExit(2 * time.Minute)
	if out := a.Output(); strings.Contains(out, "goes on") || !strings.Contains(out, "upgrade called off") {
		t.Errorf("logged:\n%s", out)
	}
}

func TestProgramThatOthersCouldReplaceIsNoUpgrade(t *testing.T) {
	t.Parallel()
	a := start(t, "")
	a.WaitReady(readyWithin)
	dir := filepath.Join(t.TempDir(), "open")
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bin", "admitd")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 9\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "admitd")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { // not the folder itself but one above it
		t.Fatal(err)
	}
	for _, named := range []string{path, link} {
		if text, code, _ := harness.Upgrade(t, binary, a, "--binary", named); code != 5 || !strings.Contains(text, dir+" must belong to") {
			t.Errorf("%s: exit code %d\n%s", named, code, text)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if text, code, _ := harness.Upgrade(t, binary, a, "--binary", link); code != 1 || !strings.Contains(text, "exit status 9") {
		t.Errorf("safe now: exit code %d\n%s", code, text)
	}
}
