package gate

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"admitd/gate/dialect"
	"admitd/gate/quota"
	"admitd/gate/reason"
)

// Defaults of Options.
const (
	DefaultMaxBodyBytes      = 32 << 20
	DefaultMaxBufferedBytes  = 256 << 20
	DefaultBodyTimeout       = 60 * time.Second
	DefaultHelperConcurrency = 8
	DefaultFirstEventWait    = 10 * time.Second
	DefaultWriteStall        = 60 * time.Second
	DefaultMaxAheadBytes     = 32 << 20
	// DefaultClass is the class of callers that have no other.
	DefaultClass = "default"
)

// SLO is what a class promises. Zero means no limit of that kind.
type SLO struct {
	// TTFT bounds the time from arrival to the first output token; TPOT the mean time between output tokens.
	TTFT, TPOT time.Duration
}

// Limits bound what callers can make the gate hold. A zero field means its default.
type Limits struct {
	// MaxBodyBytes is the largest request body; MaxBufferedBytes the most bytes of bodies held at once, over all
	// callers, at least MaxBodyBytes.
	MaxBodyBytes     int64
	MaxBufferedBytes int64
	// BodyTimeout is how long a body may take to arrive.
	BodyTimeout time.Duration
	// MaxAheadBytes is the most bytes of answers read ahead of slow callers, over all of them; one has at most 1 MiB.
	MaxAheadBytes int64
	// HelperConcurrency is how many helper calls may be at the engine at once.
	HelperConcurrency int
}

// ResponseModel says which name the "model" field of responses carries.
type ResponseModel string

const (
	// ModelAsked: the name that the caller asked for (default).
	ModelAsked ResponseModel = "asked"
	// ModelEngine: the engine's own, bytes unchanged.
	ModelEngine ResponseModel = "engine"
)

