package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"admitd/gate/wire"
)

// ErrNoEngine is what the transport answers while no engine is launched.
var ErrNoEngine = errors.New("no engine is running")

// target is where the engine listens now.
type target struct {
	// network and address are for dialling a launched engine; empty for External.
	network, address string
	// scheme, host and prefix make the URL of a request. The host of a launched engine differs from launch to launch, so
	// that a connection to a dead engine is never taken for one to its successor.
	scheme, host string
	// prefix goes before the path; rawPrefix is its escaped form.
	prefix, rawPrefix string
	// key is the engine's own key, "" for none.
	key string
}

// transport sends requests to the current target. It never tries a request twice.
type transport struct {
	// plain is for http, which all engines of ours speak; secure is for an external engine behind https.
	plain  *wire.Client
	secure *http.Transport
	at     atomic.Pointer[target]
}

const (
	engineDialTimeout = 5 * time.Second
	engineIdle        = 3 * time.Second
	engineMaxIdle     = 4096
)

// newTransport builds the client side of the engine's socket. Engines close idle connections after 5 s, so ours go after
// 3 s: a request must not meet a closing one. There is no limit on the time to the first byte, because SGLang holds the
// headers until the first token; the caller's context is the limit.
func newTransport() *transport {
	t := &transport{}
	dialer := &net.Dialer{Timeout: engineDialTimeout}
	t.plain = &wire.Client{
		Dial: func(ctx context.Context, host string) (net.Conn, error) {
			if at := t.at.Load(); at != nil && at.network != "" {
				return dialer.DialContext(ctx, at.network, at.address)
			}
			return dialer.DialContext(ctx, "tcp", withPort(host, "80"))
		},
		IdleTimeout: engineIdle, MaxIdle: engineMaxIdle,
	}
	t.secure = &http.Transport{
		DialContext: dialer.DialContext, DisableCompression: true, MaxIdleConnsPerHost: engineMaxIdle,
		IdleConnTimeout: engineIdle, TLSHandshakeTimeout: 10 * time.Second,
	}
	return t
}

// withPort adds the port to a URL's host that names none.
func withPort(host, port string) string {
	u := url.URL{Host: host}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), port)
	}
	return host
}

// point directs the transport to another engine, nil for none.
func (t *transport) point(at *target) {
	t.at.Store(at)
	t.plain.CloseIdleConnections()
	t.secure.CloseIdleConnections()
}

// RoundTrip implements http.RoundTripper. The caller's own credentials never reach the engine.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	at := t.at.Load()
	if at == nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, ErrNoEngine
	}
	out := at.rewrite(req)
	if out.URL.Scheme == "http" {
		return t.plain.RoundTrip(out)
	}
	return t.secure.RoundTrip(out)
}

// addressed is a request and its URL, in one piece.
type addressed struct {
	http.Request
	url url.URL
}

func (at *target) rewrite(req *http.Request) *http.Request {
	both := &addressed{Request: *req, url: *req.URL}
	out, u := &both.Request, &both.url
	u.Scheme, u.Host, u.User = at.scheme, at.host, nil
	if at.prefix != "" {
		// A raw path that says no more than the path is ignored by the URL's own encoding.
		u.RawPath = at.rawPrefix + u.EscapedPath()
		u.Path = at.prefix + u.Path
	}
	out.URL = u
	out.Host = at.host
	if at.network != "" {
		out.Host = "localhost"
	}
	if at.key != "" || out.Header == nil || out.Header["Authorization"] != nil || out.Header["X-Api-Key"] != nil {
		out.Header = at.header(req.Header)
	}
	// Without GetBody the transport below cannot send a body again, whatever the method and headers say.
	out.GetBody = nil
	return out
}

// header is in with the engine's key in place of the caller's. The values are shared, and nobody changes them.
func (at *target) header(in http.Header) http.Header {
	h := maps.Clone(in)
	if h == nil {
		h = http.Header{}
	}
	h.Del("Authorization")
	h.Del("X-Api-Key")
	if at.key != "" {
		h["Authorization"] = []string{"Bearer " + at.key}
	}
	return h
}

// externalTarget is the target of an engine at a URL.
func externalTarget(raw, key string) (*target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("engine url: %w", err)
	}
	return &target{
		scheme: u.Scheme, host: u.Host, key: key,
		prefix: strings.TrimSuffix(u.Path, "/"), rawPrefix: strings.TrimSuffix(u.EscapedPath(), "/"),
	}, nil
}
