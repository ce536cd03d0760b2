package faults

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"admitd/internal/app"
	"admitd/internal/config"
	"admitd/sim"
	"admitd/supervisor"
	"admitd/test/harness"
)

// eager makes a supervisor look often and launch again at once, where it is not the waiting that is tested.
func eager(o *supervisor.Options) {
	o.ReadyInterval, o.Restart.First = 50*time.Millisecond, 20*time.Millisecond
}

// child waits for the pid of an engine's process whose command line has a text.
func child(r *rig, text string) (pid int) {
	r.TB.Helper()
	return process(r, text, r.mark())
}

// process waits for the pid of a process whose command line has a text and whose environment has another.
func process(r *rig, text, mark string) (pid int) {
	r.TB.Helper()
	r.until("seen "+text+" among its processes", func() bool {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			r.TB.Fatal(err)
		}
		for _, e := range entries {
			n, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
			if strings.Contains(string(line), text) && strings.Contains(string(env), mark) {
				pid = n
			}
		}
		return pid != 0
	})
	return pid
}

// mark is what the environment of this rig's engine processes has and no other's does: the folder of its launch.
func (r *rig) mark() string {
	return filepath.Dir(strings.TrimPrefix(r.pool().Engine.Address, "unix:"))
}

// Engine bug 31: SGLang's schedulers leave the leader's session and outlive it. They carry our mark, and are found by that.
func TestWorkerThatEscapedTheGroupDoesNotOutliveTheEngine(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{face: sim.SGLang, faults: []string{"escaped-worker"}, patience: eager}).ready()
	leader, worker := r.pool().Engine.PID, child(r, "sglang::scheduler_TP1")
	if sid, err := syscall.Getpgid(worker); err != nil || sid == leader {
		t.Fatalf("the worker did not escape: group %d of leader %d, %v", sid, leader, err)
	}
	r.kill(leader)
	r.relaunched(1)
	if alive(worker) {
		t.Error("the escaped worker is still there beside the new engine")
	}
	second := child(r, "sglang::scheduler_TP1")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if alive(second) {
		t.Error("the escaped worker outlived admitd's stop")
	}
}

// Engine bug 32: after a SIGKILL and a restart on the same port SGLang hangs after about a hundred requests. So a stop is asked
// for by SIGTERM, no two launches have the same address, and a hang is a stall.
func TestHangAfterManyRequestsIsRestartedAtAnotherAddress(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.SGLang, faults: []string{"late-hang:req=30"}, patience: eager,
		config: func(c *config.Config) { c.Engine.StallAfter, c.Engine.StopGrace = time.Second, time.Second },
	}).ready()
	first := r.pool().Engine
	for range 28 {
		if a := r.chat(2, false); !good(a) {
			t.Fatalf("before the hang: %d %s", a.Status, a.Body)
		}
	}
	a := r.chat(2, true)
	if good(a) && !strings.Contains(a.Body, `"error"`) {
		t.Errorf("the request that hung: %d %s", a.Status, a.Body)
	}
	st := r.relaunched(1)
	if st.Address == first.Address || st.PID == first.PID {
		t.Errorf("launched again at %s, where the old one was", st.Address)
	}
	r.settled()
}

// Engine bug 32, its cause: SGLang itself, on its port, is asked to end by SIGTERM and never gets the port of the one before.
func TestRelaunchedSGLangNeverGetsItsOldPort(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{patience: eager, config: func(c *config.Config) {
		c.Engine.Kind, c.Engine.Binary, c.Engine.Args = "sglang", playSGLang(t, binary), nil
	}}).ready()
	first := r.pool().Engine
	if err := post(r, "/api/v1/engine/restart"); err != nil {
		t.Fatal(err)
	}
	second := r.relaunched(1)
	if first.Address == second.Address || !strings.HasPrefix(second.Address, "http://127.0.0.1:") {
		t.Errorf("%s, then %s", first.Address, second.Address)
	}
	if x := second.LastExit; x == nil || !x.Wanted {
		t.Errorf("last exit %+v: a wanted stop", x)
	}
	r.kill(second.PID)
	if third := r.relaunched(2); third.Address == second.Address {
		t.Errorf("%s again, after a kill", third.Address)
	}
}

