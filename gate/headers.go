package gate

import (
	"context"
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
// send a request a second time although the engine may have started it. Origin would make the engine answer for other sites.
var ownHeaders = []string{"Expect", "Content-Length", "Idempotency-Key", "X-Idempotency-Key", "X-Request-Id", "Origin"}

// siteHeaders say which web pages may read an answer: that is the gate's to say (cors.origins), and engines invite every page.
var siteHeaders = []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Allow-Methods",
	"Access-Control-Allow-Headers", "Access-Control-Expose-Headers", "Access-Control-Max-Age", "Access-Control-Allow-Private-Network"}

// notUp and notDown hold what is not passed on, by canonical name.
var (
	notUp   = nameSet(hopHeaders, ownHeaders, quota.SecretHeaders())
	notDown = nameSet(hopHeaders, siteHeaders)
)

func nameSet(lists ...[]string) map[string]bool {
	set := map[string]bool{}
	for _, list := range lists {
		for _, name := range list {
			set[http.CanonicalHeaderKey(name)] = true
		}
	}
	return set
}

// upstreamHeader puts into h what the engine gets of the caller's headers. The values are shared with in.
func upstreamHeader(h, in http.Header, id string) http.Header {
	passOn(h, in, notUp)
	// One list for three values: "identity" because the relay reads what passes, "" so that nobody adds a User-Agent.
	own := []string{id, "identity", ""}
	h["X-Request-Id"], h["Accept-Encoding"] = own[0:1:1], own[1:2:2]
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = own[2:3:3]
	}
	return h
}

// passOn copies headers but for those in not, those that the Connection header names, and admitd's own.
func passOn(to, from http.Header, not map[string]bool) {
	for name, values := range from {
		if !not[name] && !admitdName(name) {
			to[name] = values
		}
	}
	for _, line := range from["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			delete(to, http.CanonicalHeaderKey(textproto.TrimString(name)))
		}
	}
}

func admitdName(name string) bool { return len(name) >= 9 && strings.EqualFold(name[:9], "x-admitd-") }

// upstreamRequest is the caller's request as the engine gets it: raw path and query unchanged.
func (a *arrival) upstreamRequest(ctx context.Context, p *payload, h http.Header) *http.Request {
	p.url = url.URL{Scheme: "http", Host: "engine", Path: a.r.URL.Path, RawPath: a.r.URL.RawPath,
		RawQuery: a.r.URL.RawQuery, ForceQuery: a.r.URL.ForceQuery}
	// The copy that this makes is the request.
	req := (&http.Request{}).WithContext(ctx)
	req.Method, req.URL, req.Host, req.Proto, req.ProtoMajor, req.ProtoMinor = a.r.Method, &p.url, "engine", "HTTP/1.1", 1, 1
	req.Header, req.ContentLength = upstreamHeader(h, a.r.Header, a.id), int64(len(p.data))
	if req.ContentLength == 0 {
		p.sent = true
		req.Body = http.NoBody
	} else {
		p.first.p = p
		req.Body = &p.first
		// With GetBody net/http itself takes a fresh connection when a reused one turns out to be dead before a single
		// byte was written to it; in any other case the error comes back to us and nothing is sent again.
		req.GetBody = p.open
	}
	return req
}

// downstreamHeader passes on the engine's response headers. Their Content-Length stays unless the body may change.
func downstreamHeader(to, from http.Header, bodyMayChange bool) {
	passOn(to, from, notDown)
	if bodyMayChange {
		delete(to, "Content-Length")
	}
}

// streamHeader keeps hops between us and the caller from collecting events.
func streamHeader(h http.Header) {
	h.Set("X-Accel-Buffering", "no")
	h.Set("Cache-Control", "no-cache")
}
