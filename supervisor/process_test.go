package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is the deadline of everything that a real process is waited for. It is no measure, only an end.
const patience = 3 * time.Minute

// rig runs a supervisor over fake engine processes.
type rig struct {
	*Supervisor
	t    *testing.T
	stop context.CancelFunc
	// ended carries Run's result.
	ended chan error
}

// fakeOptions are options for a fake vLLM that plays a script, impatient where nothing is to be waited for.
func fakeOptions(t *testing.T, script string) Options {
	t.Helper()
	return Options{
		Kind: VLLM, Model: "org/model", ServedNames: []string{"m"}, Binary: os.Args[0], Env: []string{scriptEnv + "=" + script},
		StateDir: t.TempDir(), ReadyInterval: 5 * time.Millisecond, HealthInterval: 20 * time.Millisecond, StopGrace: patience,
		Restart: RestartPolicy{First: time.Millisecond, Max: 2 * time.Millisecond},
	}
}

// run starts a supervisor and stops it at the end of the test.
func run(t *testing.T, o Options) *rig {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &rig{Supervisor: s, t: t, stop: stop, ended: make(chan error, 1)}
	go func() { r.ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		s.Hurry()
		r.end()
	})
	return r
}

// end stops the supervisor, once, and returns Run's result.
func (r *rig) end() error {
	r.t.Helper()
	r.stop()
	select {
	case err := <-r.ended:
		r.ended <- err
		return err
	case <-time.After(patience):
		r.t.Fatal("Run does not return")
		return nil
	}
}

// await waits until the status satisfies ok and returns it.
func (r *rig) await(what string, ok func(Status) bool) Status {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		changed := r.Changed()
		st := r.Status()
		if ok(st) {
			return st
		}
		select {
		case <-changed:
		case <-deadline:
			r.t.Fatalf("waited in vain until %s; the state is %+v, the output ends with %q", what, st, r.out.tail(0, 10))
		}
	}
}

func (r *rig) ready() Status {
	r.t.Helper()
	return r.await("ready", func(st Status) bool { return st.State == Ready })
}

// post sends an order to the fake engine; an engine that dies of it need not answer.
func (r *rig) post(path string) {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://engine"+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if res, err := r.Transport().RoundTrip(req); err == nil {
		res.Body.Close()
	}
}

// gone waits until a process has ended and was reaped.
func gone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		p, ok := readProc("/proc", pid)
		if !ok {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("process %d is still there in state %c", pid, p.state)
		case <-tick.C:
		}
	}
}

// holder waits for the pid of the fake engine's grandchild.
func (r *rig) holder() int {
	r.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		lines, _ := r.Logs(0, 0)
		for _, l := range lines {
			if rest, ok := strings.CutPrefix(l.Text, "holder "); ok {
				pid, err := strconv.Atoi(rest)
				if err != nil {
					r.t.Fatal(err)
				}
				return pid
			}
		}
		select {
		case <-deadline:
			r.t.Fatal("the fake engine named no holder")
		case <-tick.C:
		}
	}
}

