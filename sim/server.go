package sim

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"admitd/sim/model"
)

// Server is one simulated engine. It is an http.Handler that serves as soon as it is made; Run adds loading,
// listening and stopping. Close must be called.
type Server struct {
	opt     Options
	cfg     model.Config
	driver  *driver
	faults  *faultSet
	http    httpStats
	started time.Time
	routes  map[string]map[string]http.HandlerFunc
	// draining is set once the stop was asked for; load counts inference requests in progress.
	draining atomic.Bool
	// dead is set when the engine's core has died.
	dead atomic.Bool
	load atomic.Int64
	// probes counts health probes that probe-pileup keeps; lag is what lagging-gauges shows.
	probes   atomic.Int64
	lag      lag
	requests atomic.Uint64

	outMu sync.Mutex
	// frozen is the scrape that frozen-metrics repeats.
	frozenMu sync.Mutex
	frozen   []byte
}

// New makes a simulated engine, or says which option cannot be. It starts one goroutine, which Close ends.
func New(o Options) (*Server, error) {
	o, cfg, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("simulated engine: %w", err)
	}
	faults, err := newFaultSet(o.Faults, o.Dialect)
	if err != nil {
		return nil, fmt.Errorf("simulated engine: %w", err)
	}
	eng, err := model.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("simulated engine: %w", err)
	}
	cfg = eng.Config()
	_, oversized := faults.asked(FaultOversizedHead)
	if have := (cfg.Blocks - 1) * cfg.BlockTokens; cfg.MaxModelLen > have && !oversized {
		return nil, fmt.Errorf("simulated engine: max model length is %d tokens, the KV cache holds %d: "+
			"lower --max-model-len or raise --kv-blocks", cfg.MaxModelLen, have)
	}
	s := &Server{opt: o, cfg: cfg, faults: faults, started: time.Now()}
	s.http.init()
	s.driver = newDriver(eng, faults, o.Speed)
	if o.Dialect == SGLang {
		s.routes = s.sglangRoutes()
	} else {
		s.routes = s.vllmRoutes()
	}
	faults.setReady(time.Now())
	return s, nil
}

// Close ends the simulation; requests still in flight end with an error.
func (s *Server) Close() error {
	s.driver.close()
	return nil
}

// SetFault switches a fault on (at once) or off. An unknown name, or one of the other face, is an error.
func (s *Server) SetFault(name Fault, on bool) error {
	if _, err := newFaultSet([]string{string(name)}, s.opt.Dialect); err != nil {
		return err
	}
	s.frozenMu.Lock()
	s.frozen = nil
	s.frozenMu.Unlock()
	s.faults.set(name, armed{}, on)
	// Wake the owner of the model, which may have to stall or to go on.
	return s.driver.do(func() {})
}

// Stats returns the model's own counters.
func (s *Server) Stats() (model.Stats, error) {
	var st model.Stats
	err := s.driver.do(func() { st = s.driver.stats() })
	return st, err
}

// KVTokens is the size of the KV cache in tokens as the engine states it.
func (s *Server) KVTokens() int { return s.cfg.Blocks * s.cfg.BlockTokens }

func (s *Server) vllmRoutes() map[string]map[string]http.HandlerFunc {
	get := func(h http.HandlerFunc) map[string]http.HandlerFunc { return map[string]http.HandlerFunc{"GET": h} }
	post := func(h http.HandlerFunc) map[string]http.HandlerFunc { return map[string]http.HandlerFunc{"POST": h} }
	r := map[string]map[string]http.HandlerFunc{
		"/health":                   get(s.health),
		"/ping":                     {"GET": s.health, "POST": s.health},
		"/version":                  get(s.version),
		"/load":                     get(s.serverLoad),
		"/metrics":                  get(s.metrics),
		"/v1/models":                get(s.models),
		"/tokenize":                 post(s.tokenize),
		"/detokenize":               post(s.detokenize),
		"/v1/chat/completions":      post(s.inference(kindChat)),
		"/v1/completions":           post(s.inference(kindCompletions)),
		"/v1/messages":              post(s.inference(kindMessages)),
		"/v1/messages/count_tokens": post(s.countTokens),
		"/v1/responses":             post(s.inference(kindResponses)),
	}
	if s.opt.Embeddings {
		r["/v1/embeddings"] = post(s.embeddings)
	}
	return r
}

