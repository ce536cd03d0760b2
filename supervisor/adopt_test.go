package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shared are options for two supervisors of one state directory, whose lock somebody else has.
func shared(t *testing.T, script string) Options {
	t.Helper()
	o := fakeOptions(t, script)
	// However busy the machine is, an engine that works is not taken for one that does not.
	o.StateDirLocked, o.HealthTimeout = true, patience
	o.Env = append(o.Env, gateEnv+"="+filepath.Join(t.TempDir(), "gate"))
	return o
}

// left runs an engine and leaves it alone.
func left(t *testing.T, o Options) (pid int) {
	t.Helper()
	r := run(t, o)
	pid = r.ready().PID
	r.leave()
	return pid
}

func (r *rig) leave() {
	r.t.Helper()
	if err := r.Release(r.t.Context()); err != nil {
		r.t.Fatalf("Release = %v", err)
	}
	if err := r.end(); err != nil {
		r.t.Errorf("Run of the one that released = %v", err)
	}
}

func (r *rig) said(what string) bool {
	lines, _ := r.Logs(0, 0)
	for _, l := range lines {
		if strings.Contains(l.Text, what) {
			return true
		}
	}
	return false
}

func living(pid int) bool {
	p, ok := readProc("/proc", pid)
	return ok && !p.zombie()
}

func TestLeftEngineIsAdoptedAndServedOn(t *testing.T) {
	t.Parallel()
	o := shared(t, "lines serve")
	o.Args = []string{"--max-num-seqs", "8"}
	pid := left(t, o)
	r := run(t, o)
	st := r.ready()
	if st.PID != pid || st.Restarts != 0 || !st.Adopted {
		t.Errorf("pid %d, restarts %d, text %q; want the same process, adopted: %d", st.PID, st.Restarts, st.Text, pid)
	}
	if st.Model != "m" || st.MaxModelLen != 2048 || st.KVCapacityTokens != 46592 || st.Slots != 8 || st.Version != "0.32.0" || len(st.Phases) < 3 {
		t.Errorf("status %+v; want the facts that only the start told", st)
	}
	if !r.said("Starting to load model") {
		t.Error("the engine's last output was not read again")
	}
	// What it prints now is seen, and its end, although it is not our child.
	r.post("/die")
	st = r.await("restarted", func(st Status) bool { return st.State == Ready && st.Restarts == 1 })
	if e := st.LastExit; e == nil || e.Wanted || !strings.Contains(e.Text, "not known") || !strings.Contains(fmt.Sprint(e.Tail), "about to die") {
		t.Errorf("last exit %+v; want a crash of unknown status with the last lines", e)
	}
	if st.PID == pid || st.Adopted {
		t.Errorf("pid %d, text %q; want an engine of its own", st.PID, st.Text)
	}
}

func TestAdoptedEngineIsStoppedAsAnyOther(t *testing.T) {
	t.Parallel()
	for script, how := range map[string]string{"serve": "SIGTERM", "ignoreterm holder serve": "SIGKILL"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			o := shared(t, script)
			o.StopGrace = 50 * time.Millisecond
			if how == "SIGTERM" {
				o.StopGrace = patience
			}
			pid := left(t, o)
			r := run(t, o)
			r.ready()
			if err := r.end(); err != nil {
				t.Errorf("Run = %v", err)
			}
			gone(t, pid)
			if st := r.Status(); st.State != Stopped || !st.LastExit.Wanted {
				t.Errorf("status %+v; want stopped by our wish", st)
			}
			if found := (&leftover{marks: []string{folderMark(o.StateDir)}}).members(); len(found) > 0 {
				t.Errorf("still there: %v", found)
			}
			for _, name := range []string{recordFile, logFile} {
				if _, err := os.Stat(filepath.Join(o.StateDir, name)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s outlives the engine: %v", name, err)
				}
			}
		})
	}
}

