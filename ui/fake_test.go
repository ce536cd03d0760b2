package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/nvml"
	"admitd/signals"
	"admitd/supervisor"
	"admitd/ui/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline bounds every wait of these tests; nothing depends on how long a wait really takes.
const deadline = 20 * time.Second

const testToken = "0123456789abcdef"

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// fakeClock is moved by hand.
type fakeClock struct{ ms atomic.Int64 }

func (c *fakeClock) now() time.Time          { return t0.Add(time.Duration(c.ms.Load()) * time.Millisecond) }
func (c *fakeClock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

type fakeEngine struct {
	mu      sync.Mutex
	status  supervisor.Status
	lines   []supervisor.Line
	lost    bool
	changed chan struct{}
}

func (e *fakeEngine) Status() supervisor.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status
}

func (e *fakeEngine) set(change func(*supervisor.Status)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.status)
}

func (e *fakeEngine) log(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, supervisor.Line{Seq: uint64(len(e.lines) + 1), At: t0, Text: text})
}

func (e *fakeEngine) Logs(after uint64, limit int) (lines []supervisor.Line, lost bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.lines {
		if l.Seq > after && len(lines) < limit {
			lines = append(lines, l)
		}
	}
	return lines, e.lost && after == 0
}

func (e *fakeEngine) Transport() http.RoundTripper { return nil }
func (e *fakeEngine) Changed() <-chan struct{}     { return e.changed }
func (e *fakeEngine) Pids() []int                  { return nil }

// fakeStore keeps revisions of real, compiled policies.
type fakeStore struct {
	mu       sync.Mutex
	revs     []api.PolicyRevision // oldest first
	compiled []*policy.Compiled
	needs    *policy.NeedsError
}

func newFakeStore(t testing.TB, text string) *fakeStore {
	t.Helper()
	s := &fakeStore{}
	if _, err := s.Apply(t.Context(), []byte(text), "", "start", ""); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *fakeStore) Current() (*policy.Compiled, api.PolicyInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.revs) - 1
	return s.compiled[n], s.revs[n].PolicyInfo
}

func (s *fakeStore) Compile(text []byte) (*policy.Compiled, error) {
	c, err := policy.Compile("policy.yaml", text)
	if err == nil && s.needs != nil {
		return nil, s.needs
	}
	return c, err
}

