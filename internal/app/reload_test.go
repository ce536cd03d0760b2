package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"admitd/internal/config"
	"admitd/internal/strict"
	"admitd/ui"
)

// reloadWorld is a reloader over real files, in a bubble whose time the test moves.
type reloadWorld struct {
	*reloader
	t                      *testing.T
	configFile, policyFile string
	world                  *storeWorld
	loads                  atomic.Int32
	stop                   context.CancelFunc
}

func newReloadWorld(t *testing.T, withPolicyFile bool) *reloadWorld {
	t.Helper()
	dir := t.TempDir()
	r := &reloadWorld{t: t, configFile: filepath.Join(dir, "c.yaml"), policyFile: filepath.Join(dir, "p.yaml"), world: newStoreWorld(t)}
	r.write(r.policyFile, waitingText(0))
	r.writeConfig("")
	load := func() (config.Config, error) {
		r.loads.Add(1)
		return config.Load(r.configFile, func(c *config.Config) {
			if withPolicyFile {
				c.PolicyFile = r.policyFile
			}
		})
	}
	running, err := load()
	if err != nil {
		t.Fatal(err)
	}
	r.reloader = newReloader(Options{Config: running, ConfigFile: r.configFile, Load: load, Logger: quiet(), Level: new(slog.LevelVar)}, r.world.policyStore)
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	go func() { _ = r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-r.ended })
	synctest.Wait()
	return r
}

func (r *reloadWorld) write(file, text string) {
	r.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reloadWorld) writeConfig(more string) { r.write(r.configFile, "model: m\n"+more) }

func (r *reloadWorld) wantState(ok bool, from, problem string) {
	r.t.Helper()
	st := r.Status()
	if st.File != r.configFile || st.LastReloadOK != ok || st.LastReloadFrom != from || !strings.Contains(st.Problem, problem) || (problem == "") != (st.Problem == "") {
		r.t.Errorf("%+v; want ok %v from %q, problem %q", st, ok, from, problem)
	}
}

func TestReloadTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloadWorld(t, true)
		r.wantState(true, "", "")
		for i, source := range []string{"sighup", "api"} {
			r.write(r.policyFile, waitingText(i+1))
			res, err := r.Reload(t.Context(), source)
			if err != nil || !res.Changed {
				t.Fatalf("%+v %v", res, err)
			}
			r.world.wantRunning(t, i+1)
			r.wantState(true, source, "")
		}
		// What a request has read is not read again because the files differ from before it.
		before := r.loads.Load()
		pass(2 * pollEvery)
		if r.loads.Load() != before {
			t.Error("files that stay as they are were loaded again")
		}
		r.write(r.policyFile, waitingText(9))
		pass(2 * pollEvery)
		r.world.wantRunning(t, 9)
		r.wantState(true, "file "+r.policyFile, "")
	})
}

func TestReloadRefusesWholly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloadWorld(t, true)
		r.write(r.policyFile, waitingText(5))
		r.writeConfig("log: {level: debug}\nlisten: 127.0.0.1:9\nengine: {slots: 3}\n")
		_, err := r.Reload(t.Context(), "api")
		var fields *ui.FieldsError
		want := []string{"listen 127.0.0.1:8080 -> 127.0.0.1:9 (needs a restart of admitd)", "engine.slots 0 -> 3 (needs a restart of admitd)"}
		if !errors.As(err, &fields) || fmt.Sprint(fields.Fields) != fmt.Sprint(want) {
			t.Errorf("%v", err)
		}
		r.world.wantRunning(t, 0)
		if r.level.Level() != slog.LevelInfo {
			t.Error("the log level was applied")
		}
		r.wantState(false, "api", "listen 127.0.0.1:8080")
		if n := countEvents(r.world.journal, "error config_refused: reload from api refused, nothing was changed: "); n != 1 {
			t.Errorf("%q", events(r.world.journal))
		}

		// The policy refused: the hot setting beside it waits as well.
		r.writeConfig("log: {level: debug}\n")
		r.write(r.policyFile, "policy: queue-depth\nparams: {max_wating: 1}\n")
		var bad *strict.Error
		if _, err = r.Reload(t.Context(), "api"); !errors.As(err, &bad) || bad.Places[0].File != r.policyFile {
			t.Errorf("%v", err)
		}
		if r.level.Level() != slog.LevelInfo {
			t.Error("the log level was applied")
		}
		r.write(r.policyFile, waitingText(5))
		if _, err := r.Reload(t.Context(), "api"); err != nil {
			t.Fatal(err)
		}
		r.world.wantRunning(t, 5)
		r.wantState(true, "api", "")
		if r.level.Level() != slog.LevelDebug {
			t.Error("the log level was not applied")
		}
	})
}

