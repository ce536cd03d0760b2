package signals

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeEngine is a transport that answers /metrics with page after delay, and counts. Fields are read and
// changed through with, since the scraper runs beside the test.
type fakeEngine struct {
	mu      sync.Mutex
	page    func() (*http.Response, error)
	delay   time.Duration
	version string

	asked    []time.Time
	accepts  []string
	versions int
	busy     int
	overlap  bool
}

// with runs change while no request looks.
func (f *fakeEngine) with(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeEngine) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Path == "/version" {
		f.versions++
		return answer(200, f.version), nil
	}
	f.busy++
	defer func() { f.busy-- }()
	f.overlap = f.overlap || f.busy > 1
	f.asked = append(f.asked, time.Now())
	f.accepts = append(f.accepts, r.Header.Get("Accept")+"|"+r.Header.Get("Accept-Encoding"))
	delay := f.delay
	f.mu.Unlock()
	var err error
	select {
	case <-time.After(delay):
	case <-r.Context().Done():
		err = r.Context().Err()
	}
	f.mu.Lock()
	if err != nil {
		return nil, err
	}
	return f.page()
}

// count is the number of scrapes so far.
func (f *fakeEngine) count() (n int) {
	f.with(func() { n = len(f.asked) })
	return n
}

// gaps are the pauses between the scrapes, from one start to the next.
func (f *fakeEngine) gaps() []time.Duration {
	var out []time.Duration
	f.with(func() {
		for i := 1; i < len(f.asked); i++ {
			out = append(out, f.asked[i].Sub(f.asked[i-1]))
		}
	})
	return out
}

// pass lets the bubble's clock run and everything that is then due finish.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// answer is a response with a body of known length.
func answer(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{}, ContentLength: int64(len(body)),
		Body: io.NopCloser(strings.NewReader(body)),
	}
}

const goodPage = "vllm:num_requests_running 3\nvllm:num_requests_waiting 0\n"

func good() (*http.Response, error) { return answer(200, goodPage), nil }

// bench runs a scraper inside a synctest bubble.
type bench struct {
	*Scraper
	load  atomic.Int64
	snaps []*Snapshot
	log   bytes.Buffer
	stop  func()
}

func startScraper(t *testing.T, f *fakeEngine, change func(*ScraperOptions)) *bench {
	t.Helper()
	b := &bench{}
	o := ScraperOptions{
		Transport:  f,
		URL:        "http://user:hunter2@engine/metrics?token=hunter2",
		Load:       func() int { return int(b.load.Load()) },
		OnSnapshot: func(s *Snapshot) { b.snaps = append(b.snaps, s) },
		Logger:     slog.New(slog.NewTextHandler(&b.log, nil)),
	}
	if change != nil {
		change(&o)
	}
	b.Scraper = NewScraper(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
	}
	return b
}

func TestScraperIsSlowWhenIdleAndQuickUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeEngine{page: good}
		b := startScraper(t, f, nil)
		pass(5 * time.Second)
		const ms = time.Millisecond
		if diff := cmp.Diff([]time.Duration{200 * ms, 400 * ms, 800 * ms, time.Second, time.Second, time.Second}, f.gaps()); diff != "" {
			t.Errorf("idle pauses (-want +got):\n%s", diff)
		}
		if b.Interval() != time.Second {
			t.Errorf("idle interval is %s, want 1s", b.Interval())
		}

		before, rise := f.count(), time.Now()
		b.load.Store(2)
		pass(time.Second)
		var wait time.Duration
		f.with(func() { wait = f.asked[before].Sub(rise) })
		if wait > 100*ms {
			t.Errorf("the first scrape under load came after %s, want at most 100ms", wait)
		}
		if n := f.count() - before; n < 9 || n > 11 {
			t.Errorf("%d scrapes in a second of load, want about 10", n)
		}
		if b.Interval() != 100*ms {
			t.Errorf("interval under load is %s, want 100ms", b.Interval())
		}

		b.load.Store(0)
		pass(5 * time.Second)
		if b.Interval() != time.Second {
			t.Errorf("interval after load is %s, want 1s", b.Interval())
		}
		b.stop()
		if got := f.accepts[0]; got != "text/plain;version=0.0.4|identity" {
			t.Errorf("asked for %q", got)
		}
	})
}

