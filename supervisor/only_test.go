package supervisor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// edited changes the record of the engine that was left in a state directory.
func edited(t *testing.T, dir string, change func(*record)) {
	t.Helper()
	r, ok := readRecord(dir, bootID())
	if !ok {
		t.Fatal("there is no record")
	}
	change(&r)
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
}

func TestSupervisorThatMayOnlyAdoptEndsAndLaunchesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*testing.T, *Options, *int)
		why    string
	}{
		"other arguments": {func(_ *testing.T, o *Options, _ *int) { o.Args = []string{"--max-num-seqs", "9"} }, "other arguments"},
		"another engine":  {func(_ *testing.T, _ *Options, pid *int) { *pid++ }, "that of another one"},
		"no record": {func(t *testing.T, o *Options, _ *int) {
			edited(t, o.StateDir, func(r *record) { r.BootID = "x" })
		}, "no record"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := shared(t, "serve")
			pid := left(t, o)
			only := pid
			next := o
			c.change(t, &next, &only)
			s, err := New(next)
			if err != nil {
				t.Fatal(err)
			}
			var not *NotAdoptedError
			if err := s.Adoptable(only); !errors.As(err, &not) || !strings.Contains(not.Why, c.why) {
				t.Errorf("Adoptable = %v; want %q", err, c.why)
			}
			s.AdoptOnly(only)
			if err := s.Run(t.Context()); !errors.As(err, &not) || !strings.Contains(not.Why, c.why) {
				t.Errorf("Run = %v; want %q", err, c.why)
			}
			found := (&leftover{marks: []string{folderMark(o.StateDir)}}).members()
			if len(found) != 1 || found[0].PID != pid {
				t.Errorf("engines %v; want %d alone", found, pid)
			}
			r := run(t, o) // which ends it with the test
			if now := r.ready().PID; name != "no record" && now != pid {
				t.Errorf("pid %d afterwards, not %d", now, pid)
			}
		})
	}
}

func TestStrangerInTheRecordIsNotAdopted(t *testing.T) {
	t.Parallel()
	for _, as := range []string{"leader", "member"} {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			c := exec.Command("sleep", "1000")
			c.Env = []string{"PATH=" + os.Getenv("PATH")}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = c.Process.Kill()
				_ = c.Wait()
			})
			until(t, "it is exec'd", func() bool {
				env, err := processEnv("/proc", c.Process.Pid)
				return err == nil && len(env) > 0 && strings.HasPrefix(env[0], "PATH=")
			})
			p, _ := readProc("/proc", c.Process.Pid)
			o := shared(t, "serve")
			pid := left(t, o)
			edited(t, o.StateDir, func(r *record) {
				if as == "leader" {
					r.Leader = p.ident
				}
				r.Members = append(r.Members, p.ident)
			})
			r := run(t, o)
			if st := r.ready(); (st.PID == pid) != (as == "member") || st.PID == c.Process.Pid {
				t.Errorf("pid %d after %d; the stranger is %d", st.PID, pid, c.Process.Pid)
			}
			if err := r.end(); err != nil {
				t.Error(err)
			}
			if living(pid) || as == "member" && !living(c.Process.Pid) {
				t.Errorf("the engine runs: %v, the stranger: %v", living(pid), living(c.Process.Pid))
			}
		})
	}
}

func TestWorkerThatWroteOverItsEnvironmentIsNoStranger(t *testing.T) {
	for text, want := range map[string]bool{"PATH=/bin": true, "_=x": true, "": false, "VLLM::EngineCore": false, "title a=b": false, "=x": false} {
		if assigns(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// Whoever can start admitd elsewhere must not make it follow, and in the end cut, a file that is not the engine's.
func TestOutputFileOfTheRecordIsFollowedOnlyInOurFolder(t *testing.T) {
	t.Parallel()
	for name, log := range map[string]func(o Options) string{
		"relative":       func(Options) string { return logFile },
		"another folder": func(Options) string { return filepath.Join(t.TempDir(), logFile) },
		"another file":   func(o Options) string { return filepath.Join(o.StateDir, recordFile) },
	} {
		o := shared(t, "serve")
		pid := left(t, o)
		edited(t, o.StateDir, func(r *record) { r.Log = log(o) })
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Adoptable(pid); err == nil || !strings.Contains(err.Error(), "output file that is not in our folder") {
			t.Errorf("%s: %v", name, err)
		}
		run(t, o).ready()
	}
	t.Run("a relative state directory is recorded as where it is", func(t *testing.T) {
		if path := (Options{StateDir: "state"}).logPath("/x"); !filepath.IsAbs(path) || !strings.HasSuffix(path, "/state/"+logFile) {
			t.Error(path)
		}
	})
}

func TestLockHeldByWhoHasNotSignedNamesNobodyDead(t *testing.T) {
	dir := t.TempDir()
	release, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := os.WriteFile(filepath.Join(dir, lockFile), []byte("4194305\n"), 0o600); err != nil { // above the kernel's largest pid
		t.Fatal(err)
	}
	var busy *StateDirBusyError
	if _, err = Lock(dir); !errors.As(err, &busy) || busy.PID != 0 {
		t.Errorf("%v", err)
	}
}

func TestFolderIsDrainedWhenTheLastThatFinishesHasLeft(t *testing.T) {
	dir := t.TempDir()
	if !Drained(dir) {
		t.Error("nobody has been there")
	}
	var leave []func()
	for range 2 {
		done, err := Drain(dir)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, done)
	}
	for _, done := range leave {
		if Drained(dir) {
			t.Error("somebody still finishes requests")
		}
		done()
	}
	if !Drained(dir) {
		t.Error("all have left")
	}
}
