// Package ui is the admin listener: the admin API, the live stream and the embedded dashboard.
//
// Goal: every decision visible while it is made, the policy changeable by whoever holds the admin token, and
// nothing of that in the way of the gate.
//
// Non-goals: deciding, listening (the caller owns the socket), drawing (ui/web does), making the admin token.
//
// Invariants: a viewer, however slow, never makes the gate wait; a write never happens without the token; a
// request whose Host or Origin is not ours is answered before anything else is looked at; nothing in this
// package knows prompt text or secrets but the token's hash.
//
// Who may do what: on a loopback listener reads are open to a Host that is loopback too; anything else needs the
// token as "Authorization: Bearer". Writes always need it. The page, /healthz and /readyz hold nothing secret and are
// open, so that the page can load and ask for the token; it keeps it in sessionStorage. A websocket passes it as a
// subprotocol (api.TokenProtocol), never in the URL, where logs would keep it. There are no cookies.
package ui

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"admitd/ui/api"
	"admitd/ui/feed"
)

// FrameInterval is the time between two looks at a pool, and so the shortest between two frames.
const FrameInterval = 100 * time.Millisecond

// Options configures a Server.
type Options struct {
	Backend Backend
	// Version is admitd's own; BootID a random word that differs at every start, by which viewers see a restart.
	Version string
	BootID  string
	// Token is the admin token. Without one every write is refused, and a listener off loopback is an error.
	Token string
	// Addr is the address listened on, host:port. It decides whether reads need the token and which Host is ours.
	Addr string
	// AllowedHosts are further host names (without port) under which the listener may be addressed.
	AllowedHosts []string
	// UIDir serves the web app from a folder instead of from the binary; "" in production.
	UIDir string
	// Registry is served at /metrics, and the package's own metrics are registered there. Required.
	Registry *prometheus.Registry
	// Logger must not be nil.
	Logger *slog.Logger
	// Clock is the present time; nil means time.Now.
	Clock func() time.Time
	// Seed makes the sampling of overfull frames repeatable.
	Seed uint64
	// Hub bounds viewers; the zero value takes the defaults.
	Hub HubOptions
}

// Server is the admin server. Make it with New, serve Handler, and run Run beside it.
type Server struct {
	o       Options
	clock   func() time.Time
	log     *slog.Logger
	started time.Time
	guard   *guard
	pools   []*pool
	hub     *hub
	app     *app
	metrics *metrics
	handler http.Handler
	// stopping is closed when Run ends, so that endless answers end too.
	stopping  chan struct{}
	stopOnce  sync.Once
	followers atomic.Int64
}

// New checks the options and builds the server. It starts nothing.
func New(o Options) (*Server, error) {
	if o.Backend == nil || o.Registry == nil || o.Logger == nil {
		return nil, errors.New("admin server: backend, registry and logger must be given")
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	backends := o.Backend.Pools()
	if len(backends) == 0 {
		return nil, errors.New("admin server: there is no pool to show")
	}
	s := &Server{o: o, clock: o.Clock, log: o.Logger, started: o.Clock(), stopping: make(chan struct{})}
	var err error
	if s.guard, err = newGuard(o.Addr, o.AllowedHosts, o.Token); err != nil {
		return nil, fmt.Errorf("admin server: %w", err)
	}
	if s.app, err = newApp(o.UIDir); err != nil {
		return nil, fmt.Errorf("admin server: %w", err)
	}
	for i, b := range backends {
		seed := o.Seed + uint64(i)
		s.pools = append(s.pools, newPool(b, feed.Options{Seed: seed, FirstSeq: uint64(s.started.UnixMilli()) / 100}))
	}
	s.hub = newHub(o.Hub)
	if s.metrics, err = newMetrics(s, o.Registry); err != nil {
		return nil, fmt.Errorf("admin server: register metrics: %w", err)
	}
	s.handler = s.routes()
	return s, nil
}

// Handler serves everything of the admin listener.
func (s *Server) Handler() http.Handler { return s.handler }

// Run looks at every pool ten times a second until ctx ends, then says bye to every viewer and waits for them to
// be gone. It returns nil.
func (s *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, p := range s.pools {
		wg.Go(func() { s.watch(ctx, p) })
	}
	wg.Go(func() { s.watchConfig(ctx) })
	<-ctx.Done()
	wg.Wait()
	s.Close("admitd is stopping")
	return nil
}

// Close says bye with the reason given, ends every endless answer and refuses new viewers. It waits until all
// viewers are gone, which is bounded by the hub's write wait. The second call does nothing.
func (s *Server) Close(why string) {
	s.stopOnce.Do(func() { close(s.stopping) })
	s.hub.close(why)
}

func (s *Server) watch(ctx context.Context, p *pool) {
	t := time.NewTicker(FrameInterval)
	defer t.Stop()
	for {
		p.step(s.clock())
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// watchConfig sees good reloads that a bad one may follow before anybody scrapes. It is a goroutine of its own because
// the answer may wait for the reloader.
func (s *Server) watchConfig(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		s.metrics.observeConfig(s.o.Backend.Config())
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// hello is the first message to a viewer of the pool.
func (s *Server) hello(p *pool, now time.Time, at feed.Start) api.Hello {
	h := api.Hello{
		Envelope: api.Envelope{V: api.StreamVersion, Seq: at.Last, T: now.UnixMilli(), Kind: api.KindHello},
		BootID:   s.o.BootID, Version: s.o.Version, Pool: p.b.Model, Pools: []string{}, Gauges: api.Gauges,
		DecisionFields: api.DecisionFields, OutcomeFields: api.OutcomeFields, Verdicts: feed.Verdicts(),
		Reasons: reasons(), Strings: at.Strings, RingFrom: at.From, RingTo: at.Last,
		FrameMS: int(FrameInterval / time.Millisecond), SLOTTFTMS: limitMS(p.b.SLOTTFT), SLOTPOTMS: limitMS(p.b.SLOTPOT),
		Simulated: p.b.Engine.Status().Simulated,
	}
	_, h.Policy = p.b.Policy.Current()
	for _, q := range s.pools {
		h.Pools = append(h.Pools, q.b.Model)
	}
	return h
}

func limitMS(d time.Duration) *float64 {
	if d <= 0 {
		return nil
	}
	ms := float64(d) / float64(time.Millisecond)
	return &ms
}

// tokenSum is what is kept of the admin token.
type tokenSum [sha256.Size]byte
