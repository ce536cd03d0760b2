//go:build vllm

package vllm

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// newHop stands between two gates and records what comes back from the engine's side.
func newHop(t *testing.T, upstream string) *hop {
	t.Helper()
	h := &hop{got: map[string]string{}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, upstream+r.URL.RequestURI(), r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		req.Header.Set("Content-Type", r.Header.Get("Content-Type"))
		resp, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		h.record(r.URL.Path, resp.Body, w)
	}))
	t.Cleanup(s.Close)
	h.url = s.URL
	return h
}