func TestEngineThatDoesNotMatchIsEndedAndReplaced(t *testing.T) {
	t.Parallel()
	edit := func(change func(*record)) func(*testing.T, *rig, *Options) {
		return func(t *testing.T, _ *rig, o *Options) {
			r, _ := readRecord(o.StateDir, bootID())
			change(&r)
			if err := r.write(o.StateDir); err != nil {
				t.Fatal(err)
			}
		}
	}
	const silent = 500 * time.Millisecond // one that says nothing for so long is not adopted
	for name, c := range map[string]struct {
		change func(*testing.T, *rig, *Options)
		why    string
	}{
		"other arguments": {func(_ *testing.T, _ *rig, o *Options) { o.Args = []string{"--max-num-seqs", "9"} }, "other arguments"},
		"other names":     {func(_ *testing.T, _ *rig, o *Options) { o.ServedNames = []string{"n"} }, "other arguments"},
		"other setting":   {func(_ *testing.T, _ *rig, o *Options) { o.Env = append(o.Env, "A=b") }, "other arguments"},
		"other model":     {func(_ *testing.T, _ *rig, o *Options) { o.Model = "org/new" }, "another model: org/model, not org/new"},
		"dead key":        {edit(func(r *record) { r.Key = "wrong" }), "answers 401"},
		"being stopped":   {edit(func(r *record) { r.Stopping = true }), "was being stopped"},
		"other folder":    {edit(func(r *record) { r.Dir = "/" }), "no folder of ours"},
		"no process yet":  {edit(func(r *record) { r.Leader = ident{} }), "not recorded to the end"},
		"another boot":    {edit(func(r *record) { r.BootID = "x" }), "no record"},
		"wedged":          {func(_ *testing.T, r *rig, o *Options) { o.HealthTimeout = silent; r.post("/hang") }, "does not work: /health no answer in time"},
		"frozen": {func(t *testing.T, r *rig, o *Options) {
			o.HealthTimeout = silent
			if err := syscall.Kill(r.Status().PID, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}, "does not work"},
		"half dead": {func(t *testing.T, r *rig, _ *Options) {
			if err := syscall.Kill(r.Status().PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			until(t, "the leader is dead", func() bool { return !living(r.Status().PID) })
		}, "first process is dead"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := shared(t, "holder serve")
			first := run(t, o)
			st := first.ready()
			worker := first.holder()
			first.leave()
			c.change(t, first, &o)
			r := run(t, o)
			now := r.ready()
			if now.PID == st.PID || now.Restarts != 0 {
				t.Errorf("pid %d after %d, restarts %d; want a new engine", now.PID, st.PID, now.Restarts)
			}
			// Who is to reap them differs; here it is nobody.
			until(t, "both processes have ended", func() bool { return !living(st.PID) && !living(worker) })
			if !r.said("because ") || !r.said(c.why) {
				lines, _ := r.Logs(0, 0)
				t.Errorf("nothing says why it was ended; want %q in %v", c.why, lines)
			}
		})
	}
}

func TestLoadingEngineIsAdoptedWhereItStands(t *testing.T) {
	t.Parallel()
	o := shared(t, "lines wait serve")
	first := run(t, o)
	pid := first.await("making the KV cache", func(st Status) bool { return st.Phase == phaseKVCache }).PID
	first.leave()
	r := run(t, o)
	st := r.await("adopted", func(st Status) bool { return st.State == Loading })
	if st.PID != pid || st.Phase != phaseKVCache || !strings.Contains(st.Text, "adopted") {
		t.Errorf("status %+v; want %d making its KV cache, adopted", st, pid)
	}
	if err := os.WriteFile(lookEnv(o.Env, gateEnv), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if st = r.ready(); st.PID != pid || st.Restarts != 0 || !st.Adopted {
		t.Errorf("status %+v; want %d ready", st, pid)
	}
}

func TestLoadingEngineOfAnotherKeyIsReplaced(t *testing.T) {
	t.Parallel()
	o := shared(t, "lines wait serve")
	first := run(t, o)
	pid := first.await("loading", func(st Status) bool { return st.Phase == phaseKVCache }).PID
	first.leave()
	rec, _ := readRecord(o.StateDir, bootID())
	rec.Key = "wrong"
	if err := rec.write(o.StateDir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lookEnv(o.Env, gateEnv), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, o)
	if st := r.ready(); st.PID == pid || !strings.Contains(st.LastExit.Cause, "recorded key") {
		t.Errorf("status %+v, exit %+v; want a new engine, because the key is not the recorded one", st, st.LastExit)
	}
	gone(t, pid)
}

// It may be busy with what an admitd that leaves has in hand, or be dead inside: the watch tells.
func TestAdoptedEngineThatBringsOutNoTokenIsStalledAndThenReplaced(t *testing.T) {
	t.Parallel()
	o := shared(t, "serve")
	o.StopGrace = 10 * time.Millisecond
	first := run(t, o)
	pid := first.ready().PID
	first.post("/mute")
	first.leave()
	o.StallRestartAfter = 50 * time.Millisecond
	r := run(t, o)
	if st := r.await("stalled", func(st Status) bool { return st.State == Stalled }); st.PID != pid {
		t.Errorf("pid %d; want %d in doubt", st.PID, pid)
	}
	if st := r.await("replaced", func(st Status) bool { return st.State == Ready && st.PID != pid }); st.Restarts != 1 {
		t.Errorf("%d restarts; want 1", st.Restarts)
	}
}

func TestSGLangIsKnownAgainByItsPortAndKey(t *testing.T) {
	t.Parallel()
	o := Options{Kind: SGLang, Model: "org/model", Binary: os.Args[0], StateDir: t.TempDir()}.defaults()
	launched, err := o.specAt(place{n: 1, dir: "/run/admitd-1", key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(launched.address, "http://"), ":")
	at := place{dir: "/run/admitd-1", key: "k", taken: true, port: number(port)}
	again, err := o.specAt(at)
	if err != nil || o.hash(again) != o.hash(launched) || again.address != launched.address {
		t.Errorf("%v, %v; want what was launched: %v", again, err, launched)
	}
	moved := o
	moved.EnginePort = number(port) - 1
	if other, err := moved.specAt(at); err != nil || moved.hash(other) == o.hash(launched) {
		t.Errorf("%v, %v; want another port to be another launch", other, err)
	}
}

func TestRemovedOutputFileDoesNotCostTheEngine(t *testing.T) {
	t.Parallel()
	o := shared(t, "lines serve")
	pid := left(t, o)
	if err := os.Remove(filepath.Join(o.StateDir, logFile)); err != nil {
		t.Fatal(err)
	}
	r := run(t, o)
	if st := r.ready(); st.PID != pid || !r.said("Starting to load model") {
		t.Errorf("pid %d, or its output is not read; want %d", st.PID, pid)
	}
}

// The successor takes the engine while its predecessor still watches it: from then on there is one that acts.
func TestTakenEngineIsLeftAloneByItsFormerOwner(t *testing.T) {
	t.Parallel()
	for _, why := range []string{"crash", "stop", "restart"} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			o := shared(t, "serve")
			o.BeforeStop = func(context.Context) {}
			old := run(t, o)
			pid := old.ready().PID
			heir := run(t, o)
			if st := heir.ready(); st.PID != pid {
				t.Fatalf("pid %d; want %d adopted", st.PID, pid)
			}
			switch why {
			case "crash":
				heir.post("/die")
				heir.await("restarted", func(st Status) bool { return st.State == Ready && st.Restarts == 1 })
			case "stop":
				old.stop()
			case "restart":
				if err := old.Restart(t.Context()); !errors.Is(err, errTaken) {
					t.Errorf("Restart at the former owner = %v; want a refusal", err)
				}
			}
			if err := <-old.ended; err != nil {
				t.Errorf("Run of the former owner = %v", err)
			}
			old.ended <- nil
			st := heir.ready()
			if why != "crash" && st.PID != pid {
				t.Errorf("pid %d; the former owner's %s ended %d", st.PID, why, pid)
			}
			if found := (&leftover{marks: []string{folderMark(o.StateDir)}}).members(); len(found) != 1 || found[0].PID != st.PID {
				t.Errorf("engines %v; want %d alone", found, st.PID)
			}
			if err := old.Release(t.Context()); err != nil {
				t.Errorf("Release of what was taken = %v", err)
			}
		})
	}
}