// With load but room to spare no reading changes a decision, and the engine is left alone; the moment it fills up, it is not.
func TestScraperIsCalmWhileThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeEngine{page: good}
		var pressed atomic.Bool
		b := startScraper(t, f, func(o *ScraperOptions) { o.Pressed = pressed.Load })
		b.load.Store(1)
		pass(2 * time.Second)
		before := f.count()
		pass(10 * time.Second)
		if n := f.count() - before; n < 19 || n > 21 {
			t.Errorf("%d scrapes in ten seconds of load without pressure, want 20", n)
		}
		before = f.count()
		pressed.Store(true)
		pass(time.Second)
		if n := f.count() - before; n < 9 || n > 11 {
			t.Errorf("%d scrapes in the first second of pressure, want about 10", n)
		}
		b.stop()
	})
}

// Ages are measured on the monotonic clock, so that a step of the wall clock makes nothing fresh or stale.
func TestTimesOfReadingsAreMonotonic(t *testing.T) {
	f := &fakeEngine{page: func() (*http.Response, error) {
		return answer(200, "vllm:num_requests_running 3\nvllm:kv_cache_usage_perc 0.5\n"), nil
	}}
	s := NewScraper(ScraperOptions{Transport: f, URL: "http://engine/metrics"})
	if snap, _ := s.scrape(t.Context()); snap == nil || snap.Failures > 0 {
		t.Fatalf("the scrape failed: %+v", snap)
	}
	kv := 0.25
	s.Offer(ORCA{KVUsed: &kv, Ranks: 1}, time.Now())
	snap := s.Snapshot()
	for what, at := range map[string]time.Time{
		"the snapshot": snap.At, "running": snap.Get(Running, time.Now()).At, "a load report": snap.Get(KVUsed, time.Now()).At,
	} {
		if !strings.Contains(at.String(), "m=") {
			t.Errorf("the time of %s (%s) has no monotonic reading", what, at)
		}
	}
	if got := snap.Get(KVUsed, time.Now()); got.Value != kv || got.Source != orcaSource {
		t.Errorf("KV use is %+v; want that of the load report", got)
	}
}

// What an answer of the old engine says must not outlive the engine.
func TestLoadReportOfAnEngineThatWasReplaced(t *testing.T) {
	f := &fakeEngine{page: func() (*http.Response, error) { return answer(200, "vllm:kv_cache_usage_perc 0.5\n"), nil }}
	told := 0
	s := NewScraper(ScraperOptions{Transport: f, URL: "http://engine/metrics", OnSnapshot: func(*Snapshot) { told++ }})
	s.scrape(t.Context())
	s.Reset()
	kv := 0.01
	s.Offer(ORCA{KVUsed: &kv, Ranks: 1}, time.Now())
	if got := s.Snapshot().Get(KVUsed, time.Now()); got.Present() || told > 0 {
		t.Errorf("KV use is %+v, told %d times; want nothing known of the new engine", got, told)
	}
}

// A page that takes the engine long is asked for less often.
func TestScraperSparesASlowEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeEngine{page: good, delay: 150 * time.Millisecond}
		b := startScraper(t, f, nil)
		b.load.Store(1)
		pass(10 * time.Second)
		b.stop()
		if gap := f.gaps()[5]; gap != 750*time.Millisecond {
			t.Errorf("a page of 150ms is asked for every %s, want 750ms", gap)
		}
		if took := b.Snapshot().Took; took != 150*time.Millisecond {
			t.Errorf("Took is %s, want 150ms", took)
		}
	})
}

