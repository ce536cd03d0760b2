package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"admitd/internal/config"
	"admitd/internal/strict"
	"admitd/sim"
	"admitd/supervisor"
)

// ask makes one request on a connection of its own.
func ask(method, url, body string) (status int, text string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

const question = `{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"Hello"}]}`

// until polls for a condition.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	late := time.NewTimer(limit)
	defer late.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("not %s", what)
		}
	}
}

// within fails the test when nothing comes out of a channel.
func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(limit):
		t.Fatalf("not %s", what)
		panic("unreachable")
	}
}

func TestRunInFrontOfAnEngine(t *testing.T) {
	engine, err := sim.New(sim.Options{Model: "org/m"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	server := httptest.NewServer(engine)
	defer server.Close()

	c := testConfig(t)
	c.Model, c.ModelName, c.Engine.Kind, c.Engine.URL = "org/m", "m", "external", server.URL
	out := &syncBuffer{}
	screen := NewScreen(out, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Config: c, Load: func() (config.Config, error) { return c, nil }, Version: "test", Progress: screen,
			Logger: slog.New(slog.NewTextHandler(screen, nil)), Level: new(slog.LevelVar),
		})
	}()
	addresses := regexp.MustCompile(`(?s)ready: m on http://(\S+)/v1 .*dashboard: http://(\S+)/`)
	until(t, "ready", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("ended: %v\n%s", err, out)
		default:
		}
		return addresses.MatchString(out.String())
	})
	at := addresses.FindStringSubmatch(out.String())
	if status, text, err := ask("GET", "http://"+at[2]+"/readyz", ""); status != http.StatusOK {
		t.Errorf("it says that it is ready, and /readyz %d %s %v", status, text, err)
	}
	if status, text, err := ask("POST", "http://"+at[1]+"/v1/chat/completions", question); status != http.StatusOK || !strings.Contains(text, `"model":"m"`) {
		t.Errorf("%d %s %v", status, text, err)
	}
	if status, text, err := ask("POST", "http://"+at[2]+"/api/v1/reload", "{}"); status != http.StatusUnauthorized {
		t.Errorf("a write without the token: %d %s %v", status, text, err)
	}
	for _, name := range []string{"admin.token", "policy.last-good.yaml"} {
		if st, err := os.Stat(filepath.Join(c.StateDir, name)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, st, err)
		}
	}
	cancel()
	if err := within(t, "ended", ended); err != nil {
		t.Error(err)
	}
	for _, addr := range at[1:] {
		if _, _, err := ask("GET", "http://"+addr+"/health", ""); err == nil {
			t.Errorf("%s is still open", addr)
		}
	}
}

