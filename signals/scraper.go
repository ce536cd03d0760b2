package signals

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ScraperOptions says what a Scraper reads and how often. Only URL is required.
type ScraperOptions struct {
	// Transport reaches the engine; nil means http.DefaultTransport.
	Transport http.RoundTripper
	// URL is the address of the engine's metrics page.
	URL string
	// Load returns how many requests are at the engine now, by our own books; nil means always 0. It must be
	// cheap and must not block: it is asked every MinInterval.
	Load func() int
	// Pressed tells whether a fresher reading could change a decision now: the engine is filling up, or somebody waits or was
	// refused. Under load without pressure the pause is CalmFactor times as long. Nil means always; it must be cheap and must not
	// block either.
	Pressed func() bool
	// OnSnapshot is called after every scrape attempt, good or bad, from the goroutine of Run, and after an Offer that was of use,
	// from that of Offer; nil means nobody.
	OnSnapshot func(*Snapshot)
	// Logger is for changes of condition, not for each scrape; nil discards.
	Logger *slog.Logger
	// MinInterval (default 100 ms) is the pause between scrapes while there is load, MaxInterval (default 1 s)
	// the one that the pause grows to while there is none or the engine does not answer.
	MinInterval, MaxInterval time.Duration
	// Timeout bounds one scrape (default 2 s).
	Timeout time.Duration
	// MaxBytes bounds one page (default 4 MiB; a real one has 50 kB).
	MaxBytes int64
	// StaleAfter is the age from which a reading is Stale (default five times MaxInterval).
	StaleAfter time.Duration
	// FlatAfter is how long a reading may stand still under changed load before it is Flat (default 5 s: SGLang
	// refreshes its gauges every 40 decode steps).
	FlatAfter time.Duration
}

// CalmFactor is how many MinIntervals, at most a MaxInterval, lie between two scrapes while there is load and no pressure: ten
// scrapes a second take 2 to 4 % of the tokens of a small engine, and none of them changes a decision then.
const CalmFactor = 5

// Defaults of ScraperOptions.
const (
	defaultMinInterval = 100 * time.Millisecond
	defaultMaxInterval = time.Second
	defaultTimeout     = 2 * time.Second
	defaultMaxBytes    = 4 << 20
	defaultFlatAfter   = 5 * time.Second
)

// withDefaults fills in what was left zero or makes no sense.
func (o ScraperOptions) withDefaults() ScraperOptions {
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	if o.Load == nil {
		o.Load = func() int { return 0 }
	}
	if o.Pressed == nil {
		o.Pressed = func() bool { return true }
	}
	if o.OnSnapshot == nil {
		o.OnSnapshot = func(*Snapshot) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MinInterval <= 0 {
		o.MinInterval = defaultMinInterval
	}
	if o.MaxInterval <= 0 {
		o.MaxInterval = defaultMaxInterval
	}
	o.MaxInterval = max(o.MaxInterval, o.MinInterval)
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.StaleAfter <= 0 {
		o.StaleAfter = 5 * o.MaxInterval
	}
	if o.FlatAfter <= 0 {
		o.FlatAfter = defaultFlatAfter
	}
	return o
}

// Scraper reads one engine's metrics page, one scrape at a time. A scrape costs the engine real work on the
// loop that also serves requests (4 ms for vLLM), so it is quick only while something is in flight.
type Scraper struct {
	o        ScraperOptions
	fetch    fetcher
	latest   atomic.Pointer[Snapshot]
	interval atomic.Int64
	kick     chan struct{}

	mu        sync.Mutex
	core      *core
	epoch     uint64
	versionAt time.Time
}

// NewScraper returns a scraper that has not scraped yet: every signal is Missing until Run does.
func NewScraper(o ScraperOptions) *Scraper {
	o = o.withDefaults()
	s := &Scraper{
		o:     o,
		fetch: newFetcher(o),
		kick:  make(chan struct{}, 1),
		core:  newCore(o.StaleAfter, o.FlatAfter),
	}
	s.interval.Store(int64(o.MinInterval))
	s.latest.Store(s.core.snap)
	return s
}

// Run scrapes until ctx ends and returns nil then. It must be called at most once.
func (s *Scraper) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		snap, busy := s.scrape(ctx)
		if snap != nil {
			s.pace(snap, busy)
			s.o.OnSnapshot(snap)
			s.askVersion(ctx, snap)
		}
		s.pause(ctx)
	}
	return nil
}

// Snapshot returns what the last scrape told; never nil.
func (s *Scraper) Snapshot() *Snapshot { return s.latest.Load() }

// Interval is the pause between scrapes as it stands now.
func (s *Scraper) Interval() time.Duration { return time.Duration(s.interval.Load()) }

