package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/internal/config"
	"admitd/signals"
	"admitd/supervisor"
)

// limit bounds waits in real time: far above what any of them takes.
const limit = time.Minute

// fakeEngine is an engine whose state the test sets.
type fakeEngine struct {
	mu      sync.Mutex
	st      supervisor.Status
	changed chan struct{}
	// run replaces waiting for the end of ctx in Run.
	run     func(ctx context.Context, e *fakeEngine) error
	hurried atomic.Bool
}

func newFakeEngine() *fakeEngine {
	return &fakeEngine{st: supervisor.Status{Kind: supervisor.VLLM, State: supervisor.Stopped, Text: "not started"}, changed: make(chan struct{})}
}

func (e *fakeEngine) set(change func(*supervisor.Status)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.st)
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *fakeEngine) become(s supervisor.State, text string) {
	e.set(func(st *supervisor.Status) {
		st.State, st.Text, st.Since = s, text, time.Now()
		if s == supervisor.Ready {
			st.ReadyAt = time.Now()
		}
	})
}

func (e *fakeEngine) Status() supervisor.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.st
}

func (e *fakeEngine) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

func (e *fakeEngine) Transport() http.RoundTripper { return noTransport{} }

func (e *fakeEngine) Logs(uint64, int) ([]supervisor.Line, bool) { return nil, false }

func (e *fakeEngine) Pids() []int { return nil }

func (e *fakeEngine) Restart(context.Context) error { return nil }

func (e *fakeEngine) Hurry() { e.hurried.Store(true) }

func (e *fakeEngine) Run(ctx context.Context) error {
	if e.run != nil {
		return e.run(ctx, e)
	}
	<-ctx.Done()
	e.become(supervisor.Stopped, "stopped")
	return nil
}

type noTransport struct{}

func (noTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no engine in this test")
}

// fakeScraper hands out what the test publishes.
type fakeScraper struct {
	latest       atomic.Pointer[signals.Snapshot]
	tell         func(*signals.Snapshot)
	runs, resets atomic.Int32
	running      atomic.Int32
}

func newFakeScraper() *fakeScraper {
	s := &fakeScraper{tell: func(*signals.Snapshot) {}}
	s.latest.Store(&signals.Snapshot{})
	return s
}

func (s *fakeScraper) publish(snap *signals.Snapshot) {
	s.latest.Store(snap)
	s.tell(snap)
}

func (s *fakeScraper) Run(ctx context.Context) error {
	s.runs.Add(1)
	s.running.Add(1)
	defer s.running.Add(-1)
	<-ctx.Done()
	return nil
}

func (s *fakeScraper) Snapshot() *signals.Snapshot { return s.latest.Load() }

func (s *fakeScraper) Interval() time.Duration { return time.Second }

func (s *fakeScraper) Offer(signals.ORCA, time.Time) {}

func (s *fakeScraper) Reset() {
	s.resets.Add(1)
	s.latest.Store(&signals.Snapshot{})
}

// scrape is a good scrape of now with these signals.
func scrape(names ...signals.Name) *signals.Snapshot {
	var out []signals.Signal
	for _, n := range names {
		out = append(out, signals.Signal{Name: n, At: time.Now(), State: signals.Live})
	}
	return signals.NewSnapshot(signals.Snapshot{Seq: 1, At: time.Now(), Engine: "vllm", Version: "0.32"}, out...)
}

// Policies: one that needs nothing, and two that need one signal each.
const (
	needsNothing = "policy: concurrency\nparams: {max_in_flight: 4}\n"
	needsWaiting = "policy: queue-depth\nparams: {max_waiting: 2}\n"
	needsKV      = "policy: kv-threshold\nparams: {max_kv_used: 0.9}\n"
	needsKVMore  = "policy: kv-threshold\nparams: {max_kv_used: 0.7}\n"
)

func compiled(t testing.TB, text string) *policy.Compiled {
	t.Helper()
	c, err := policy.Compile("", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// events lists the journal's events as "level name: text".
func events(j *journal.Journal) []string {
	entries, _, _ := j.Read(0, 1000)
	var out []string
	for _, e := range entries {
		if e.Event != nil {
			out = append(out, e.Event.Level+" "+e.Event.Name+": "+e.Event.Text)
		}
	}
	return out
}

func countEvents(j *journal.Journal, begin string) int {
	n := 0
	for _, e := range events(j) {
		if strings.HasPrefix(e, begin) {
			n++
		}
	}
	return n
}

func newJournal(t testing.TB) *journal.Journal {
	t.Helper()
	j, err := journal.New(journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// testConfig is the default configuration on free ports of loopback, without a GPU.
func testConfig(t testing.TB) config.Config {
	c := config.Default()
	c.Model, c.Listen, c.Admin.Listen = "m", "127.0.0.1:0", "127.0.0.1:0"
	c.StateDir, c.GPU.Disabled = t.TempDir(), true
	return c
}

// world is a pool around fakes.
type world struct {
	*pool
	engine  *fakeEngine
	scraper *fakeScraper

	mu     sync.Mutex
	failed []error
}

func newWorld(t testing.TB, policyText string, change ...func(*config.Config)) *world {
	t.Helper()
	c := testConfig(t)
	for _, f := range change {
		f(&c)
	}
	w := &world{pool: &pool{config: c, journal: newJournal(t)}, engine: newFakeEngine(), scraper: newFakeScraper()}
	w.pool.engine, w.pool.scraper = w.engine, w.scraper
	w.scraper.tell = w.onSnapshot
	if err := w.assemble(Options{Config: c, Logger: quiet()}, compiled(t, policyText), "", c.StateDir); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, err)
}

func (w *world) failures() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]error(nil), w.failed...)
}

// watching runs the pool's watch inside a bubble until the test ends.
func (w *world) watching(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.watch(ctx, w.fail)
	}()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
}

// become and scraped do what their names say and let everybody react.
func (w *world) become(s supervisor.State, text string) {
	w.engine.become(s, text)
	synctest.Wait()
}

func (w *world) scrapedNow(names ...signals.Name) {
	w.scraper.publish(scrape(names...))
	synctest.Wait()
}

func (w *world) wantOpen(t *testing.T) {
	t.Helper()
	if ok, why := w.serving(); !ok {
		t.Errorf("the gate is closed: %s", why)
	}
}

func (w *world) wantClosed(t *testing.T, why string) {
	t.Helper()
	if ok, got := w.serving(); ok || !strings.Contains(got, why) {
		t.Errorf("open %v, %q; want closed because %q", ok, got, why)
	}
}

// pass lets time of a bubble pass.
func pass(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

// syncBuffer is a writer for several goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

var _ io.Writer = (*syncBuffer)(nil)

// Write implements io.Writer.
func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