func TestRunRefusesBeforeAnythingIsLaunched(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("policy: nope\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	isSetup := func(err error) bool { var s *SetupError; return errors.As(err, &s) }
	isStrict := func(err error) bool { var s *strict.Error; return errors.As(err, &s) }
	isAny := func(error) bool { return true }
	for _, c := range []struct {
		name   string
		change func(*config.Config)
		is     func(error) bool
		want   string
	}{
		{"gate port", func(c *config.Config) { c.Listen = busy.Addr().String() }, isAny, "listen: listen tcp " + busy.Addr().String()},
		{"admin port", func(c *config.Config) { c.Admin.Listen = busy.Addr().String() }, isAny, "admin.listen: listen tcp " + busy.Addr().String()},
		{"state folder", func(c *config.Config) { c.StateDir = filepath.Join(file, "x") }, isAny, "state_dir (--state-dir)"},
		{"token file", func(c *config.Config) { c.Admin.TokenFile = file }, isSetup, "it needs at least 16"},
		{"policy absent", func(c *config.Config) { c.PolicyFile = file + ".no" }, func(err error) bool { return errors.Is(err, os.ErrNotExist) }, "read policy: "},
		{"policy wrong", func(c *config.Config) { c.PolicyFile = file }, isStrict, file + ":1:1: policy: "},
		{"engine absent", func(c *config.Config) { c.Engine.Kind, c.Engine.Binary = "vllm", "/no/vllm" }, isSetup, "engine vllm: "},
		{"engine URL", func(c *config.Config) { c.Engine.Kind, c.Engine.URL = "external", "http://user:pw@127.0.0.1:1" }, isSetup, "engine url: "},
		{"journal folder", func(c *config.Config) { c.Journal.Dir = filepath.Join(file, "x") }, isAny, "journal"},
		{"open path", func(c *config.Config) {
			c.Relay.OpenPaths = []config.OpenPath{{Path: "/v1/chat/completions", Class: "helper"}}
		}, isSetup, "/v1/chat/completions"},
	} {
		cfg := testConfig(t)
		cfg.Engine.Kind = "sim"
		c.change(&cfg)
		err := Run(t.Context(), Options{Config: cfg, Logger: quiet(), Level: new(slog.LevelVar), Self: "/no/such/program"})
		if err == nil || !c.is(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	// Nothing that was opened before the refusal stays open.
	cfg := testConfig(t)
	cfg.Listen, cfg.Admin.Listen = "127.0.0.1:0", busy.Addr().String()
	if err := Run(t.Context(), Options{Config: cfg, Logger: quiet(), Level: new(slog.LevelVar)}); err == nil {
		t.Error("the admin port is busy")
	}
}

// running is an instance around fakes, on real listeners.
type running struct {
	*instance
	world       *world
	gate, admin net.Listener
	force       chan struct{}
	cancel      context.CancelFunc
	ended       chan error
}

func start(t *testing.T, run func(context.Context, *running) error) *running {
	t.Helper()
	r := &running{world: newWorld(t, needsNothing), force: make(chan struct{}), ended: make(chan error, 1)}
	for _, l := range []*net.Listener{&r.gate, &r.admin} {
		var err error
		if *l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	c := r.world.config
	r.instance = &instance{
		o:    Options{Config: c, Logger: quiet(), Level: new(slog.LevelVar), Force: r.force, Load: func() (config.Config, error) { return c, nil }},
		pool: r.world.pool, gateAddr: r.gate.Addr().String(), adminAddr: r.admin.Addr().String(),
	}
	if err := r.build(prometheus.NewRegistry(), "0123456789abcdef"); err != nil {
		t.Fatal(err)
	}
	if run != nil {
		r.world.engine.run = func(ctx context.Context, _ *fakeEngine) error { return run(ctx, r) }
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { r.ended <- r.run(ctx, r.gate, r.admin) }()
	t.Cleanup(cancel)
	return r
}

func (r *running) open(t *testing.T) {
	t.Helper()
	r.world.engine.become(supervisor.Ready, "ready")
	until(t, "scraped", func() bool { return r.world.scraper.running.Load() == 1 })
	r.world.scraper.publish(scrape())
	until(t, "open", func() bool { ok, _ := r.world.serving(); return ok })
}

func (r *running) gateStatus() (int, string, error) {
	return ask("POST", "http://"+r.gateAddr+"/v1/chat/completions", question)
}

func (r *running) ready() (int, string, error) {
	return ask("GET", "http://"+r.adminAddr+"/readyz", "")
}

func TestStopIsInOrder(t *testing.T) {
	order := make(chan string, 10)
	r := start(t, func(ctx context.Context, r *running) error {
		<-ctx.Done()
		// The engine is asked to end while the gate refuses politely and the dashboard still tells.
		if ok, why := r.world.serving(); ok || why != "admitd is stopping" {
			order <- fmt.Sprintf("open %v, %q", ok, why)
		}
		if status, text, err := r.gateStatus(); status != http.StatusServiceUnavailable || !strings.Contains(text, "draining") {
			order <- fmt.Sprintf("gate: %d %s %v", status, text, err)
		}
		if status, _, err := r.ready(); status != http.StatusServiceUnavailable {
			order <- fmt.Sprintf("admin: %d %v", status, err)
		}
		order <- "engine"
		return nil
	})
	r.open(t)
	if status, text, err := r.ready(); status != http.StatusOK {
		t.Errorf("%d %s %v", status, text, err)
	}
	r.cancel()
	if err := within(t, "ended", r.ended); err != nil {
		t.Error(err)
	}
	if got := within(t, "asked to end", order); got != "engine" {
		t.Error(got)
	}
	for _, addr := range []string{r.gateAddr, r.adminAddr} {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			t.Errorf("%s is still open", addr)
		}
	}
	if r.world.engine.hurried.Load() {
		t.Error("nobody was in a hurry")
	}
}

func TestEngineThatEndsByItselfEndsAdmitd(t *testing.T) {
	r := start(t, func(context.Context, *running) error { return errors.New("another admitd runs an engine from it") })
	if err := within(t, "ended", r.ended); !errors.Is(err, ErrEngineFailed) || !strings.Contains(err.Error(), "another admitd") {
		t.Errorf("%v", err)
	}
}

// What goes wrong during the stop itself must not be lost: the processes may hold the GPU still.
func TestEngineThatCannotBeEndedIsTold(t *testing.T) {
	r := start(t, func(ctx context.Context, _ *running) error {
		<-ctx.Done()
		return &supervisor.WedgedError{Processes: "vllm (pid 7)"}
	})
	r.open(t)
	r.cancel()
	var wedged *supervisor.WedgedError
	if err := within(t, "ended", r.ended); !errors.Is(err, ErrEngineFailed) || !errors.As(err, &wedged) {
		t.Errorf("%v", err)
	}
}

func TestSecondSignalHurriesTheEngine(t *testing.T) {
	r := start(t, func(ctx context.Context, r *running) error {
		<-ctx.Done()
		close(r.force) // the person has no patience
		late := time.NewTimer(limit)
		defer late.Stop()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for !r.world.engine.hurried.Load() {
			select {
			case <-tick.C:
			case <-late.C:
				return errors.New("nobody hurried the engine")
			}
		}
		return nil
	})
	r.cancel()
	if err := within(t, "ended", r.ended); err != nil {
		t.Error(err)
	}
}

func TestGivenUpEngine(t *testing.T) {
	giveUp := func(r *running) {
		r.world.engine.set(func(st *supervisor.Status) { st.State, st.GaveUp, st.Text = supervisor.Failed, true, "6 crashes" })
	}
	t.Run("at the start ends admitd", func(t *testing.T) {
		r := start(t, nil)
		giveUp(r)
		if err := within(t, "ended", r.ended); !errors.Is(err, ErrEngineFailed) || !strings.Contains(err.Error(), "6 crashes") {
			t.Errorf("%v", err)
		}
	})
	t.Run("after serving is told at the end", func(t *testing.T) {
		r := start(t, nil)
		r.open(t)
		giveUp(r)
		until(t, "closed", func() bool { ok, _ := r.world.serving(); return !ok })
		if status, _, err := r.gateStatus(); status != http.StatusServiceUnavailable {
			t.Errorf("callers get %d %v", status, err)
		}
		select {
		case err := <-r.ended:
			t.Fatalf("it ended: %v", err)
		default:
		}
		r.cancel()
		if err := within(t, "ended", r.ended); !errors.Is(err, ErrEngineFailed) {
			t.Errorf("%v", err)
		}
	})
}

func TestPartThatBreaksEndsAdmitd(t *testing.T) {
	r := start(t, nil)
	r.open(t)
	_ = r.admin.Close()
	if err := within(t, "ended", r.ended); err == nil || !strings.HasPrefix(err.Error(), "admin: ") {
		t.Errorf("%v", err)
	}
}

func TestBackendTellsWhatTheDashboardAsks(t *testing.T) {
	r := start(t, nil)
	r.open(t)
	p := r.Pools()[0]
	if p.Model != "m" || p.SLOTTFT != 2*time.Second || p.SLOTPOT != 100*time.Millisecond || p.ScrapeInterval() != time.Second {
		t.Errorf("%+v", p)
	}
	if g := p.GPU(); g == nil || g.Why != "switched off by gpu.disabled" {
		t.Errorf("%+v", g)
	}
	if ok, _ := p.Serving(); !ok || r.GateAddress() != r.gate.Addr().String() || !r.Config().LastReloadOK {
		t.Error("serving, address or configuration")
	}
	if res, err := r.Reload(t.Context(), "api"); err != nil || res.Changed {
		t.Errorf("%+v %v", res, err)
	}
	r.cancel()
	if err := within(t, "ended", r.ended); err != nil {
		t.Error(err)
	}
}