func TestF40_ScrapeOfTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeEngine{page: good}
		b := startScraper(t, f, nil)
		pass(50 * time.Millisecond)
		firstAt := b.Snapshot().At
		f.with(func() { f.delay = 10 * time.Second })
		b.load.Store(5)
		pass(9 * time.Second)
		snap := b.Snapshot()
		b.stop()
		if f.overlap {
			t.Error("two scrapes ran at once")
		}
		if snap.Failures < 2 || !strings.Contains(snap.Err, "no complete answer within 2s") {
			t.Errorf("failures %d, error %q; want several timeouts", snap.Failures, snap.Err)
		}
		if s := snap.Get(Running, time.Now()); s.State != Stale || s.Value != 3 || !s.At.Equal(firstAt) {
			t.Errorf("running is %+v, want the first reading, stale", s)
		}
		if n := strings.Count(b.log.String(), "\n"); n != 2 {
			t.Errorf("want one line for the engine and one for the outage, got:\n%s", b.log.String())
		}
	})
}

func TestF40_FailuresKeepTheLastReading(t *testing.T) {
	html := answer(200, "<html>vllm:num_requests_running 9</html>")
	html.Header.Set("Content-Type", "text/html; charset=utf-8")
	packed := answer(200, goodPage)
	packed.Header.Set("Content-Encoding", "gzip")
	unfinished := answer(200, "")
	unfinished.Body = io.NopCloser(io.MultiReader(strings.NewReader(goodPage), failing{io.ErrUnexpectedEOF}))
	moved := answer(302, "")
	moved.Header.Set("Location", "http://elsewhere/metrics")
	tests := map[string]struct {
		res  *http.Response
		err  error
		want string
	}{
		"html with 200":    {res: html, want: "the page is HTML"},
		"packed":           {res: packed, want: "compressed"},
		"cut on the way":   {res: unfinished, want: "cut off on its way"},
		"redirect":         {res: moved, want: "answered 302 Found"},
		"not found":        {res: answer(404, "x"), want: "--enable-metrics"},
		"server error":     {res: answer(500, "x"), want: "answered 500"},
		"refused":          {err: errors.New("connection refused"), want: "connection refused"},
		"empty":            {res: answer(200, ""), want: "the page is empty"},
		"half a last line": {res: answer(200, goodPage+"vllm:num_requests_run"), want: "cut short"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeEngine{page: good}
				b := startScraper(t, f, nil)
				pass(50 * time.Millisecond)
				f.with(func() { f.page = func() (*http.Response, error) { return tt.res, tt.err } })
				pass(200 * time.Millisecond)
				snap := b.Snapshot()
				b.stop()
				if snap.Failures != 1 || snap.Seq != 2 || !strings.Contains(snap.Err, tt.want) {
					t.Errorf("failures %d, seq %d, error %q; want one failure with %q", snap.Failures, snap.Seq, snap.Err, tt.want)
				}
				if s := snap.Get(Running, time.Now()); s.State != Live || s.Value != 3 {
					t.Errorf("running is %+v, want the last reading", s)
				}
				if all := b.log.String() + snap.Err; strings.Contains(all, "hunter2") {
					t.Errorf("the address leaked: %s", all)
				}
			})
		})
	}
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// endless is a page without end; it counts what was taken of it.
type endless struct{ taken int64 }

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, strings.Repeat("vllm:num_requests_running 1\n", 1+len(p)/28))
	e.taken += int64(n)
	return n, nil
}

func TestF40_ThirtyMegabytePage(t *testing.T) {
	for _, said := range []int64{30 << 20, -1} {
		synctest.Test(t, func(t *testing.T) {
			body := &endless{}
			f := &fakeEngine{page: func() (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: said, Body: io.NopCloser(body)}, nil
			}}
			b := startScraper(t, f, nil)
			synctest.Wait()
			snap := b.Snapshot()
			b.stop()
			if !strings.Contains(snap.Err, "larger than the limit of 4194304 bytes") {
				t.Errorf("error is %q", snap.Err)
			}
			if s := snap.Get(Running, time.Now()); s.Present() {
				t.Errorf("running is %+v, want it missing", s)
			}
			if body.taken > 4<<20+1<<16 || (said > 0 && body.taken > 0) {
				t.Errorf("%d bytes were read", body.taken)
			}
		})
	}
}

func TestScraperBacksOffAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeEngine{page: func() (*http.Response, error) { return nil, errors.New("connection refused") }}
		b := startScraper(t, f, nil)
		b.load.Store(1)
		pass(20 * time.Second)
		failed := f.count()
		if b.Interval() != time.Second || failed > 25 {
			t.Errorf("interval %s after %d failures, want 1s although there is load", b.Interval(), failed)
		}
		if s := b.Snapshot(); s.Failures != failed || s.Get(Running, time.Now()).Present() {
			t.Errorf("snapshot %+v after %d failures", s, failed)
		}
		f.with(func() { f.page = good })
		pass(time.Second)
		if s := b.Snapshot(); s.Failures != 0 || s.Err != "" || s.Get(Running, time.Now()).State != Live {
			t.Errorf("snapshot %+v after recovery", s)
		}
		b.stop()
		for i, s := range b.snaps {
			if s.Seq != uint64(i+1) {
				t.Fatalf("snapshot %d has sequence number %d", i, s.Seq)
			}
		}
		if !strings.Contains(b.log.String(), "engine metrics are back") {
			t.Errorf("recovery was not logged:\n%s", b.log.String())
		}
	})
}

func TestResetThrowsAwayTheOldEnginesAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeEngine{page: good, delay: 500 * time.Millisecond}
		b := startScraper(t, f, nil)
		pass(100 * time.Millisecond)
		b.Reset()
		f.with(func() {
			f.page = func() (*http.Response, error) { return answer(200, "sglang:num_running_reqs 1\n"), nil }
		})
		if s := b.Snapshot(); s.Life != 1 || s.Get(Running, time.Now()).Present() {
			t.Errorf("after Reset the snapshot is %+v", s)
		}
		pass(time.Second)
		b.stop()
		if first := b.snaps[0]; first.Engine != engineSGLang || first.Life != 1 || first.Get(Running, time.Now()).Value != 1 {
			t.Errorf("the first snapshot is %+v, want the new engine's", first)
		}
	})
}

func TestVersionIsAskedOnceForEachLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeEngine{page: good, version: `{"version":"0.32.0"}`}
		b := startScraper(t, f, nil)
		pass(10 * time.Second)
		if s := b.Snapshot(); s.Version != "0.32.0" {
			t.Errorf("version is %q", s.Version)
		}
		f.with(func() {
			if f.versions != 1 {
				t.Errorf("the version was asked %d times, want once", f.versions)
			}
			f.version, f.versions = "<html>", 0
		})
		b.Reset()
		pass(45 * time.Second)
		b.stop()
		if s := b.Snapshot(); s.Version != "" || f.versions != 2 {
			t.Errorf("version %q after %d questions, want none after 2", s.Version, f.versions)
		}
	})
}

func TestStoppingMidScrapeTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeEngine{page: good, delay: time.Minute}
		b := startScraper(t, f, nil)
		synctest.Wait()
		b.stop()
		if len(b.snaps) != 0 || b.Snapshot().Failures != 0 {
			t.Errorf("a stopped scrape counted: %+v", b.Snapshot())
		}
	})
}

func TestBadAddressIsAFailureNotACrash(t *testing.T) {
	for _, address := range []string{"", "http://\x7f/", "::", "engine"} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeEngine{page: good}
			b := startScraper(t, f, func(o *ScraperOptions) { o.URL = address; o.Transport = nil })
			pass(time.Second)
			b.stop()
			if s := b.Snapshot(); s.Failures == 0 || s.Err == "" {
				t.Errorf("address %q gave %+v", address, s)
			}
		})
	}
}

// One scrape over a real connection that ends early, and one that does not.
func TestF40_CutOnTheWire(t *testing.T) {
	var cut atomic.Bool
	cut.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cut.Swap(false) {
			w.Header().Set("Content-Length", "5000")
		}
		io.WriteString(w, goodPage)
	}))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	snaps := make(chan *Snapshot, 100)
	s := NewScraper(ScraperOptions{Transport: transport, URL: server.URL + "/metrics", OnSnapshot: func(s *Snapshot) { snaps <- s }})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	first, second := <-snaps, <-snaps
	cancel()
	<-done
	if !strings.Contains(first.Err, "cut off on its way") || first.Get(Running, time.Now()).Present() {
		t.Errorf("the cut page gave %+v", first)
	}
	if second.Err != "" || second.Get(Running, second.At).Value != 3 {
		t.Errorf("the whole page gave %+v", second)
	}
}