// Options configures a Server. Pools is required; everything else has a default.
type Options struct {
	// Pools are the served models, at least one; arrivals that belong to no pool are journalled with the first.
	Pools []*Pool
	// Keys of callers; nil or empty lets everyone in.
	Keys *quota.Keys
	// Classes by name; the default class is added without limits when it is not there.
	Classes map[string]SLO
	// DefaultClass is the class of callers that have no other; "" means DefaultClass.
	DefaultClass string
	Limits       Limits
	// FirstEventWait is how long a stream's status waits for its first event; 0 means DefaultFirstEventWait, negative not at all.
	FirstEventWait time.Duration
	// WriteStall is how long a caller may read nothing of its answer before it counts as gone; 0 means DefaultWriteStall,
	// negative for ever. However slowly a caller reads, it is never cut off while it does.
	WriteStall time.Duration
	// KeepAliveComment sends SSE comments (Anthropic: ping events) on streams silent for this long; 0 means never.
	KeepAliveComment time.Duration
	// OpenPaths opens paths that are blocked by default.
	OpenPaths []dialect.Opening
	// ModelNameInResponse is ModelAsked when empty.
	ModelNameInResponse ResponseModel
	// StatusOverrides by reason; the running policy's own codes win over these. 400 to 599.
	StatusOverrides map[reason.Code]int

	// Clock nil means time.Now; NewID nil means random ids; Logger nil discards; Registerer nil registers nothing.
	Clock      func() time.Time
	NewID      func() string
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Server is the gate's http.Handler, safe for concurrent use.
type Server struct {
	o       Options
	paths   *dialect.Paths
	byName  map[string]*Pool
	buffers *budget
	ahead   *budget
	helpers chan struct{}
	reading bufferPool
	// arrivals and flows are what requests that have ended leave to the next.
	arrivals, flows sync.Pool
	metrics         *metrics
	spaces          map[*Pool]*spacings
}

// New checks the options and returns a Server. It starts nothing. The error names every mistake.
func New(o Options) (*Server, error) {
	if len(o.Pools) == 0 {
		return nil, errors.New("gate: no pools: give at least one served model")
	}
	o = withDefaults(o)
	byName, nameErr := names(o.Pools)
	paths, pathErr := dialect.NewPaths(o.OpenPaths...)
	if err := errors.Join(checkPools(o.Pools), nameErr, pathErr, checkLimits(o), checkClasses(o), checkStatuses(o)); err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	m, err := newMetrics(o.Registerer, o.Pools, o.Classes)
	if err != nil {
		return nil, fmt.Errorf("gate: metrics: %w", err)
	}
	spaces := make(map[*Pool]*spacings, len(o.Pools))
	for _, p := range o.Pools {
		spaces[p] = &spacings{}
	}
	return &Server{
		o: o, paths: paths, byName: byName, metrics: m, spaces: spaces,
		buffers: &budget{max: o.Limits.MaxBufferedBytes},
		ahead:   &budget{max: o.Limits.MaxAheadBytes},
		helpers: make(chan struct{}, o.Limits.HelperConcurrency),
	}, nil
}

func withDefaults(o Options) Options {
	set(&o.DefaultClass, DefaultClass)
	set(&o.Limits.MaxBodyBytes, DefaultMaxBodyBytes)
	set(&o.Limits.MaxBufferedBytes, DefaultMaxBufferedBytes)
	set(&o.Limits.BodyTimeout, DefaultBodyTimeout)
	set(&o.Limits.HelperConcurrency, DefaultHelperConcurrency)
	set(&o.FirstEventWait, DefaultFirstEventWait)
	set(&o.WriteStall, DefaultWriteStall)
	set(&o.Limits.MaxAheadBytes, DefaultMaxAheadBytes)
	set(&o.ModelNameInResponse, ModelAsked)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.NewID == nil {
		o.NewID = randomID
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Classes = maps.Clone(o.Classes)
	if o.Classes == nil {
		o.Classes = map[string]SLO{}
	}
	if _, ok := o.Classes[DefaultClass]; !ok && o.DefaultClass == DefaultClass {
		o.Classes[DefaultClass] = SLO{}
	}
	return o
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func checkPools(pools []*Pool) error {
	var bad []error
	for _, p := range pools {
		if p.Model == "" || p.Engine == nil || p.Snapshot == nil || p.Admission == nil || p.Journal == nil {
			bad = append(bad, fmt.Errorf("pool %q: model, engine, snapshot, admission and journal must all be given", p.Model))
		}
	}
	return errors.Join(bad...)
}

func names(pools []*Pool) (map[string]*Pool, error) {
	byName := map[string]*Pool{}
	var bad []error
	for _, p := range pools {
		for _, n := range append([]string{p.Model}, p.Aliases...) {
			if other, taken := byName[n]; taken {
				bad = append(bad, fmt.Errorf("the model name %q belongs to pool %q and to pool %q; a name leads to one pool", n, other.Model, p.Model))
			}
			byName[n] = p
		}
	}
	return byName, errors.Join(bad...)
}

func checkLimits(o Options) error {
	l := o.Limits
	switch {
	case l.MaxBodyBytes < 0 || l.MaxBufferedBytes < 0 || l.MaxAheadBytes < 0 || l.BodyTimeout < 0 || l.HelperConcurrency < 0 || o.KeepAliveComment < 0:
		return errors.New("limits and the keep-alive interval must not be negative")
	case l.MaxBufferedBytes < l.MaxBodyBytes:
		return fmt.Errorf("max buffered bytes %d must be at least max body bytes %d, or the largest body could never be read",
			l.MaxBufferedBytes, l.MaxBodyBytes)
	case o.ModelNameInResponse != ModelAsked && o.ModelNameInResponse != ModelEngine:
		return fmt.Errorf("model name in response must be %q or %q, not %q", ModelAsked, ModelEngine, o.ModelNameInResponse)
	}
	return nil
}

func checkClasses(o Options) error {
	var bad []error
	if _, ok := o.Classes[o.DefaultClass]; !ok {
		bad = append(bad, fmt.Errorf("the default class %q is not among the classes", o.DefaultClass))
	}
	for _, k := range o.Keys.List() {
		if _, ok := o.Classes[k.Class]; !ok && k.Class != "" {
			bad = append(bad, fmt.Errorf("key %q: its class %q is not among the classes", k.ID, k.Class))
		}
	}
	return errors.Join(bad...)
}

func checkStatuses(o Options) error {
	var bad []error
	for c, status := range o.StatusOverrides {
		if e, ok := reason.Lookup(c); !ok || e.Status == 0 {
			bad = append(bad, fmt.Errorf("status override: %q is not a refusal reason; docs/reasons.md lists them", c))
		}
		if status < 400 || status > 599 {
			bad = append(bad, fmt.Errorf("status override for %q: %d is not a status from 400 to 599", c, status))
		}
	}
	return errors.Join(bad...)
}

func (s *Server) now() time.Time { return s.o.Clock() }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := s.now()
	a, ok := s.arrivals.Get().(*arrival)
	if !ok {
		a = &arrival{}
	}
	a.s, a.writer.ResponseWriter, a.r, a.id, a.began, a.decideAt = s, w, r, s.o.NewID(), now, now
	a.w = &a.writer
	a.serve()
	*a = arrival{}
	s.arrivals.Put(a)
}

func (a *arrival) serve() {
	defer a.finish()
	// The deadline of the answer before on this connection.
	_ = http.NewResponseController(a.writer.ResponseWriter).SetWriteDeadline(time.Time{})
	a.walk()
}

func randomID() string {
	var b [12]byte
	// crypto/rand.Read never fails: it ends the program instead.
	_, _ = rand.Read(b[:])
	return "req-" + hex.EncodeToString(b[:])
}
