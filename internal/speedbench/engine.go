package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// serveEngine is an engine in memory with vLLM's face: just what a relay needs to take it for one.
func serveEngine(ctx context.Context, address string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", answer(`{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm","max_model_len":32768}]}`))
	mux.HandleFunc("GET /version", answer(`{"version":"0.11.0"}`))
	mux.HandleFunc("GET /metrics", answer(metricsPage))
	mux.HandleFunc("POST /v1/completions", answer(smallAnswer))
	mux.HandleFunc("POST /v1/chat/completions", complete)
	return serveHTTP(ctx, address, mux)
}

func serveHTTP(ctx context.Context, address string, h http.Handler) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

const (
	metricsPage = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 1\n" +
		"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"m\"} 0\n" +
		"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{model_name=\"m\"} 0.1\n"
	smallAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":` +
		`{"role":"assistant","content":"hi there"},"logprobs":null,"finish_reason":"stop","stop_reason":null}],` +
		`"usage":{"prompt_tokens":9,"total_tokens":11,"completion_tokens":2}}`
	eventHead = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":` +
		`{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}],"t":`
	lastEvents = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":` +
		`{},"logprobs":null,"finish_reason":"stop","stop_reason":null}]}` + "\n\n"
	usageEvent = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[],` +
		`"usage":{"prompt_tokens":9,"total_tokens":109,"completion_tokens":100}}` + "\n\n"
)

func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = io.WriteString(w, body)
	}
}

// complete answers a chat: at once, as a stream of timed events, or, when the prompt asks to hang, with one event and then
// nothing until the caller leaves; when it asks for a flood, with as much as the caller takes.
func complete(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if !bytes.Contains(body, []byte(`"stream":true`)) {
		answer(smallAnswer)(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s := &stream{w: w, rc: http.NewResponseController(w), done: r.Context().Done()}
	switch {
	case bytes.Contains(body, []byte(hangWord)):
		s.event()
		<-s.done
	case bytes.Contains(body, []byte(floodWord)):
		for s.err == nil {
			s.event()
		}
	default:
		every := spacing
		if bytes.Contains(body, []byte(paceWord)) {
			every = pacedSpacing
		}
		s.timed(every)
		_, _ = io.WriteString(w, lastEvents)
		if bytes.Contains(body, []byte("include_usage")) {
			_, _ = io.WriteString(w, usageEvent)
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}
}

type stream struct {
	w    io.Writer
	rc   *http.ResponseController
	done <-chan struct{}
	buf  []byte
	err  error
}

// event sends one event that says when it was sent.
func (s *stream) event() {
	s.buf = append(s.buf[:0], eventHead...)
	s.buf = strconv.AppendInt(s.buf, time.Now().UnixNano(), 10)
	s.buf = append(s.buf, "}\n\n"...)
	if _, s.err = s.w.Write(s.buf); s.err == nil {
		s.err = s.rc.Flush()
	}
}

func (s *stream) timed(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range eventsPerStream {
		select {
		case <-tick.C:
			s.event()
		case <-s.done:
			return
		}
	}
}
