package books

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"admitd/gate"
	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
)

const (
	// round is how many requests are sent between two looks at the books; the record's ring holds them all.
	round   = 2000
	workers = 32
	// usual is how many are sent by `make test`; ADMITD_BOOKS, as `make books` sets it, says another number.
	usual = 20_000
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// policies take turns while requests are under way.
var policies = []string{
	"policy: concurrency\nparams:\n  max_in_flight: 8\nhold:\n  max_wait: 5ms\n  max_requests: 6\n",
	"policy: admit-all\n",
	"policy: concurrency\nparams:\n  max_in_flight: 3\n",
	"policy: concurrency\nparams:\n  max_in_flight: 12\nhold:\n  max_wait: 20ms\n  max_requests: 40\n",
}

// caller is a response writer in memory that leaves, or breaks, when it is told to.
type caller struct {
	header http.Header
	status int
	bytes  int
	writes int
	// leave cancels the request at that write; fail breaks the connection at that write. Negative: never.
	leave, fail int
	cancel      func()
}

// Header implements http.ResponseWriter.
func (c *caller) Header() http.Header { return c.header }

// WriteHeader implements http.ResponseWriter.
func (c *caller) WriteHeader(status int) { c.status = status }

// Write implements http.ResponseWriter.
func (c *caller) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	c.writes++
	if c.writes-1 == c.leave {
		c.cancel()
	}
	if c.fail >= 0 && c.writes > c.fail {
		return 0, errors.New("broken pipe")
	}
	c.bytes += len(p)
	return len(p), nil
}

// Flush implements http.Flusher.
func (c *caller) Flush() {}

// house is the gate with its books.
type house struct {
	t      *testing.T
	engine *engine
	pool   *gate.Pool
	gate   *gate.Server
	reg    *prometheus.Registry
	// ids are the request ids that callers were told, by request number; "" where nothing was written.
	ids []string
	// after is the last entry of the record that was looked at.
	after uint64
	// seen by kind of ending, and by reason for refusals.
	endings, refusals map[string]int
	admitted          int
}

