// Package faults plays every engine bug of docs/engine-bugs.md, by a fault of the simulated engine, in front of the real admitd: its
// gate, supervisor, signals and record, assembled as `serve` assembles them, with the engine as a child process of its own or,
// where the process does not matter, beside it in the test.
//
// Goal: for each bug one test that shows what callers and operators get instead of it.
// Non-goals: the simulated engine's own tests (package sim).
package faults

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"admitd/gate/journal"
	"admitd/internal/app"
	"admitd/internal/config"
	"admitd/sim"
	"admitd/supervisor"
	"admitd/test/harness"
	"admitd/ui/api"
)

const (
	// model is the name callers use in these tests.
	model = "m"
	// patience bounds every wait for something that must come; nothing is expected to take near as long.
	patience = 3 * time.Minute
	// endless is the median length of an answer that is cut to the length asked for: none ends by itself before.
	endless = 1 << 30
)

// binary is the built admitd: the simulated engine's program.
var binary string

func TestMain(m *testing.M) {
	path, remove, err := harness.Build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = path
	// They wait far more than they work.
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		remove()
		os.Exit(code)
	}))
}

// setup says what is played, and in front of it what is run. The zero value is a healthy vLLM behind the default policy.
type setup struct {
	// face is the engine's dialect.
	face string
	// faults are as --fault takes them. Counting requests (name:req=N), the first one is the supervisor's own probe.
	faults []string
	// args are further arguments of a launched engine; options changes one that is played in the test.
	args    []string
	options func(*sim.Options)
	// policy is the policy's text, "" for the default policy.
	policy string
	// config changes admitd's configuration. It is not checked, so that times may be shorter than the file allows.
	config func(*config.Config)
	// patience changes how long the supervisor waits for what.
	patience func(*supervisor.Options)
	// wanted is how Run must end, nil for well.
	wanted error
}

// rig is a running admitd and its engine.
type rig struct {
	*harness.Client
	// engine is the simulated engine where it is played in the test; nil where it is a process.
	engine *sim.Server
	log    *harness.Output
	// dir holds the record.
	dir string
	// stop asks admitd to stop and waits for its end, once.
	stop func() error
}

// launch runs admitd with the simulated engine as its child process.
func launch(t *testing.T, s setup) *rig {
	t.Helper()
	c := base(t, s)
	c.Engine.Kind = "sim"
	c.Engine.Args = []string{"--speed", "20", "--median-output", strconv.Itoa(endless)}
	if s.face != "" {
		c.Engine.Args = append(c.Engine.Args, "--dialect", s.face)
	}
	for _, f := range s.faults {
		c.Engine.Args = append(c.Engine.Args, "--fault", f)
	}
	c.Engine.Args = append(c.Engine.Args, s.args...)
	return run(t, s, c)
}

// attach runs admitd in front of a simulated engine in the test's own process, whose faults can be switched.
func attach(t *testing.T, s setup) *rig {
	t.Helper()
	o := sim.Options{Dialect: s.face, Model: model, Faults: s.faults, Speed: 20, MedianOutput: endless}
	if s.options != nil {
		s.options(&o)
	}
	engine, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(engine)
	t.Cleanup(func() {
		_ = engine.Close()
		server.CloseClientConnections()
		server.Close()
	})
	c := base(t, s)
	c.Engine.Kind, c.Engine.URL = "external", server.URL
	r := run(t, s, c)
	r.engine = engine
	return r
}

// base is the configuration of a test.
func base(t *testing.T, s setup) config.Config {
	c := config.Default()
	c.Listen, c.Admin.Listen = harness.FreePort(t), harness.FreePort(t)
	c.Model = model
	c.StateDir, c.Journal.Dir = t.TempDir(), t.TempDir()
	c.GPU.Disabled = true
	c.Engine.DrainTimeout, c.Engine.StopGrace = 2*time.Second, 5*time.Second
	c.Signals.MinInterval, c.Signals.MaxInterval = 20*time.Millisecond, 50*time.Millisecond
	if s.policy != "" {
		c.PolicyFile = harness.WriteFile(t, "policy.yaml", s.policy)
	}
	return c
}

func run(t *testing.T, s setup, c config.Config) *rig {
	t.Helper()
	if s.config != nil {
		s.config(&c)
	}
	r := &rig{log: &harness.Output{}, dir: c.Journal.Dir}
	ended, result := make(chan struct{}), error(nil)
	ctx, cancel := context.WithCancel(context.Background())
	r.Client = &harness.Client{TB: t, Gate: "http://" + c.Listen, Admin: "http://" + c.Admin.Listen, State: c.StateDir,
		Ended: ended, How: func() string { return fmt.Sprint(result) }}
	go func() {
		defer close(ended)
		result = app.Run(ctx, app.Options{
			Config: c, Load: func() (config.Config, error) { return c, nil }, Version: "test", Self: binary, Patience: s.patience,
			Logger: slog.New(slog.NewTextHandler(r.log, nil)), Level: new(slog.LevelVar),
		})
	}()
	r.stop = sync.OnceValue(func() error {
		cancel()
		<-ended
		return result
	})
	t.Cleanup(func() {
		if err := r.stop(); !isWanted(err, s.wanted) {
			t.Errorf("admitd ended with: %v", err)
		}
		if t.Failed() {
			t.Logf("admitd's log:\n%s", tail(r.log.String()))
		}
	})
	return r
}

