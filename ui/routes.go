package ui

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// access says what a route asks of its caller.
type access int

const (
	// open routes hold nothing secret: probes and the page itself.
	open access = iota
	// read routes need the token off loopback.
	read
	// write routes always need the token and one of the content types.
	write
)

// route is one line of the admin API's table; docs/openapi.yaml has the same lines.
type route struct {
	method string
	path   string
	access access
	types  []string
	serve  func(*Server, http.ResponseWriter, *http.Request) *problem
}

const (
	typeJSON  = "application/json"
	typeYAML  = "text/yaml"
	typeYAML2 = "application/yaml"
)

func apiRoutes() []route {
	jsonOnly, text := []string{typeJSON}, []string{typeYAML, typeYAML2, typeJSON}
	return []route{
		{"GET", "/healthz", open, nil, (*Server).healthz},
		{"GET", "/readyz", open, nil, (*Server).readyz},
		{"GET", "/metrics", read, nil, (*Server).serveMetrics},
		{"GET", "/api/v1/status", read, nil, (*Server).getStatus},
		{"GET", "/api/v1/signals", read, nil, (*Server).getSignals},
		{"GET", "/api/v1/decisions", read, nil, (*Server).getDecisions},
		{"GET", "/api/v1/decisions/{id}", read, nil, (*Server).getDecision},
		{"GET", "/api/v1/sessions", read, nil, (*Server).getSessions},
		{"GET", "/api/v1/tenants", read, nil, (*Server).getTenants},
		{"GET", "/api/v1/policy", read, nil, (*Server).getPolicy},
		{"PUT", "/api/v1/policy", write, text, (*Server).putPolicy},
		{"POST", "/api/v1/policy/dry-run", write, text, (*Server).dryRun},
		{"POST", "/api/v1/policy/revert", write, jsonOnly, (*Server).revertPolicy},
		{"GET", "/api/v1/policy/history", read, nil, (*Server).policyHistory},
		{"GET", "/api/v1/engine", read, nil, (*Server).getEngine},
		{"POST", "/api/v1/engine/restart", write, jsonOnly, (*Server).restartEngine},
		{"GET", "/api/v1/engine/logs", read, nil, (*Server).engineLogs},
		{"POST", "/api/v1/reload", write, jsonOnly, (*Server).reload},
		{"POST", "/api/v1/upgrade", write, jsonOnly, (*Server).upgrade},
		{"GET", "/api/v1/history", read, nil, (*Server).getHistory},
		{"GET", "/api/v1/frame", read, nil, (*Server).getFrame},
		{"GET", "/api/v1/stream", read, nil, (*Server).stream},
	}
}

// Routes lists the admin API as "METHOD /path", for the test that holds docs/openapi.yaml to it.
func Routes() []string {
	var out []string
	for _, r := range apiRoutes() {
		out = append(out, r.method+" "+r.path)
	}
	return out
}

// maxBody bounds what a write may send, in bytes.
const maxBody = 1 << 20

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	table := apiRoutes()
	for _, rt := range table {
		mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
			if p := s.admit(w, r, rt); p != nil {
				p.write(w)
				return
			}
			if p := rt.serve(s, w, r); p != nil {
				p.write(w)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if p := s.fallback(w, r, table); p != nil {
			p.write(w)
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secureHeaders(w.Header())
		if p := s.guard.host(r); p != nil {
			p.write(w)
			return
		}
		if p := s.guard.origin(r); p != nil {
			p.write(w)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) admit(w http.ResponseWriter, r *http.Request, rt route) *problem {
	if rt.access == open {
		return nil
	}
	if p := s.guard.authorise(r, rt.access == write); p != nil {
		return p
	}
	if rt.access == write {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		return contentType(r, rt.types...)
	}
	return nil
}

// fallback serves the page, and says what is wrong with a path or method of the API.
func (s *Server) fallback(w http.ResponseWriter, r *http.Request, table []route) *problem {
	var allow []string
	for _, rt := range table {
		if samePath(rt.path, r.URL.Path) {
			allow = append(allow, rt.method)
		}
	}
	switch {
	case len(allow) > 0:
		return newProblem(http.StatusMethodNotAllowed, "method_not_allowed",
			fmt.Sprintf("%s takes %s.", r.URL.Path, strings.Join(allow, " or "))).with("Allow", strings.Join(allow, ", "))
	case strings.HasPrefix(r.URL.Path, "/api/"):
		return newProblem(http.StatusNotFound, "no_such_path", "The admin API has no path "+cutText(r.URL.Path)+".")
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return newProblem(http.StatusMethodNotAllowed, "method_not_allowed", "The page takes GET.").with("Allow", "GET, HEAD")
	}
	s.app.ServeHTTP(w, r)
	return nil
}

// samePath compares a path with a pattern whose segments may be {name}.
func samePath(pattern, path string) bool {
	ps, xs := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(ps) != len(xs) {
		return false
	}
	for i := range ps {
		if ps[i] != xs[i] && (!strings.HasPrefix(ps[i], "{") || xs[i] == "") {
			return false
		}
	}
	return true
}

// pool finds the pool that ?pool= names, the first one without it.
func (s *Server) pool(r *http.Request) (*pool, *problem) {
	name := r.URL.Query().Get("pool")
	if name == "" {
		return s.pools[0], nil
	}
	var known []string
	for _, p := range s.pools {
		if p.b.Model == name {
			return p, nil
		}
		known = append(known, p.b.Model)
	}
	return nil, newProblem(http.StatusNotFound, "no_such_pool",
		fmt.Sprintf("No pool serves %q; there is %s.", cutText(name), strings.Join(known, ", ")))
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) *problem {
	promhttp.HandlerFor(s.o.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
	return nil
}