func TestConfigurationThatWaitsForARestartDoesNotHoldThePolicyUp(t *testing.T) {
	const secret = "canary-3f9a"
	synctest.Test(t, func(t *testing.T) {
		r := newReloadWorld(t, true)
		r.writeConfig("engine: {args: [--api-key, " + secret + "]}\n")
		pass(2 * pollEvery)
		r.wantState(false, "file "+r.configFile, "engine.args (needs a restart of admitd)")
		// Noticed, then asked for.
		r.write(r.policyFile, waitingText(3))
		pass(2 * pollEvery)
		r.world.wantRunning(t, 3)
		r.wantState(false, "file "+r.configFile, "engine.args (needs a restart of admitd)")
		r.write(r.policyFile, waitingText(4))
		res, err := r.Reload(t.Context(), "api")
		if err != nil || !res.Changed || !strings.Contains(res.Text, "; not changed, since the configuration file differs there: engine.args (needs a restart of admitd)") {
			t.Errorf("%+v %v", res, err)
		}
		r.world.wantRunning(t, 4)
		// Nothing else to do: the reload says what cannot be done.
		var fields *ui.FieldsError
		if _, err = r.Reload(t.Context(), "api"); !errors.As(err, &fields) {
			t.Errorf("%v", err)
		}
		for _, e := range events(r.world.journal) {
			if strings.Contains(e, secret) {
				t.Errorf("the journal tells a secret: %s", e)
			}
		}
		if strings.Contains(err.Error()+r.Status().Problem, secret) {
			t.Errorf("a secret is told: %v, %+v", err, r.Status())
		}
		r.writeConfig("")
		pass(2 * pollEvery)
		r.wantState(true, "file "+r.configFile, "")
	})
}

func TestBrokenConfigurationDoesNotHoldThePolicyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloadWorld(t, true)
		r.write(r.configFile, "lisen: x\n")
		pass(2 * pollEvery)
		r.write(r.policyFile, "policy: nonsense\n")
		pass(2 * pollEvery)
		r.wantState(false, "file "+r.policyFile, "nonsense")
		r.write(r.policyFile, waitingText(3))
		pass(2 * pollEvery)
		r.world.wantRunning(t, 3)
		r.wantState(false, "file "+r.configFile, "lisen: unknown key")
		// A policy's mistake is no mistake of the configuration: it goes when it is mended.
		r.writeConfig("")
		r.write(r.policyFile, "policy: nonsense\n")
		pass(2 * pollEvery)
		r.write(r.policyFile, waitingText(4))
		pass(2 * pollEvery)
		r.world.wantRunning(t, 4)
		r.wantState(true, "file "+r.policyFile, "")
	})
}

func TestPipeForAPolicyFileIsRefusedAndHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloadWorld(t, true)
		if err := os.Remove(r.policyFile); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(r.policyFile, 0o600); err != nil {
			t.Fatal(err)
		}
		pass(2 * pollEvery)
		var bad *strict.Error
		if _, err := r.Reload(t.Context(), "api"); !errors.As(err, &bad) || !strings.Contains(err.Error(), "it is a pipe") {
			t.Errorf("%v", err)
		}
		r.world.wantRunning(t, 0)
	})
}

func TestHotSettingAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloadWorld(t, true)
		r.writeConfig("log: {level: error}\n")
		res, err := r.Reload(t.Context(), "api")
		if err != nil || !res.Changed || res.Text != "configuration changed; the running policy stays" || fmt.Sprint(res.Diff) != "[log.level info -> error]" {
			t.Errorf("%+v %v", res, err)
		}
		if r.level.Level() != slog.LevelError {
			t.Error("not applied")
		}
		if res, err = r.Reload(t.Context(), "api"); err != nil || res.Changed {
			t.Errorf("the second time: %+v %v", res, err)
		}
		if n := countEvents(r.world.journal, "info config_reload: configuration (api): log.level info -> error"); n != 1 {
			t.Errorf("%q", events(r.world.journal))
		}
	})
}