func TestEngineFromLaunchToStop(t *testing.T) {
	t.Parallel()
	drained := make(chan State, 1)
	o := fakeOptions(t, "lines key serve")
	o.Args = []string{"--max-num-seqs", "8"}
	var r *rig
	o.BeforeStop = func(context.Context) { drained <- r.Status().State }
	r = run(t, o)
	st := r.ready()
	if st.Model != "m" || st.MaxModelLen != 2048 || st.KVCapacityTokens != 46592 || st.Slots != 8 || st.Version != "0.32.0" {
		t.Errorf("status %+v; want the model's facts", st)
	}
	if st.PID <= 0 || len(r.Pids()) == 0 || r.Pids()[0] != st.PID {
		t.Errorf("pid %d, pids %v; want the leader first", st.PID, r.Pids())
	}
	socket := strings.TrimPrefix(st.Address, "unix:")
	info, err := os.Stat(filepath.Dir(socket))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's folder: %v, %v; want mode 0700", info, err)
	}
	argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", st.PID))
	if err != nil {
		t.Fatal(err)
	}
	lines, _ := r.Logs(0, 0)
	text := fmt.Sprint(lines, st.Command)
	if bytes.Contains(argv, []byte(r.key)) || strings.Contains(text, r.key) {
		t.Error("the engine's key shows in its arguments, its log or the status")
	}
	if !strings.Contains(text, "{'api_key': '[secret]'}") {
		t.Errorf("the key's place in the log is not blanked: %s", text)
	}
	if err := r.end(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if state := <-drained; state != Draining {
		t.Errorf("state during the drain is %s; want draining", state)
	}
	gone(t, st.PID)
	if _, err := os.Stat(filepath.Dir(socket)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the launch folder is still there: %v", err)
	}
	end := r.Status()
	if end.State != Stopped || end.LastExit == nil || !end.LastExit.Wanted || len(r.Pids()) != 0 {
		t.Errorf("status at the end %+v; want stopped by our wish", end)
	}
}

func TestF34_CarriageReturnProgressBarNeitherBlocksNorFloods(t *testing.T) {
	t.Parallel()
	r := run(t, fakeOptions(t, "bar serve"))
	r.ready()
	lines, lost := r.Logs(0, 0)
	if lost || len(lines) > 200 {
		t.Errorf("5 MB of a progress bar left %d lines, lost %v; want few and nothing lost", len(lines), lost)
	}
	if text := fmt.Sprint(lines); !strings.Contains(text, "42% Completed") {
		t.Errorf("the bar's last state is not in the log: %s", text)
	}
	if st := r.Status(); st.Restarts != 0 {
		t.Errorf("%d restarts; want none", st.Restarts)
	}
}

func TestF34_FloodOfOutputIsBoundedAndBlocksNobody(t *testing.T) {
	t.Parallel()
	r := run(t, fakeOptions(t, "flood serve"))
	r.ready() // nobody has read a line so far
	lines, lost := r.Logs(0, 0)
	size := 0
	for _, l := range lines {
		size += len(l.Text)
	}
	if !lost || len(lines) > ringLines || size > ringBytes {
		t.Errorf("%d lines of %d bytes are kept, lost %v; want at most %d of %d, and the loss told", len(lines), size, lost, ringLines, ringBytes)
	}
}

func TestF34_ChildThatIgnoresSIGTERMIsKilledAfterTheGrace(t *testing.T) {
	t.Parallel()
	o := fakeOptions(t, "ignoreterm serve")
	o.StopGrace = 10 * time.Millisecond
	r := run(t, o)
	pid := r.ready().PID
	if err := r.end(); err != nil {
		t.Errorf("Run = %v", err)
	}
	gone(t, pid)
	if e := r.Status().LastExit; e == nil || e.Text != "signal: killed" || !e.Wanted {
		t.Errorf("last exit %+v; want killed by our wish", e)
	}
}

func TestF34_GrandchildHoldingStdoutIsEndedWithTheEngine(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"holder serve", "stranger serve"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			r := run(t, fakeOptions(t, script))
			st := r.ready()
			grandchild := r.holder()
			// The leader dies without a word, as the out-of-memory killer would have it.
			if err := syscall.Kill(st.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			r.await("the next launch", func(st Status) bool { return st.Restarts == 1 && st.State == Ready })
			gone(t, st.PID)
			gone(t, grandchild)
			if e := r.Status().LastExit; e == nil || e.Text != "signal: killed" || e.Wanted {
				t.Errorf("last exit %+v; want killed, and not by our wish", e)
			}
		})
	}
}

func TestF36_DeathAfterReadyIsACrashWhateverTheExitCode(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/die", "/die?badly=x"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			r := run(t, fakeOptions(t, "serve"))
			r.ready()
			r.post(path)
			st := r.await("restarted", func(st Status) bool { return st.State == Ready && st.Restarts == 1 })
			if e := st.LastExit; e == nil || e.Wanted || !strings.Contains(fmt.Sprint(e.Tail), "about to die") {
				t.Errorf("last exit %+v; want a crash with the last lines", e)
			}
		})
	}
}

