package sim

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tidwall/gjson"

	"admitd/sim/model"
)

// How SGLang's /health probes its own engine, in simulated time: it looks once a second, for at most twenty.
const (
	healthPoll  = time.Second
	healthLimit = 20 * time.Second
)

func (s *Server) sglangRoutes() map[string]map[string]http.HandlerFunc {
	get := func(h http.HandlerFunc) map[string]http.HandlerFunc { return map[string]http.HandlerFunc{"GET": h} }
	post := func(h http.HandlerFunc) map[string]http.HandlerFunc { return map[string]http.HandlerFunc{"POST": h} }
	both := func(h http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{"GET": h, "POST": h}
	}
	return map[string]map[string]http.HandlerFunc{
		"/health":              get(s.generateHealth),
		"/health_generate":     get(s.generateHealth),
		"/ping":                get(s.generateHealth),
		"/metrics":             get(s.sglangMetrics),
		"/v1/models":           get(s.models),
		"/v1/loads":            get(s.loads),
		"/server_info":         get(s.serverInfo),
		"/get_server_info":     get(s.serverInfo),
		"/model_info":          get(s.modelInfo),
		"/abort_request":       post(s.abortRequest),
		"/flush_cache":         both(s.flushCache),
		"/tokenize":            post(s.tokenize),
		"/v1/chat/completions": post(s.inference(kindChat)),
		"/v1/completions":      post(s.inference(kindCompletions)),
		"/v1/embeddings":       post(s.embeddings),
	}
}