// Reset tells that another engine process answers from now on. Every signal is Missing at once, an answer of the
// old process that is still on its way is thrown away, and the next scrape starts without a pause.
func (s *Scraper) Reset() {
	s.mu.Lock()
	s.epoch++
	s.versionAt = time.Time{}
	s.latest.Store(s.core.reset())
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// scrape makes one attempt and returns its snapshot, nil when the answer counts for nothing: ctx ended or the
// engine was replaced meanwhile. busy tells whether there was load.
func (s *Scraper) scrape(ctx context.Context) (snap *Snapshot, busy bool) {
	s.mu.Lock()
	epoch := s.epoch
	s.mu.Unlock()
	got := scraped{load: s.o.Load(), at: time.Now()}
	var err error
	got.body, got.openMetrics, err = s.fetch.page(ctx)
	got.took = time.Since(got.at)
	if ctx.Err() != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != epoch {
		return nil, false
	}
	before := s.core.snap
	if err != nil {
		snap = s.core.fail(err)
	} else {
		snap = s.core.absorb(got)
	}
	s.latest.Store(snap)
	s.tell(before, snap)
	return snap, got.load > 0
}

// tell logs what changed from one snapshot to the next.
func (s *Scraper) tell(before, now *Snapshot) {
	switch {
	case now.Failures == 1:
		s.o.Logger.Warn("engine metrics cannot be read; the last readings stand and grow old", "error", now.Err)
	case now.Failures == 0 && before.Failures > 0:
		s.o.Logger.Info("engine metrics are back", "failures", before.Failures)
	}
	if now.Engine != before.Engine && now.Engine != "" {
		s.o.Logger.Info("engine metrics recognised", "engine", now.Engine)
	}
	if now.Life != before.Life {
		s.o.Logger.Info("engine counters began anew", "life", now.Life, "why", now.LifeWhy)
	}
	if was, is := conditionsText(before), conditionsText(now); was != is {
		if is == "" {
			s.o.Logger.Info("engine metrics can be believed again", "was", was)
		} else {
			s.o.Logger.Warn("engine metrics cannot be believed as they stand", "why", is)
		}
	}
}

// conditionsText joins the codes of a snapshot's conditions.
func conditionsText(s *Snapshot) string {
	codes := make([]string, 0, len(s.Conditions))
	for _, c := range s.Conditions {
		codes = append(codes, string(c.Code))
	}
	return strings.Join(codes, " ")
}

// pace sets the pause that follows a scrape.
func (s *Scraper) pace(snap *Snapshot, busy bool) {
	next := min(2*s.Interval(), s.o.MaxInterval)
	if busy && snap.Failures == 0 {
		next = s.busyPause(snap)
	}
	s.interval.Store(int64(next))
}

// busyPause is the pause under load: a page that takes the engine long is asked for less often.
func (s *Scraper) busyPause(snap *Snapshot) time.Duration {
	const share = 4 // at most about a fifth of the time is spent being scraped
	least := s.o.MinInterval
	if !s.o.Pressed() {
		least *= CalmFactor
	}
	return min(max(least, share*snap.Took), s.o.MaxInterval)
}

// pause waits until the next scrape is due: the interval is over, load has come up after an idle scrape, the
// engine was replaced, or ctx ended.
func (s *Scraper) pause(ctx context.Context) {
	began := time.Now()
	due := time.NewTimer(s.Interval())
	defer due.Stop()
	look := time.NewTicker(s.o.MinInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
			s.interval.Store(int64(s.o.MinInterval))
			return
		case <-due.C:
			return
		case <-look.C:
			snap := s.Snapshot()
			if snap.Failures == 0 && s.o.Load() > 0 && time.Since(began) >= s.busyPause(snap) {
				return
			}
		}
	}
}

// versionEvery spaces attempts to learn the engine's version.
const versionEvery = 30 * time.Second

// askVersion asks a vLLM for its version once for each engine life. SGLang tells it only among its settings,
// which may hold keys; it is not asked.
func (s *Scraper) askVersion(ctx context.Context, snap *Snapshot) {
	if snap.Failures > 0 || snap.Engine != engineVLLM || snap.Version != "" {
		return
	}
	s.mu.Lock()
	epoch, life := s.epoch, s.core.snap.Life
	due := s.versionAt.IsZero() || time.Since(s.versionAt) >= versionEvery
	if due {
		s.versionAt = time.Now()
	}
	s.mu.Unlock()
	if !due {
		return
	}
	version := s.fetch.version(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if version != "" && s.epoch == epoch && s.core.snap.Life == life {
		s.latest.Store(s.core.setVersion(version))
	}
}