func TestF36_ExitAtOnceEndsInFailedWithTheLastLines(t *testing.T) {
	t.Parallel()
	for script, exit := range map[string]string{"fail": "exit status 1", "quit": "exit status 0"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			o := fakeOptions(t, script)
			o.Restart.Budget = 2
			r := run(t, o)
			st := r.await("given up", func(st Status) bool { return st.GaveUp })
			if st.State != Failed || st.Restarts != 2 || st.LastExit.Text != exit || !st.RestartAt.IsZero() {
				t.Errorf("status %+v; want failed after 2 restarts, by %s", st, exit)
			}
			if script == "fail" && !strings.Contains(fmt.Sprint(st.LastExit.Tail), "something went wrong") {
				t.Errorf("the last lines are %q", st.LastExit.Tail)
			}
			if err := r.end(); err != nil {
				t.Errorf("Run = %v", err)
			}
		})
	}
}

func TestF36_LastingErrorsAreNotRetried(t *testing.T) {
	t.Parallel()
	missing := fakeOptions(t, "serve")
	missing.Binary = "/no/such/vllm"
	for name, o := range map[string]Options{"bad flag": fakeOptions(t, "badflag"), "no such program": missing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, o)
			st := r.await("given up", func(st Status) bool { return st.GaveUp })
			if st.Restarts != 0 || st.LastExit.Cause == "" || st.LastExit.Hint == "" {
				t.Errorf("status %+v, exit %+v; want no restart, a cause and a hint", st, st.LastExit)
			}
		})
	}
}

func TestSimulatorThatRefusesItsArgumentsIsNotRetried(t *testing.T) {
	t.Parallel()
	o := fakeOptions(t, "simusage")
	o.Kind = Sim
	st := run(t, o).await("given up", func(st Status) bool { return st.GaveUp })
	if st.Restarts != 0 || !strings.Contains(st.Text, `invalid value "abc" for flag --max-num-seqs`) || st.LastExit.Hint == "" {
		t.Errorf("status %+v, exit %+v; want no restart and the refusal's words", st, st.LastExit)
	}
	// A crash ends with the same status and may not come again.
	o = fakeOptions(t, "panic")
	o.Kind, o.Restart.Budget = Sim, 2
	if st := run(t, o).await("given up", func(st Status) bool { return st.GaveUp }); st.Restarts != 2 {
		t.Errorf("%d restarts after a panic; want the whole budget of 2", st.Restarts)
	}
}

func TestF36_BusyPortIsNamedAndTriedAgain(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := fakeOptions(t, "serve")
	o.EnginePort = l.Addr().(*net.TCPAddr).Port
	o.Restart = RestartPolicy{First: time.Millisecond, Max: 20 * time.Millisecond, Budget: 1 << 30}
	r := run(t, o)
	st := r.await("the port is complained about", func(st Status) bool { return st.State == Failed && st.LastExit != nil })
	if want := fmt.Sprintf("port %d is held by pid %d", o.EnginePort, os.Getpid()); !strings.Contains(st.Text, want) {
		t.Errorf("text %q; want it to say %q", st.Text, want)
	}
	l.Close()
	if st = r.ready(); st.Address != fmt.Sprintf("http://127.0.0.1:%d", o.EnginePort) {
		t.Errorf("address %q; want the port", st.Address)
	}
}

func TestOnlyTheLeaderIsAskedToEnd(t *testing.T) {
	t.Parallel()
	r := run(t, fakeOptions(t, "holder serve"))
	r.ready()
	grandchild := r.holder() // it tells its pid when it listens for the signal
	if err := r.end(); err != nil {
		t.Errorf("Run = %v", err)
	}
	// The leader leaves at once and the holder is killed only a while later: time enough to tell.
	gone(t, grandchild)
	lines, _ := r.Logs(0, 0)
	if text := fmt.Sprint(lines); strings.Contains(text, "the holder got a SIGTERM") {
		t.Errorf("a worker was asked to end in the middle of the drain: %s", text)
	}
}

