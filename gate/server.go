package gate

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
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

// OpenPath opens a path that is blocked by default.
type OpenPath struct {
	Path string
	// Class is dialect.Inference (priced, read as a chat completion unless the table knows the path) or dialect.Helper.
	Class dialect.Class
}

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
	// KeepAliveComment sends SSE comments (Anthropic: ping events) on streams silent for this long; 0 means never.
	KeepAliveComment time.Duration
	OpenPaths        []OpenPath
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
	o Options
}

// New checks the options and returns a Server. It starts nothing.
func New(o Options) (*Server, error) {
	if len(o.Pools) == 0 {
		return nil, errors.New("gate: no pools: give at least one served model")
	}
	return &Server{o: o}, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "not yet", http.StatusServiceUnavailable)
}

func randomID() string {
	var b [12]byte
	// crypto/rand.Read never fails: it ends the program instead.
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("req-%s", hex.EncodeToString(b[:]))
}