// generateHealth asks the engine for one token and waits until any token at all comes out.
func (s *Server) generateHealth(w http.ResponseWriter, r *http.Request) {
	status := http.StatusOK
	ok, played := s.ails(r.Context())
	if !played {
		ok = s.generatesSomething(r.Context())
	}
	if !ok {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
}

func (s *Server) generatesSomething(ctx context.Context) bool {
	if s.draining.Load() || s.dead.Load() {
		return false
	}
	before, err := s.Stats()
	if err != nil {
		return false
	}
	probe := model.Request{PromptTokens: 1, MaxTokens: 1}
	// A full queue does not matter: the probe then rests on the tokens of the others.
	calls, _ := s.driver.submit([]model.Request{probe}, "", params{n: 1, maxTokens: 1})
	defer s.driver.cancel(calls)
	for range int(healthLimit / healthPoll) {
		if wait(ctx, s.driver.real(healthPoll)) != nil {
			return false
		}
		now, err := s.Stats()
		if err != nil {
			return false
		}
		if now.GeneratedTokens > before.GeneratedTokens {
			return true
		}
	}
	return false
}

// load is one rank's load as SGLang reports it.
type load struct {
	Rank           int     `json:"dp_rank"`
	Running        int     `json:"num_running_reqs"`
	Waiting        int     `json:"num_waiting_reqs"`
	Total          int     `json:"num_total_reqs"`
	Used           int     `json:"num_used_tokens"`
	Capacity       int     `json:"max_total_num_tokens"`
	Usage          float64 `json:"token_usage"`
	Throughput     float64 `json:"gen_throughput"`
	HitRate        float64 `json:"cache_hit_rate"`
	Utilization    float64 `json:"utilization"`
	MaxRunningReqs int     `json:"max_running_requests"`
}

type totalLoad struct {
	Running int     `json:"total_running_reqs"`
	Waiting int     `json:"total_waiting_reqs"`
	Total   int     `json:"total_reqs"`
	Usage   float64 `json:"avg_token_usage"`
}

// loads is the live view, unlike the gauges of /metrics.
func (s *Server) loads(w http.ResponseWriter, r *http.Request) {
	c, err := s.scrape()
	if err != nil {
		s.writeError(w, openAI, &apiError{Status: 500, Type: "InternalServerError", Message: err.Error()})
		return
	}
	st := c.stats
	waiting := st.Waiting + st.Arriving
	l := load{
		Running: st.Running, Waiting: waiting, Total: st.Running + waiting, Used: st.Used * s.cfg.BlockTokens, Capacity: s.KVTokens(),
		Usage: st.KVUsage(), HitRate: c.lastHit, MaxRunningReqs: s.cfg.MaxSeqs, Utilization: float64(st.Running) / float64(s.cfg.MaxSeqs),
	}
	if r.URL.Query().Get("format") == "prometheus" {
		x := &exposition{}
		for _, g := range []struct {
			name string
			v    float64
		}{
			{"sglang_num_running_reqs", float64(l.Running)}, {"sglang_num_waiting_reqs", float64(l.Waiting)},
			{"sglang_num_used_tokens", float64(l.Used)}, {"sglang_max_total_num_tokens", float64(l.Capacity)}, {"sglang_token_usage", l.Usage},
		} {
			x.gauge(g.name, "Load of one rank.", row{[]string{"dp_rank", "0"}, g.v})
		}
		w.Header().Set("Content-Type", sglangText)
		_, _ = w.Write(x.buf.Bytes())
		return
	}
	s.writeJSON(w, http.StatusOK, encode(struct {
		Timestamp string    `json:"timestamp"`
		Version   string    `json:"version"`
		Ranks     int       `json:"dp_rank_count"`
		Loads     []load    `json:"loads"`
		Aggregate totalLoad `json:"aggregate"`
	}{time.Now().UTC().Format(time.RFC3339Nano), sglangVersion, 1, []load{l}, totalLoad{l.Running, l.Waiting, l.Total, l.Usage}}))
}

func (s *Server) serverInfo(w http.ResponseWriter, _ *http.Request) {
	s.writeJSON(w, http.StatusOK, encode(struct {
		ModelPath   string `json:"model_path"`
		ServedName  string `json:"served_model_name"`
		Capacity    int    `json:"max_total_num_tokens"`
		MaxRunning  int    `json:"max_running_requests"`
		PageSize    int    `json:"page_size"`
		ContextLen  int    `json:"context_length"`
		Chunk       int    `json:"chunked_prefill_size"`
		Version     string `json:"version"`
		IsSimulated bool   `json:"simulated"`
	}{s.opt.Model, s.opt.ServedNames[0], s.KVTokens(), s.cfg.MaxSeqs, s.cfg.BlockTokens, s.cfg.MaxModelLen, s.cfg.MaxBatchedTokens, sglangVersion, true}))
}

func (s *Server) modelInfo(w http.ResponseWriter, _ *http.Request) {
	s.writeJSON(w, http.StatusOK, encode(struct {
		ModelPath     string `json:"model_path"`
		TokenizerPath string `json:"tokenizer_path"`
		IsGeneration  bool   `json:"is_generation"`
	}{s.opt.Model, s.opt.Model, true}))
}

// abortRequest ends every request whose rid begins with the one given, or all of them.
func (s *Server) abortRequest(w http.ResponseWriter, r *http.Request) {
	body, bad := s.readBody(w, r)
	if bad != nil {
		s.writeError(w, openAI, bad)
		return
	}
	b := gjson.ParseBytes(body)
	rid, all := b.Get("rid").String(), b.Get("abort_all").Bool()
	if rid == "" && !all {
		s.writeError(w, openAI, badRequest("rid", "rid is empty: name a request or set abort_all"))
		return
	}
	// A closed engine has nothing left to abort.
	_ = s.driver.do(func() { s.driver.abort(rid) })
	w.WriteHeader(http.StatusOK)
}

func (s *Server) flushCache(w http.ResponseWriter, _ *http.Request) {
	busy := false
	err := s.driver.do(func() {
		busy = s.driver.engine.InFlight() > 0
		if !busy {
			s.driver.engine.DropPrefixCache()
		}
	})
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil || busy {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintln(w, "Flush cache failed. There are running or waiting requests.")
		return
	}
	_, _ = fmt.Fprintln(w, "Cache flushed.")
}