func TestStopWhileLoadingLeavesNothing(t *testing.T) {
	t.Parallel()
	o := fakeOptions(t, "holder hold")
	o.BeforeStop = func(context.Context) { t.Error("drained although the engine never was ready") }
	r := run(t, o)
	r.await("loading", func(st Status) bool { return st.State == Loading })
	pid, grandchild := r.Status().PID, r.holder()
	if err := r.end(); err != nil {
		t.Errorf("Run = %v", err)
	}
	gone(t, pid)
	gone(t, grandchild)
}

func TestHungEngineStallsAndIsRestarted(t *testing.T) {
	t.Parallel()
	o := fakeOptions(t, "serve")
	o.HealthTimeout, o.StallRestartAfter, o.StopGrace = 300*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
	o.Restart.Budget = 1 << 20 // on a busy machine also one that works may answer too late
	r := run(t, o)
	old := r.ready().PID
	r.post("/hang")
	st := r.await("ready again", func(st Status) bool { return st.State == Ready && st.PID != old })
	if e := st.LastExit; e == nil || !strings.Contains(e.Cause, "health probes in a row failed") {
		t.Errorf("last exit %+v; want a restart for the stall", e)
	}
}

func TestRestartGivesANewProcess(t *testing.T) {
	t.Parallel()
	r := run(t, fakeOptions(t, "serve"))
	old := r.ready().PID
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	st := r.ready()
	if st.PID == old || st.Restarts != 1 {
		t.Errorf("pid %d after %d, restarts %d; want a new process", st.PID, old, st.Restarts)
	}
	gone(t, old)
	r.end()
	if err := r.Restart(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Restart after the end = %v; want ErrNotRunning", err)
	}
}

func TestLeftoverOfAnEarlierRunIsEndedFirst(t *testing.T) {
	t.Parallel()
	o := fakeOptions(t, "serve")
	old := exec.Command(os.Args[0])
	old.Env = append(os.Environ(), scriptEnv+"=hold")
	old.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	bystander := exec.Command(os.Args[0])
	bystander.Env, bystander.SysProcAttr = old.Env, old.SysProcAttr
	for _, c := range []*exec.Cmd{old, bystander} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			c.Process.Kill()
			c.Wait()
		})
	}
	id := func(pid int) ident { p, _ := readProc("/proc", pid); return p.ident }
	// The bystander has a pid of the record, but not its start time: it got the number later.
	later := id(bystander.Process.Pid)
	later.Start++
	rec := record{Version: recordVersion, BootID: bootID(), Kind: VLLM, Leader: id(old.Process.Pid), Members: []ident{id(old.Process.Pid), later}, Mark: "X=y", Dir: "/nowhere/admitd-1"}
	if err := rec.write(o.StateDir); err != nil {
		t.Fatal(err)
	}
	r := run(t, o)
	r.ready()
	if err := old.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the leftover ended with %v; want killed", err)
	}
	if p, ok := readProc("/proc", bystander.Process.Pid); !ok || p.zombie() {
		t.Error("a process was killed that only bears the pid of the record")
	}
	now, ok := readRecord(o.StateDir, bootID())
	if !ok || now.Leader.PID != r.Status().PID {
		t.Errorf("record %+v, %v; want the new engine", now, ok)
	}
	r.end()
	if _, ok := readRecord(o.StateDir, bootID()); ok {
		t.Error("the record outlives the engine")
	}
}

func TestStateDirectoryBelongsToOne(t *testing.T) {
	t.Parallel()
	o := fakeOptions(t, "serve")
	r := run(t, o)
	r.ready()
	second, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); !errors.Is(err, ErrStateDirBusy) {
		t.Errorf("a second supervisor on the same state directory: %v; want a refusal", err)
	}
	r.end()
}
