package sim

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// httpStats are the counters of the HTTP layer, in the form of the instrumentation that vLLM uses.
type httpStats struct {
	mu sync.Mutex
	// order keeps the series in the order of their first request.
	requests  ordered[requestKey, float64]
	sizes     ordered[string, *sizes]
	durations ordered[durationKey, *histogram]
	all       *histogram
}

type requestKey struct{ handler, method, status string }

type durationKey struct{ handler, method string }

type sizes struct{ n, in, out float64 }

// ordered is a map that remembers the order of insertion.
type ordered[K comparable, V any] struct {
	keys []K
	m    map[K]V
}

func (o *ordered[K, V]) get(k K, fresh func() V) V {
	if o.m == nil {
		o.m = make(map[K]V)
	}
	v, ok := o.m[k]
	if !ok {
		v = fresh()
		o.m[k] = v
		o.keys = append(o.keys, k)
	}
	return v
}

func (h *httpStats) init() {
	h.all = newHistogram(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60)
}

// observe counts one answered request; the paths of probes and scrapes are left out as the real engine does.
func (h *httpStats) observe(handler string, r *http.Request, rec *responseRecorder, took time.Duration) {
	switch handler {
	case "/metrics", "/health", "/load", "/ping", "/version", "/server_info":
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := requestKey{handler, r.Method, strconv.Itoa(rec.code()/100) + "xx"}
	h.requests.get(key, func() float64 { return 0 })
	h.requests.m[key]++
	z := h.sizes.get(handler, func() *sizes { return &sizes{} })
	z.n++
	z.in += float64(max(r.ContentLength, 0))
	z.out += float64(rec.length)
	h.all.observe(took.Seconds())
	h.durations.get(durationKey{handler, r.Method}, func() *histogram { return newHistogram(0.1, 0.5, 1) }).observe(took.Seconds())
}

func (h *httpStats) write(x *exposition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var requests, in []row
	for _, k := range h.requests.keys {
		requests = append(requests, row{[]string{"handler", k.handler, "method", k.method, "status", k.status}, h.requests.m[k]})
	}
	x.counter("http_requests", "Requests by method, status class and handler.", requests...)
	for _, side := range []struct {
		name, help string
		v          func(*sizes) float64
	}{
		{"http_request_size_bytes", "Content length of requests by handler.", func(z *sizes) float64 { return z.in }},
		{"http_response_size_bytes", "Content length of answers by handler.", func(z *sizes) float64 { return z.out }},
	} {
		x.head(side.name, "summary", side.help)
		in = in[:0]
		for _, k := range h.sizes.keys {
			labels := []string{"handler", k}
			x.sample(side.name+"_count", labels, h.sizes.m[k].n)
			x.sample(side.name+"_sum", labels, side.v(h.sizes.m[k]))
			in = append(in, row{labels: labels})
		}
		x.createdRows(side.name, side.help, in)
	}
	x.histogram("http_request_duration_highr_seconds", "Duration of all requests in many buckets.", nil, h.all)
	x.head("http_request_duration_seconds", "histogram", "Duration of requests by handler.")
	var rows []row
	for _, k := range h.durations.keys {
		labels := []string{"handler", k.handler, "method", k.method}
		x.buckets("http_request_duration_seconds", labels, h.durations.m[k])
		rows = append(rows, row{labels: labels})
	}
	x.createdRows("http_request_duration_seconds", "Duration of requests by handler.", rows)
}
