package gate

import (
	"context"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"admitd/gate/quota"
)

// hopHeaders belong to one connection and are never passed on, in either direction (RFC 9110 section 7.6.1).
var hopHeaders = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings"}

// ownHeaders never reach the engine besides: net/http sets the first ones, and the Idempotency ones would let it
// send a request a second time although the engine may have started it.
var ownHeaders = []string{"Expect", "Content-Length", "Idempotency-Key", "X-Idempotency-Key", "X-Request-Id"}

// upstreamHeader is what the engine gets of the caller's headers.
func upstreamHeader(in http.Header, id string) http.Header {
	h := in.Clone()
	dropHop(h)
	for _, name := range ownHeaders {
		h.Del(name)
	}
	for _, name := range quota.SecretHeaders() {
		h.Del(name)
	}
	dropAdmitd(h)
	h.Set("X-Request-Id", id)
	// The relay reads what passes, so it must not be compressed.
	h.Set("Accept-Encoding", "identity")
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""}
	}
	return h
}

func dropHop(h http.Header) {
	for _, line := range h.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopHeaders {
		h.Del(name)
	}
}

func dropAdmitd(h http.Header) {
	for name := range h {
		if len(name) >= 9 && strings.EqualFold(name[:9], "x-admitd-") {
			delete(h, name)
		}
	}
}

// upstreamRequest is the caller's request as the engine gets it: raw path and query unchanged.
func (a *arrival) upstreamRequest(ctx context.Context, p *payload) *http.Request {
	u := &url.URL{Scheme: "http", Host: "engine", Path: a.r.URL.Path, RawPath: a.r.URL.RawPath,
		RawQuery: a.r.URL.RawQuery, ForceQuery: a.r.URL.ForceQuery}
	req := &http.Request{Method: a.r.Method, URL: u, Host: "engine", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: upstreamHeader(a.r.Header, a.id), ContentLength: int64(len(p.data))}
	if req.ContentLength == 0 {
		p.sent = true
		req.Body = http.NoBody
	} else {
		req.Body, _ = p.open()
		// With GetBody net/http itself takes a fresh connection when a reused one turns out to be dead before a single
		// byte was written to it; in any other case the error comes back to us and nothing is sent again.
		req.GetBody = p.open
	}
	return req.WithContext(ctx)
}

// downstreamHeader copies the engine's response headers. Their Content-Length stays unless the body may change.
func downstreamHeader(to, from http.Header, bodyMayChange bool) {
	from = from.Clone()
	dropHop(from)
	dropAdmitd(from)
	if bodyMayChange {
		from.Del("Content-Length")
	}
	maps.Copy(to, from)
}

// streamHeader keeps hops between us and the caller from collecting events.
func streamHeader(h http.Header) {
	h.Set("X-Accel-Buffering", "no")
	h.Set("Cache-Control", "no-cache")
}