// ServeHTTP answers one request as the engine would.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	rec := &responseRecorder{ResponseWriter: w}
	rec.Header().Set("Server", "uvicorn")
	handler := "none"
	if s.unblocked(r.Context()) {
		handler = s.serve(rec, r)
	}
	s.http.observe(handler, r, rec, time.Since(began))
	if !s.opt.NoAccessLog {
		from := r.RemoteAddr
		if from == "" || from == "@" {
			from = "unix"
		}
		s.printf("INFO:     %s - \"%s %s HTTP/1.1\" %d %s\n", from, r.Method, r.URL.Path, rec.code(), http.StatusText(rec.code()))
	}
}

// serve routes a request and returns the name under which it is counted.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if s.opt.RequestIDHeaders {
		if id == "" {
			id = s.newID(32)
		}
		w.Header().Set("X-Request-Id", id)
	}
	if s.opt.APIKey != "" && guarded(s.opt.Dialect, r.URL.Path) && r.Header.Get("Authorization") != "Bearer "+s.opt.APIKey {
		s.writeJSON(w, http.StatusUnauthorized, []byte(`{"error":"Unauthorized"}`))
		return r.URL.Path
	}
	w.Header().Set("Vary", "Origin")
	methods, ok := s.routes[r.URL.Path]
	if !ok || s.rustLacks(r.URL.Path) {
		s.writeJSON(w, http.StatusNotFound, []byte(`{"detail":"Not Found"}`))
		return "none"
	}
	h, ok := methods[r.Method]
	if !ok {
		allow := make([]string, 0, len(methods))
		for _, m := range []string{"GET", "POST"} {
			if methods[m] != nil {
				allow = append(allow, m)
			}
		}
		w.Header().Set("Allow", strings.Join(allow, ", "))
		s.writeJSON(w, http.StatusMethodNotAllowed, []byte(`{"detail":"Method Not Allowed"}`))
		return "none"
	}
	h(w, r)
	return r.URL.Path
}

// guarded reports whether a path needs the API key. vLLM guards the versioned API alone; SGLang everything but
// health and metrics.
func guarded(dialect, path string) bool {
	if dialect == SGLang {
		return !strings.HasPrefix(path, "/health") && !strings.HasPrefix(path, "/metrics")
	}
	return strings.HasPrefix(path, "/v1") || strings.HasPrefix(path, "/v2") || strings.HasPrefix(path, "/inference")
}

func (s *Server) writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// A client that has left needs no answer.
	_, _ = w.Write(body)
}

func (s *Server) writeError(w http.ResponseWriter, f family, e *apiError) {
	if s.opt.Dialect == SGLang && f == openAI {
		f = flat
	}
	s.writeJSON(w, e.Status, e.body(f))
}

// newID is a deterministic identifier of n hexadecimal digits.
func (s *Server) newID(n int) string {
	x := s.requests.Add(1) + s.opt.Seed*0x9e3779b97f4a7c15
	return fmt.Sprintf("%016x%016x", scramble(x), scramble(^x))[:n]
}

// printf writes to the engine's log; lines of several goroutines never mix.
func (s *Server) printf(format string, a ...any) {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	// The log is best effort: a full or closed pipe must not stop the engine.
	_, _ = fmt.Fprintf(s.opt.Output, format, a...)
}

// responseRecorder remembers status and size for the log and the counters.
type responseRecorder struct {
	http.ResponseWriter
	status int
	// length is the Content-Length header's value, 0 when there is none.
	length int64
}

func (r *responseRecorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
		_, _ = fmt.Sscan(r.Header().Get("Content-Length"), &r.length)
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *responseRecorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	return r.ResponseWriter.Write(p)
}

func (r *responseRecorder) code() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// Flush sends what is written; Unwrap serves http.ResponseController.
func (r *responseRecorder) Flush() {
	if f, ok := r.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap returns the wrapped writer.
func (r *responseRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

var _ io.Writer = (*responseRecorder)(nil)