// playSGLang writes a program that takes SGLang's arguments and runs the simulated one.
func playSGLang(t *testing.T, admitd string, more ...string) string {
	path := harness.WriteFile(t, "sglang", `#!/bin/sh
host=127.0.0.1
shift # serve
set -- "$@" END
while [ "$1" != END ]; do
  case $1 in
    --model-path) set -- "$@" --model "$2"; shift 2;;
    --host) host=$2; shift 2;;
    --port) port=$2; shift 2;;
    --enable-metrics) shift;;
    --enable-cache-report) shift;;
    --decode-log-interval) shift 2;;
    *) set -- "$@" "$1" "$2"; shift 2;;
  esac
done
shift
exec `+admitd+` sim --dialect sglang --listen "$host:$port" `+strings.Join(more, " ")+` "$@"
`)
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// post makes an authorised call of the admin API.
func post(r *rig, path string) error {
	req, err := http.NewRequestWithContext(harness.Timeout(r.TB, patience), http.MethodPost, r.Admin+path, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+r.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("POST %s: %s", path, resp.Status)
	}
	return nil
}

// Engine bug 33: a core that the kernel does not let go stays after SIGKILL and holds the GPU. No second engine is put beside it;
// who asks is told that a person must help; and when it has gone after all, admitd goes on.
func TestProcessThatSurvivesSIGKILLStopsTheRestarts(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.VLLM, faults: []string{"unkillable:10m"},
		patience: func(o *supervisor.Options) { o.ReapTimeout = time.Second },
	}).ready()
	first := r.pool().Engine
	core, letGo := pinned(r)
	r.kill(first.PID)
	st := r.state(supervisor.Wedged)
	if !strings.Contains(st.Text, strconv.Itoa(core)) || st.Restarts != first.Restarts {
		t.Errorf("wedged: %+v; want the process named and no launch beside it", st)
	}
	a := r.chat(1, false)
	refusedAfter(t, a, "engine_down")
	if !strings.Contains(a.Body, "an operator must help") {
		t.Errorf("callers hear: %s", a.Body)
	}
	// The kernel lets it go after all.
	letGo()
	if again := r.relaunched(1); again.PID == first.PID {
		t.Errorf("after the wedge: %+v", again)
	}
	if alive(core) {
		t.Error("the old core is still there beside the new engine")
	}
	_, letGo = pinned(r) // for the stop
	letGo()
}

// pinned waits for an engine's core that will not end, and returns what lets it end.
func pinned(r *rig) (core int, letGo func()) {
	r.TB.Helper()
	core = child(r, "--core")
	pin := process(r, fmt.Sprintf("--pin\x00--of\x00%d\x00", core), "")
	letGo = sync.OnceFunc(func() { r.kill(pin) })
	r.TB.Cleanup(letGo)
	return core, letGo
}

// Engine bug 34: the memory of the engine before is not free yet, and a launch fails for it. That is no reason to give up.
func TestRelaunchIntoMemoryStillHeldIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.VLLM, faults: []string{"memory-held:8s"},
		patience: func(o *supervisor.Options) {
			o.Restart = supervisor.RestartPolicy{Budget: 100, Window: time.Minute, First: 200 * time.Millisecond, Max: time.Second}
		},
	}).ready()
	r.kill(r.pool().Engine.PID)
	var x *supervisor.Exit
	r.until("failed for the memory", func() bool {
		x = r.pool().Engine.LastExit
		return x != nil && strings.Contains(x.Cause, "GPU's memory")
	})
	if x.Hint == "" {
		t.Errorf("last exit %+v: without a hint", x)
	}
	if st := r.relaunched(2); st.GaveUp {
		t.Errorf("gave up: %+v", st)
	}
	if a := r.chat(2, false); !good(a) {
		t.Errorf("after the restart: %d %s", a.Status, a.Body)
	}
}

// Engine bug 35: blind restarts took a host down. They grow apart, are bounded, and there is none for what no retry can mend.
func TestEngineThatNeverStartsIsNotRestartedForEver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault    string
		launches int
	}{{"exit1-start", 4}, {"fatal-start", 1}} {
		var ends error
		r := launch(t, setup{
			face: sim.VLLM, faults: []string{c.fault}, wanted: app.ErrEngineFailed,
			patience: func(o *supervisor.Options) {
				o.Restart = supervisor.RestartPolicy{Budget: 3, Window: time.Minute, First: 20 * time.Millisecond, Max: 80 * time.Millisecond, Jitter: 0.01}
			},
		})
		<-r.Ended
		if ends = r.stop(); !errors.Is(ends, app.ErrEngineFailed) {
			t.Errorf("%s: ended with %v", c.fault, ends)
		}
		if n := strings.Count(r.log.String(), "state=starting"); n != c.launches {
			t.Errorf("%s: %d launches, want %d", c.fault, n, c.launches)
		}
	}
}