func isWanted(err, wanted error) bool {
	if wanted == nil {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), wanted.Error())
}

func tail(s string) string { return s[max(0, len(s)-12000):] }

// ready waits until the gate is open.
func (r *rig) ready() *rig {
	r.TB.Helper()
	r.WaitReady(patience)
	return r
}

// until waits for a condition.
func (r *rig) until(what string, cond func() bool) {
	r.TB.Helper()
	r.Until(patience, what, cond)
}

// fault switches a fault of an attached engine.
func (r *rig) fault(name sim.Fault, on bool) {
	r.TB.Helper()
	if err := r.engine.SetFault(name, on); err != nil {
		r.TB.Fatal(err)
	}
}

// chat asks for so many tokens and reads the answer to its end.
func (r *rig) chat(tokens int, stream bool, header ...string) harness.Answer {
	r.TB.Helper()
	return harness.Post(harness.Timeout(r.TB, patience), r.Gate+"/v1/chat/completions", harness.Chat(model, "Hello", tokens, stream), header...)
}

// open asks for a stream of so many tokens and returns once its head is there. leave ends it.
func (r *rig) open(tokens int) (resp *http.Response, leave func()) {
	r.TB.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	resp, err := harness.Open(ctx, r.Gate+"/v1/chat/completions", harness.Chat(model, "Hello", tokens, true))
	if err != nil {
		cancel()
		r.TB.Fatal(err)
	}
	leave = func() { cancel(); _ = resp.Body.Close() }
	r.TB.Cleanup(leave)
	return resp, leave
}

// pool is the one pool's status.
func (r *rig) pool() api.PoolStatus {
	r.TB.Helper()
	return r.Status().Pools[0]
}

// state waits until the supervisor says this state and returns its status.
func (r *rig) state(want supervisor.State) supervisor.Status {
	r.TB.Helper()
	var got supervisor.Status
	r.until(string(want), func() bool { got = r.pool().Engine; return got.State == want })
	return got
}

// relaunched waits until an engine launched after so many restarts serves, and returns its status.
func (r *rig) relaunched(restarts int) supervisor.Status {
	r.TB.Helper()
	var got supervisor.Status
	r.until("serving with a new engine", func() bool {
		st := r.Status()
		got = st.Pools[0].Engine
		return st.Ready && got.Restarts >= restarts
	})
	return got
}

// signal is one reading as the dashboard shows it.
func (r *rig) signal(name string) journal.SignalView {
	r.TB.Helper()
	for _, s := range r.pool().Signals {
		if string(s.Name) == name {
			return s
		}
	}
	r.TB.Fatalf("no signal %s", name)
	panic("unreachable")
}

// settled waits until every admitted request has ended and nothing is reserved.
func (r *rig) settled() {
	r.TB.Helper()
	r.until("settled", func() bool {
		l := r.pool().Ledger
		return l.InFlight == 0 && l.Held == 0 && l.ReservedTokens == 0 && l.Admitted == l.Settled
	})
}

// record is the decision of an answer with its outcome, which is waited for when the request was admitted.
func (r *rig) record(a harness.Answer) api.DecisionItem {
	r.TB.Helper()
	var d api.DecisionItem
	r.until("recorded", func() bool {
		d = api.DecisionItem{}
		r.Get("/api/v1/decisions/"+a.Header.Get("X-Admitd-Request-Id"), &d)
		return d.Decision.Verdict != "admit" || d.Outcome != nil
	})
	return d
}

// events are the texts of the record's events of one name so far.
func (r *rig) events(name string) []string {
	r.TB.Helper()
	var out []string
	if _, err := journal.ReadDir(r.dir, func(e journal.Entry) error {
		if e.Event != nil && e.Event.Name == name {
			out = append(out, e.Event.Text)
		}
		return nil
	}); err != nil {
		r.TB.Fatal(err)
	}
	return out
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := stat[bytes.LastIndexByte(stat, ')')+1:]
	return !strings.HasPrefix(strings.TrimSpace(string(after)), "Z")
}

// kill ends one process that the test's own engine started.
func (r *rig) kill(pid int) {
	r.TB.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		r.TB.Fatalf("kill %d: %v", pid, err)
	}
}
