package signals

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"
)

// ScraperOptions says what a Scraper reads and how often. Only URL is required.
type ScraperOptions struct {
	// Transport reaches the engine; nil means http.DefaultTransport.
	Transport http.RoundTripper
	// URL is the address of the engine's metrics page.
	URL string
	// Load returns how many requests are at the engine now, by our own books; nil means always 0.
	Load func() int
	// OnSnapshot is called after every scrape attempt, good or bad, from the goroutine of Run; nil means nobody.
	OnSnapshot func(*Snapshot)
	// Logger is for changes of condition, not for each scrape; nil discards.
	Logger *slog.Logger
	// MinInterval (default 100 ms) is the pause between scrapes while there is load, MaxInterval (default 1 s) while there is none.
	MinInterval, MaxInterval time.Duration
	// Timeout bounds one scrape (default 2 s).
	Timeout time.Duration
	// MaxBytes bounds one page (default 4 MiB).
	MaxBytes int64
}

// Scraper reads one engine's metrics page, one scrape at a time.
type Scraper struct {
	o      ScraperOptions
	latest atomic.Pointer[Snapshot]
}

// NewScraper returns a scraper that has not scraped yet.
func NewScraper(o ScraperOptions) *Scraper {
	s := &Scraper{o: o}
	s.latest.Store(NewSnapshot(Snapshot{}))
	return s
}

// Run scrapes until ctx ends and returns nil then.
func (s *Scraper) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Snapshot returns what the last scrape told; never nil.
func (s *Scraper) Snapshot() *Snapshot { return s.latest.Load() }

// Interval is the pause between scrapes as it stands now.
func (s *Scraper) Interval() time.Duration { return s.o.MaxInterval }

// Reset tells that another engine process answers from now on.
func (s *Scraper) Reset() {}

// Tried lists the metric names that are looked for to read a signal, best first.
func Tried(n Name) []string { return nil }