func TestRequestsUnderWaySurviveTheRelease(t *testing.T) {
	t.Parallel()
	o := shared(t, "serve")
	old := run(t, o)
	old.ready()
	old.leave()
	run(t, o).ready()
	if err := (&prober{rt: old.Transport(), names: []string{"m"}}).ready(t.Context()).err; err != nil {
		t.Errorf("through the transport of the one that released: %v", err)
	}
}

func TestReleaseNeedsSomethingToRelease(t *testing.T) {
	t.Parallel()
	r := run(t, fakeOptions(t, "serve"))
	r.ready()
	r.end()
	if err := r.Release(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Release after the end = %v; want ErrNotRunning", err)
	}
	s, err := New(fakeOptions(t, "serve"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Release before Run = %v; want ErrNotRunning", err)
	}
}

func TestEngineWithoutAStateDirectoryPrintsIntoItsOwnFolder(t *testing.T) {
	t.Parallel()
	o := fakeOptions(t, "lines serve")
	o.StateDir = ""
	r := run(t, o)
	r.ready()
	if !r.said("Starting to load model") {
		t.Error("the output is not in the log")
	}
}

func TestEngineIsAdoptedByOthersThanItsParent(t *testing.T) {
	t.Parallel()
	// A dead record's pid was given to somebody else.
	if _, err := adoptProcess(record{Leader: ident{PID: os.Getpid(), Start: 1}}); err == nil {
		t.Error("a process was adopted that only bears the pid")
	}
	if _, err := adoptProcess(record{Leader: ident{PID: 1 << 22, Start: 1}}); err == nil {
		t.Error("a process was adopted that is not there")
	}
	if !living(os.Getpid()) {
		t.Error("this test is dead")
	}
}