func TestPolicyOverTheAPIOutlivesOtherChanges(t *testing.T) {
	for _, withFile := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newReloadWorld(t, withFile)
			r.world.apply(t, 7)
			r.writeConfig("log: {level: warn}\n")
			pass(2 * pollEvery)
			r.wantState(true, "file "+r.configFile, "")
			if r.level.Level() != slog.LevelWarn {
				t.Error("not applied")
			}
			r.world.wantRunning(t, 7)
			// Being asked is another matter: then the file says what runs, where there is one.
			if _, err := r.Reload(t.Context(), "sighup"); err != nil {
				t.Fatal(err)
			}
			want := map[bool]int{true: 0, false: 7}[withFile]
			r.world.wantRunning(t, want)
		})
	}
}

func TestVanishedFileIsUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloadWorld(t, true)
		before := r.loads.Load()
		if err := os.Remove(r.policyFile); err != nil {
			t.Fatal(err)
		}
		pass(3 * pollEvery)
		r.write(r.policyFile, waitingText(0))
		pass(3 * pollEvery)
		if r.loads.Load() != before {
			t.Error("a file that went for a moment was loaded")
		}
		r.wantState(true, "", "")
		// Asked while it is gone, a reload says so.
		if err := os.Remove(r.policyFile); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reload(t.Context(), "api"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v", err)
		}
		r.wantState(false, "api", "cannot read policy: ")
		r.world.wantRunning(t, 0)
		// Replaced by another one while it was gone: a change.
		r.write(r.policyFile, waitingText(4))
		pass(2 * pollEvery)
		r.world.wantRunning(t, 4)
		r.wantState(true, "file "+r.policyFile, "")
	})
}

func TestBrokenFileThenMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloadWorld(t, true)
		r.write(r.configFile, "lisen: x\n")
		pass(2 * pollEvery)
		r.wantState(false, "file "+r.configFile, "lisen: unknown key")
		before := len(events(r.world.journal))
		pass(10 * pollEvery)
		if n := len(events(r.world.journal)); n != before {
			t.Errorf("the same broken file was told %d more times", n-before)
		}
		r.writeConfig("")
		pass(2 * pollEvery)
		r.wantState(true, "file "+r.configFile, "")
	})
}

func TestReloadsAreOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloadWorld(t, true)
		var inside, most, done atomic.Int32
		load := r.load
		r.load = func() (config.Config, error) {
			most.Store(max(most.Load(), inside.Add(1)))
			defer inside.Add(-1)
			<-time.NewTimer(pollEvery).C
			return load()
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if _, err := r.Reload(t.Context(), fmt.Sprint("caller ", i)); err != nil {
					t.Error(err)
				}
				done.Add(1)
			})
		}
		wg.Wait()
		if most.Load() != 1 || done.Load() != 8 {
			t.Errorf("%d at once, %d done", most.Load(), done.Load())
		}
	})
}

func TestReloadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloadWorld(t, true)
		block := make(chan struct{})
		r.load = func() (config.Config, error) { <-block; return config.Config{}, errors.New("late") }
		first := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, err := r.Reload(ctx, "api"); first <- err }()
		synctest.Wait()
		// One that waits for its turn, and the one that is under way, stop waiting when their callers do.
		waiting, cancelWaiting := context.WithCancel(t.Context())
		cancelWaiting()
		if _, err := r.Reload(waiting, "api"); !errors.Is(err, context.Canceled) {
			t.Errorf("waiting for its turn: %v", err)
		}
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("under way: %v", err)
		}
		// Status never waits for a reload.
		r.wantState(true, "", "")
		close(block)
		synctest.Wait()
		r.wantState(false, "api", "late")
		r.stop()
		<-r.ended
		if _, err := r.Reload(t.Context(), "api"); !errors.Is(err, errStopping) {
			t.Errorf("after the end: %v", err)
		}
		r.wantState(false, "api", "late")
	})
}

func TestHangupsReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloadWorld(t, true)
		hangup := make(chan os.Signal)
		a := &instance{o: Options{Hangup: hangup}, reloader: r.reloader}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.signals(ctx) }()
		r.write(r.policyFile, waitingText(6))
		hangup <- os.Interrupt // whichever: the channel carries hangups alone
		synctest.Wait()
		r.world.wantRunning(t, 6)
		r.wantState(true, "sighup", "")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestUnknownLogLevelIsInfo(t *testing.T) {
	if logLevel("loud") != slog.LevelInfo || logLevel("error") != slog.LevelError {
		t.Error("levels")
	}
}