// Engine bug 36: another server is on the port and lets a second one share it; the kernel would split the callers between both.
func TestPortThatAnotherServerSharesIsNotUsed(t *testing.T) {
	t.Parallel()
	at := harness.FreePort(t)
	stranger := exec.Command(binary, "sim", "--listen", at, "--model", model, "--fault", "shared-port")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stranger.Process.Kill()
		_ = stranger.Wait()
	})
	waitFor(t, "the stranger listens", func() bool { return listens(at) })
	r := launch(t, setup{
		face: sim.VLLM, faults: []string{"shared-port"}, args: []string{"--listen", at}, wanted: app.ErrEngineFailed,
		config: func(c *config.Config) { c.Engine.MaxRestarts = 0 },
	})
	<-r.Ended
	want := fmt.Sprintf("is held by pid %d", stranger.Process.Pid)
	if err := r.stop(); err == nil || !strings.Contains(err.Error()+r.log.String(), want) {
		t.Errorf("ended with %v; want that the port %s", err, want)
	}
	if strings.Contains(r.log.String(), "state=loading") {
		t.Error("an engine was launched beside the stranger")
	}
}

// Engine bug 36, the other way round: by default there is no port that anybody could share.
func TestLaunchedEngineListensWhereNobodyElseCan(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{face: sim.VLLM, faults: []string{"shared-port"}}).ready()
	st, err := os.Stat(r.mark())
	if err != nil || st.Mode().Perm() != 0o700 || !strings.HasPrefix(r.pool().Engine.Address, "unix:") {
		t.Errorf("%s in %v, %v", r.pool().Engine.Address, st, err)
	}
}

// Engine bug 38: a stop during warm-up leaves the workers behind. An engine that is not ready is not asked but ended whole.
func TestStopDuringWarmUpLeavesNoWorker(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{face: sim.VLLM, faults: []string{"orphan"}, args: []string{"--load-time", "10m"}})
	r.until("loading", func() bool { return strings.Contains(r.log.String(), "state=loading") })
	r.until("loading weights", func() bool { return r.pool().Engine.Phase == "weights" || r.pool().Engine.Phase == "launched" })
	leader := r.pool().Engine.PID
	worker := child(r, "sleep")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if alive(leader) || alive(worker) {
		t.Errorf("leader alive %v, worker alive %v", alive(leader), alive(worker))
	}
}

// Engine bug 39: a core blocked in the GPU driver brings out no token, and its server does not hear SIGTERM.
func TestHungEngineThatIgnoresSIGTERMIsKilledAndReplaced(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.VLLM, faults: []string{"deaf-hang:req=3"}, patience: eager,
		config: func(c *config.Config) {
			c.Engine.StallAfter, c.Engine.StopGrace, c.Engine.DrainTimeout = time.Second, time.Second, time.Second
		},
	}).ready()
	first := r.pool().Engine.PID
	if a := r.chat(5, true); !good(a) {
		t.Fatalf("before the hang: %d %s", a.Status, a.Body)
	}
	a := r.chat(5, true)
	if good(a) && !strings.Contains(a.Body, `"error"`) {
		t.Errorf("the request that hung: %d %s", a.Status, a.Body)
	}
	st := r.relaunched(1)
	if st.PID == first || alive(first) {
		t.Errorf("the hung engine %d is still there: %+v", first, st)
	}
	r.settled()
}

// Engine bug 40: initialisation failed, but the processes neither end nor free the GPU. The start has a deadline.
func TestStartThatHangsIsEndedAtItsDeadline(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{
		face: sim.VLLM, faults: []string{"hung-start"}, wanted: app.ErrEngineFailed,
		config: func(c *config.Config) { c.Engine.StartTimeout, c.Engine.MaxRestarts = 8*time.Second, 0 },
	})
	r.until("loading", func() bool { return strings.Contains(r.log.String(), "state=loading") })
	leader, worker := r.pool().Engine.PID, child(r, "VLLM::Worker_TP0")
	<-r.Ended
	if err := r.stop(); err == nil || !strings.Contains(err.Error(), "it was not ready 8s after its launch") {
		t.Errorf("ended with %v", err)
	}
	if alive(leader) || alive(worker) {
		t.Errorf("leader alive %v, worker alive %v", alive(leader), alive(worker))
	}
}

// Section 5.8: an engine that ends by SIGKILL when it was asked to stop has stopped, not crashed.
func TestCleanStopThatLooksLikeAKillIsNoCrash(t *testing.T) {
	t.Parallel()
	for _, face := range []string{sim.VLLM, sim.SGLang} {
		r := launch(t, setup{face: face, faults: []string{"sigkill-stop"}, patience: eager}).ready()
		first := r.pool().Engine
		if err := post(r, "/api/v1/engine/restart"); err != nil {
			t.Fatal(err)
		}
		st := r.relaunched(1)
		if x := st.LastExit; x == nil || !x.Wanted || !strings.Contains(x.Text, "killed") || x.Cause != "" {
			t.Errorf("%s: last exit %+v of engine %d", face, x, first.PID)
		}
	}
}

// waitFor polls for a condition outside admitd.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("not: %s", what)
		}
	}
}

func listens(at string) bool {
	resp, err := http.Get("http://" + at + "/health")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