func compiled(t *testing.T, text string) *policy.Compiled {
	t.Helper()
	p, err := policy.Compile("books.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newHouse(t *testing.T, n int) *house {
	t.Helper()
	h := &house{t: t, engine: &engine{saidTokens: make([]atomic.Int32, n)}, reg: prometheus.NewRegistry(), ids: make([]string, n),
		endings: map[string]int{}, refusals: map[string]int{}}
	p := compiled(t, policies[0])
	adm := gate.NewAdmission(admission.New(admission.Config{TicketKey: []byte("0123456789abcdef0123456789abcdef")}, p), time.Now)
	adm.SetPolicy(p)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = adm.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	record, err := journal.New(journal.Options{Ring: 3 * round})
	if err != nil {
		t.Fatal(err)
	}
	snap := signals.NewSnapshot(signals.Snapshot{})
	h.pool = &gate.Pool{Model: "m", EngineModel: "m", Engine: h.engine, Snapshot: func() *signals.Snapshot { return snap }, Admission: adm, Journal: record}
	h.gate, err = gate.New(gate.Options{Pools: []*gate.Pool{h.pool}, Registerer: h.reg, Limits: gate.Limits{MaxBodyBytes: 4096}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// send plays one request with everything that may become of it, by chance.
func (h *house) send(number int, rng *rand.Rand) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	what, tokens, stream := play(rng.IntN(int(plays))), 1+rng.IntN(20), rng.IntN(2) == 0
	if rng.IntN(2) == 0 {
		what = playWhole
	}
	c := &caller{header: http.Header{}, leave: -1, fail: -1, cancel: cancel}
	switch rng.IntN(10) {
	case 0:
		c.leave = rng.IntN(4)
	case 1:
		c.fail = rng.IntN(4)
	}
	if what == playHang || what == playHangAfterToken || rng.IntN(10) == 0 {
		// Nothing else ends a request that the engine forgets.
		timer := time.AfterFunc(time.Duration(rng.IntN(4000))*time.Microsecond, cancel)
		defer timer.Stop()
	}
	text := fmt.Sprintf(`{"model":"m","stream":%v,"user":"%d-%d-%d","messages":[{"role":"user","content":"hello"}]}`, stream, number, what, tokens)
	path := "/v1/chat/completions"
	switch rng.IntN(40) {
	case 0:
		text = text[:len(text)-1]
	case 1:
		text += strings.Repeat(" ", 5000)
	case 2:
		path = "/v1/nothing"
	case 3:
		text = strings.Replace(text, `"stream"`, `"max_tokens":100000,"stream"`, 1)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gate"+path, strings.NewReader(text))
	if err != nil {
		h.t.Error(err)
		return
	}
	q.RemoteAddr, q.RequestURI = "192.0.2.1:1", path
	q.Header.Set("Content-Type", "application/json")
	h.serve(c, q)
	h.ids[number] = c.header.Get("X-Admitd-Request-Id")
}

// serve calls the gate as net/http does: an answer that must not look whole ends in a panic of its own.
func (h *house) serve(c *caller, q *http.Request) {
	defer func() {
		caught := recover()
		if err, ok := caught.(error); caught != nil && (!ok || !errors.Is(err, http.ErrAbortHandler)) {
			h.t.Errorf("panic: %v", caught)
		}
	}()
	h.gate.ServeHTTP(c, q)
}

// disturb changes the policy, and closes and opens the gate, until it is told to stop.
func (h *house) disturb(stop <-chan struct{}) {
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			h.pool.Admission.Open()
			return
		case <-every.C:
		}
		if i%20 == 7 {
			h.pool.Admission.Close(reason.EngineDown, "the engine is down")
			continue
		}
		h.pool.Admission.Open()
		h.pool.Admission.SetPolicy(compiled(h.t, policies[i%len(policies)]))
	}
}

// balance looks at everything recorded since the last time: n requests have ended.
func (h *house) balance(first, n int) {
	h.t.Helper()
	entries, _, last := h.pool.Journal.Read(h.after, 0)
	if uint64(len(entries)) != last-h.after {
		h.t.Fatalf("the record lost entries: %d of %d", len(entries), last-h.after)
	}
	h.after = last
	verdicts, outcomes := map[string]string{}, map[string]*journal.Outcome{}
	for _, e := range entries {
		switch {
		case e.Decision != nil:
			if _, twice := verdicts[e.Decision.ID]; twice {
				h.t.Errorf("%s was decided twice", e.Decision.ID)
			}
			verdicts[e.Decision.ID] = e.Decision.Verdict
			if e.Decision.Verdict != reason.VerdictAdmit {
				h.refusals[string(e.Decision.Reason)]++
			}
		case e.Outcome != nil:
			if outcomes[e.Outcome.ID] != nil {
				h.t.Errorf("%s ended twice", e.Outcome.ID)
			}
			outcomes[e.Outcome.ID] = e.Outcome
			h.endings[e.Outcome.Ending]++
		}
	}
	if len(verdicts) != n {
		h.t.Errorf("%d requests have %d decisions", n, len(verdicts))
	}
	for id, v := range verdicts {
		if (v == reason.VerdictAdmit) != (outcomes[id] != nil) {
			h.t.Errorf("%s was decided %s and has the outcome %+v", id, v, outcomes[id])
		}
	}
	h.admitted += len(outcomes)
	h.tokens(first, n, outcomes)
	d := h.pool.Admission.Dump(admission.PerRequest)
	if d.InFlight != 0 || d.Held != 0 || d.ReservedTokens != 0 || d.Admitted != d.Settled || len(d.Requests) != 0 {
		h.t.Errorf("the ledger at rest: %+v", d)
	}
	// An answer is let go of by whoever reads it, who may be a moment behind.
	for late := time.After(time.Minute); h.engine.open.Load() != 0; {
		select {
		case <-late:
			h.t.Fatalf("%d answers of the engine were left open", h.engine.open.Load())
		case <-time.After(time.Millisecond):
		}
	}
}

// tokens compares what was settled for whole answers with what the engine said.
func (h *house) tokens(first, n int, outcomes map[string]*journal.Outcome) {
	for number := first; number < first+n; number++ {
		o := outcomes[h.ids[number]]
		if o == nil || o.Ending != "whole" || o.Status != http.StatusOK {
			continue
		}
		said := int(h.engine.saidTokens[number].Load())
		if said == 0 {
			continue
		}
		if o.CompletionTokens == nil || *o.CompletionTokens != said {
			h.t.Errorf("request %d: the engine said %d tokens, the outcome is %+v", number, said, o)
		}
	}
}

// counted adds up a metric.
func (h *house) counted(name string) (sum float64) {
	families, err := h.reg.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.Metric {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// Whatever happens to very many requests, the books add up.
func TestBooksAddUpOverEveryKindOfEnding(t *testing.T) {
	n := usual
	if text := os.Getenv("ADMITD_BOOKS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < round {
			t.Fatalf("ADMITD_BOOKS=%q: must be a number of requests, at least %d", text, round)
		}
	}
	n -= n % round
	h := newHouse(t, n)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { defer close(stopped); h.disturb(stop) }()
	defer func() { close(stop); <-stopped }()
	for first := 0; first < n && !t.Failed(); first += round {
		var next atomic.Int64
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(first), uint64(w)))
				for i := next.Add(1) - 1; i < round; i = next.Add(1) - 1 {
					h.send(first+int(i), rng)
				}
			})
		}
		wg.Wait()
		h.balance(first, round)
	}
	if t.Failed() {
		return
	}
	if got := h.counted("admitd_decisions_total"); got != float64(n) {
		t.Errorf("the metrics count %v decisions of %d", got, n)
	}
	if got := h.counted("admitd_outcomes_total"); got != float64(h.admitted) {
		t.Errorf("the metrics count %v outcomes of %d", got, h.admitted)
	}
	for _, name := range []string{"admitd_inflight", "admitd_held", "admitd_reserved_tokens"} {
		if got := h.counted(name); got != 0 {
			t.Errorf("%s is %v at rest", name, got)
		}
	}
	for _, ending := range []string{"whole", "engine_error", "engine_refused", "engine_cut", "caller_gone"} {
		if h.endings[ending] == 0 {
			t.Errorf("no request ended as %s: %v", ending, h.endings)
		}
	}
	t.Logf("%d requests: endings %v, refusals %v", n, h.endings, h.refusals)
}
