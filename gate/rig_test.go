package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
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
	"admitd/gate/quota"
	"admitd/gate/wire"
	"admitd/signals"
	"admitd/supervisor"
)

// stock is set while the gate is tested between net/http's server and client instead of those of package wire. It must
// behave the same.
var stock bool

type onBoth struct{ m *testing.M }

func (b onBoth) Run() int {
	if code := b.m.Run(); code != 0 {
		return code
	}
	stock = true
	return b.m.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(onBoth{m}) }

// patience is how long a test waits for what must happen; it decides nothing but when to give up.
const patience = 20 * time.Second

const (
	goodSecret = "sk-test-Zq8vLm3nTr5wXy7a"
	chatPath   = "/v1/chat/completions"
	chatBody   = `{"model":"m","messages":[{"role":"user","content":"hello there"}]}`
	streamBody = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hello there"}]}`
	wholeJSON  = `{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},` +
		`"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}`
	doneMark = "data: [DONE]\n\n"
)

func tokenEvent(text string) string {
	return `data: {"id":"x","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}` + "\n\n"
}

func endEvents() string {
	return `data: {"id":"x","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
		`data: {"id":"x","object":"chat.completion.chunk","model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}` + "\n\n" + doneMark
}

func wholeStream() string { return tokenEvent("a") + tokenEvent("b") + tokenEvent("c") + endEvents() }

// fakeEngine is an engine on loopback that the test scripts, and its supervisor's face.
type fakeEngine struct {
	*httptest.Server
	transport http.RoundTripper
	hits      atomic.Int64

	mu      sync.Mutex
	status  supervisor.Status
	handler http.HandlerFunc
}

func (e *fakeEngine) Status() supervisor.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status
}

func (e *fakeEngine) set(f func(*supervisor.Status)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.status)
}

func (e *fakeEngine) Transport() http.RoundTripper                          { return e.transport }
func (e *fakeEngine) Logs(uint64, int) (lines []supervisor.Line, lost bool) { return nil, false }
func (e *fakeEngine) Changed() <-chan struct{}                              { return nil }
func (e *fakeEngine) Pids() []int                                           { return nil }

func newEngine(t *testing.T, h http.HandlerFunc) *fakeEngine {
	t.Helper()
	e := &fakeEngine{handler: h, status: supervisor.Status{State: supervisor.Ready, Model: "m", MaxModelLen: 4096}}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.hits.Add(1)
		// Only a body that was read lets net/http see the gate hang up.
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		e.handler(w, r)
	}))
	addr := e.Listener.Addr().String()
	dial := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", addr) }
	var tr interface {
		http.RoundTripper
		CloseIdleConnections()
	} = &wire.Client{Dial: func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }}
	if stock {
		tr = &http.Transport{MaxIdleConnsPerHost: 100, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	}
	e.transport = tr
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

// syncBuffer collects log output.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// rig is a gate on loopback in front of one fake engine, with everything it records.
type rig struct {
	t      *testing.T
	engine *fakeEngine
	pool   *Pool
	gate   *Server
	url    string
	addr   string
	reg    *prometheus.Registry
	logs   *syncBuffer
	client *http.Client
	srv    interface {
		Serve(l net.Listener) error
		Shutdown(ctx context.Context) error
		Close() error
	}
}

// setup changes a rig before it starts.
type setup struct {
	Options
	policy  string
	wrap    func(admission.Controlling) admission.Controlling
	aliases []string
	engine  string
	// narrow gives connections from callers a small send buffer.
	narrow bool
}

const admitAll = "policy: admit-all\n"

func newRig(t *testing.T, h http.HandlerFunc, change func(*setup)) *rig {
	t.Helper()
	s := setup{policy: admitAll}
	if change != nil {
		change(&s)
	}
	r := &rig{t: t, engine: newEngine(t, h), reg: prometheus.NewRegistry(), logs: &syncBuffer{}}
	r.pool = newPool(t, "m", r.engine, s.policy, s.wrap)
	r.pool.Aliases, r.pool.EngineModel = s.aliases, s.engine
	s.Pools = append([]*Pool{r.pool}, s.Pools...)
	s.Registerer = r.reg
	s.Logger = slog.New(slog.NewJSONHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	gate, err := New(s.Options)
	if err != nil {
		t.Fatal(err)
	}
	r.gate = gate
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.serve(l, s.narrow)
	r.addr = l.Addr().String()
	r.url = "http://" + r.addr
	tr := &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}
	r.client = &http.Client{Transport: tr}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = r.srv.Close()
		r.untilServed()
	})
	return r
}

// serve puts the gate behind one of the two servers.
func (r *rig) serve(l net.Listener, narrow bool) {
	context := func(ctx context.Context, c net.Conn) context.Context {
		if narrow {
			_ = c.(*net.TCPConn).SetWriteBuffer(4096)
		}
		return ctx
	}
	if stock {
		srv := &http.Server{Handler: r.gate, ConnContext: context}
		Prepare(srv)
		r.srv = srv
	} else {
		srv := &wire.Server{ConnContext: context}
		r.gate.PrepareWire(srv)
		r.srv = srv
	}
	go r.srv.Serve(l)
}