func (s *fakeStore) Apply(_ context.Context, text []byte, ifMatch, source, note string) (api.ReloadResult, error) {
	c, err := s.Compile(text)
	if err != nil {
		return api.ReloadResult{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.revs); ifMatch != "" && s.revs[n-1].Rev != ifMatch {
		return api.ReloadResult{}, fmt.Errorf("apply: %w", ErrPrecondition)
	}
	info := api.PolicyInfo{Name: c.Policy.Name(), Rev: c.Rev, At: t0, Source: source, Note: note}
	s.revs = append(s.revs, api.PolicyRevision{PolicyInfo: info, Text: string(text)})
	s.compiled = append(s.compiled, c)
	return api.ReloadResult{Changed: true, Rev: c.Rev, Text: "policy " + c.Rev, Diff: []string{"params.max_waiting 8 -> 4"}}, nil
}

func (s *fakeStore) Revert(ctx context.Context, rev string) (api.ReloadResult, error) {
	s.mu.Lock()
	var text string
	for i, r := range s.revs {
		if r.Rev == rev || rev == "" && i == len(s.revs)-2 {
			text = r.Text
		}
	}
	s.mu.Unlock()
	if text == "" {
		return api.ReloadResult{}, ErrNoRevision
	}
	return s.Apply(ctx, []byte(text), "", "revert", "")
}

func (s *fakeStore) History() api.PolicyHistory {
	s.mu.Lock()
	defer s.mu.Unlock()
	var h api.PolicyHistory
	for _, v := range slices.Backward(s.revs) {
		h.Revisions = append(h.Revisions, v)
	}
	return h
}

type fakeBackend struct {
	pools     []PoolBackend
	config    atomic.Pointer[api.ConfigStatus]
	reloadErr error
	restarts  atomic.Int64
	upgrade   func(binary string, tell func(string)) (int, error)
}

func (b *fakeBackend) Pools() []PoolBackend     { return b.pools }
func (b *fakeBackend) GateAddress() string      { return "127.0.0.1:8080" }
func (b *fakeBackend) Config() api.ConfigStatus { return *b.config.Load() }
func (b *fakeBackend) Reload(context.Context, string) (api.ReloadResult, error) {
	if b.reloadErr != nil {
		return api.ReloadResult{}, b.reloadErr
	}
	return api.ReloadResult{Rev: "r", Text: "nothing has changed"}, nil
}

func (b *fakeBackend) Upgrade(binary string, tell func(string)) (int, error) {
	if b.upgrade == nil {
		return 7, nil
	}
	return b.upgrade(binary, tell)
}

// rig is an admin server over fakes, its first pool's parts at hand.
type rig struct {
	t       testing.TB
	s       *Server
	srv     *httptest.Server
	b       *fakeBackend
	clock   *fakeClock
	engine  *fakeEngine
	store   *fakeStore
	journal *journal.Journal
	reg     *prometheus.Registry
}

func fakePool(t testing.TB, b *fakeBackend, model string) PoolBackend {
	t.Helper()
	j, err := journal.New(journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	snap := signals.NewSnapshot(signals.Snapshot{Seq: 7, At: t0, Took: 3 * time.Millisecond, Engine: "vllm", Version: "0.32.0"},
		signals.Signal{Name: signals.KVUsed, Value: 0.5, At: t0, State: signals.Live, Source: "vllm:kv_cache_usage_perc"},
		signals.Signal{Name: signals.Running, Value: 3, At: t0, State: signals.Live},
		signals.Signal{Name: signals.Waiting, Value: 0, At: t0, State: signals.Live},
		signals.Signal{Name: signals.KVCapacity, Value: 1000, At: t0, State: signals.Live})
	reading := &nvml.Reading{At: t0, State: nvml.OK, Driver: "590.1", Devices: []nvml.Device{{
		Index: 0, UUID: "GPU-1", Name: "H200", State: nvml.OK, MemoryTotalBytes: new(uint64(1000)), MemoryUsedBytes: new(uint64(600)),
		UtilizationFraction: new(0.75), Processes: []nvml.Process{{PID: 42, UsedBytes: new(uint64(500)), Ours: true}},
	}}}
	return PoolBackend{
		Model: model, Aliases: []string{model + "-alias"}, Journal: j, Policy: newFakeStore(t, string(policy.Default())),
		Engine: &fakeEngine{status: supervisor.Status{Kind: supervisor.Sim, Simulated: true, State: supervisor.Ready, Model: model,
			Restarts: 2}, changed: make(chan struct{})},
		Restart:        func(context.Context) error { b.restarts.Add(1); return nil },
		Snapshot:       func() *signals.Snapshot { return snap },
		ScrapeInterval: func() time.Duration { return 500 * time.Millisecond },
		Digest: func(now time.Time, _ admission.Depth) admission.Digest {
			return admission.Digest{At: now, InFlight: 4, Held: 1, ReservedTokens: 250, ByTenant: map[string]int{"acme": 4}}
		},
		GPU: func() *nvml.Reading { return reading }, SLOTTFT: 2 * time.Second,
	}
}

func newRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, b: &fakeBackend{}, clock: &fakeClock{}, reg: prometheus.NewPedanticRegistry()}
	r.b.config.Store(&api.ConfigStatus{LastReloadOK: true, LastReloadAt: new(t0)})
	r.b.pools = []PoolBackend{fakePool(t, r.b, "m1"), fakePool(t, r.b, "m2")}
	r.engine = r.b.pools[0].Engine.(*fakeEngine)
	r.store = r.b.pools[0].Policy.(*fakeStore)
	r.journal = r.b.pools[0].Journal
	o := Options{Backend: r.b, Version: "v1", BootID: "boot-1", Token: testToken, Addr: "127.0.0.1:8081", Registry: r.reg,
		Logger: slog.New(slog.DiscardHandler), Clock: r.clock.now}
	for _, c := range change {
		c(&o)
	}
	var err error
	if r.s, err = New(o); err != nil {
		t.Fatal(err)
	}
	r.srv = httptest.NewServer(r.s.Handler())
	t.Cleanup(func() {
		r.s.Close("the test is over")
		r.srv.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// step lets the clock and the first pool's feed go on by one frame.
func (r *rig) step() {
	r.clock.advance(FrameInterval)
	r.s.pools[0].step(r.clock.now())
}

// decide journals a decision of now.
func (r *rig) decide(d journal.Decision) {
	r.journal.Append(journal.Entry{At: r.clock.now(), Kind: journal.KindDecision, Decision: &d})
}

func (r *rig) admit(id string) {
	r.decide(journal.Decision{ID: id, Tenant: "acme", Class: "interactive", Session: "s1", Verdict: reason.VerdictAdmit, Reason: reason.OK})
}

// request is one call over HTTP; header pairs follow.
func (r *rig) request(method, path, body string, header ...string) (*http.Response, []byte) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.srv.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp, out
}

// write is a request with token and JSON type.
func (r *rig) write(method, path, body string, header ...string) (*http.Response, []byte) {
	r.t.Helper()
	return r.request(method, path, body, append([]string{"Authorization", "Bearer " + testToken, "Content-Type", "application/json"}, header...)...)
}

// strictly decodes into a type, unknown fields being an error.
func strictly[T any](t testing.TB, data []byte) T {
	t.Helper()
	var v T
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%.300s: %v", data, err)
	}
	return v
}

func fetch[T any](r *rig, path string) T {
	r.t.Helper()
	resp, body := r.request("GET", path, "")
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("GET %s: %d %s", path, resp.StatusCode, body)
	}
	return strictly[T](r.t, body)
}

// problemWord checks that an answer is a problem and returns its word.
func problemWord(t testing.TB, resp *http.Response, body []byte) string {
	t.Helper()
	if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("content type %q of %d %.200s", ct, resp.StatusCode, body)
	}
	p := strictly[api.Problem](t, body)
	if p.Status != resp.StatusCode || p.Detail == "" || p.Title == "" {
		t.Errorf("problem %+v of status %d", p, resp.StatusCode)
	}
	return strings.TrimPrefix(p.Type, problemType)
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	over := time.NewTimer(deadline)
	defer over.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-over.C:
			t.Fatal("still not:", what)
		}
	}
}