// untilServed waits until every handler has returned.
func (r *rig) untilServed() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.srv.Shutdown(ctx); err != nil {
		r.t.Errorf("handlers have not returned: %v", err)
	}
}

func compile(t *testing.T, text string) *policy.Compiled {
	t.Helper()
	p, err := policy.Compile("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newPool(t *testing.T, model string, e supervisor.Engine, policyText string, wrap func(admission.Controlling) admission.Controlling) *Pool {
	t.Helper()
	p := compile(t, policyText)
	var c admission.Controlling = admission.New(admission.Config{TicketKey: []byte("0123456789abcdef0123456789abcdef")}, p)
	if wrap != nil {
		c = wrap(c)
	}
	adm := NewAdmission(c, time.Now)
	adm.SetPolicy(p)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = adm.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	j, err := journal.New(journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	snap := signals.NewSnapshot(signals.Snapshot{})
	return &Pool{Model: model, EngineModel: model, Engine: e, Snapshot: func() *signals.Snapshot { return snap }, Admission: adm, Journal: j}
}

func oneKey(t *testing.T, change func(*quota.Key)) *quota.Keys {
	t.Helper()
	k := quota.Key{ID: "k1", SHA256: quota.Hash(goodSecret), Tenant: "acme"}
	if change != nil {
		change(&k)
	}
	keys, err := quota.New([]quota.Key{k})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// do sends a request and returns the open response.
func (r *rig) do(method, path, body string, header ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// get sends a request and returns the response with its whole body.
func (r *rig) get(method, path, body string, header ...string) (*http.Response, string) {
	r.t.Helper()
	resp := r.do(method, path, body, header...)
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("read body: %v", err)
	}
	return resp, string(all)
}

// await waits until the journal satisfies ok.
func (r *rig) await(what string, ok func([]journal.Entry) bool) []journal.Entry {
	r.t.Helper()
	late := time.After(patience)
	for {
		changed := r.pool.Journal.Changed()
		all, _, _ := r.pool.Journal.Read(0, 0)
		if ok(all) {
			return all
		}
		select {
		case <-changed:
		case <-late:
			text, _ := json.Marshal(all[max(0, len(all)-2):])
			r.t.Fatalf("no %s in the journal within %s: %d decisions, %d outcomes, the last entries are %s",
				what, patience, len(decisionsOf(all)), len(outcomesOf(all)), text)
		}
	}
}

func decisionsOf(all []journal.Entry) (out []*journal.Decision) {
	for _, e := range all {
		if e.Decision != nil {
			out = append(out, e.Decision)
		}
	}
	return out
}

func outcomesOf(all []journal.Entry) (out []*journal.Outcome) {
	for _, e := range all {
		if e.Outcome != nil {
			out = append(out, e.Outcome)
		}
	}
	return out
}

// outcome waits for the n-th outcome (from 1) and returns it; there must not be more.
func (r *rig) outcome(n int) *journal.Outcome {
	r.t.Helper()
	all := r.await(fmt.Sprintf("outcome %d", n), func(all []journal.Entry) bool { return len(outcomesOf(all)) >= n })
	if got := len(outcomesOf(all)); got != n {
		r.t.Fatalf("%d outcomes, want %d", got, n)
	}
	return outcomesOf(all)[n-1]
}

// decision waits for the n-th decision (from 1).
func (r *rig) decision(n int) *journal.Decision {
	r.t.Helper()
	all := r.await(fmt.Sprintf("decision %d", n), func(all []journal.Entry) bool { return len(decisionsOf(all)) >= n })
	return decisionsOf(all)[n-1]
}

// idle checks that nothing is left in the books or the buffer budget.
func (r *rig) idle() {
	r.t.Helper()
	d := r.pool.Admission.Dump(admission.Totals)
	if d.InFlight != 0 || d.Held != 0 || d.ReservedTokens != 0 {
		r.t.Errorf("books not empty at rest: %+v", d)
	}
	if d.Admitted != d.Settled {
		r.t.Errorf("admitted %d but settled %d", d.Admitted, d.Settled)
	}
}

// recv waits for a value from a channel.
func recv[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not happen within %s", what, patience)
		panic("unreachable")
	}
}

// readUntil reads from r until the text is there and returns all that was read.
func readUntil(t *testing.T, r io.Reader, text string) string {
	t.Helper()
	var got strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(got.String(), text) {
		n, err := r.Read(buf)
		got.Write(buf[:n])
		if err != nil && !strings.Contains(got.String(), text) {
			t.Fatalf("%q did not come, but %q and then %v", text, got.String(), err)
		}
	}
	return got.String()
}

// sse writes an event stream piece by piece, flushing each.
func sse(w http.ResponseWriter, pieces ...string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, p := range pieces {
		_, _ = io.WriteString(w, p)
		_ = http.NewResponseController(w).Flush()
	}
}

func answerJSON(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, wholeJSON)
}

func answerStream(w http.ResponseWriter, _ *http.Request) { sse(w, wholeStream()) }
