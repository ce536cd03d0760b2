package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
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
	base *http.Transport
	at   atomic.Pointer[target]
}

// newTransport builds the client side of the engine's socket. Engines close idle connections after 5 s, so ours go after
// 3 s: a request must not meet a closing one. There is no limit on the time to the first byte, because SGLang holds the
// headers until the first token; the caller's context is the limit.
func newTransport() *transport {
	t := &transport{}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	t.base = &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if at := t.at.Load(); at != nil && at.network != "" {
				network, address = at.network, at.address
			}
			return dialer.DialContext(ctx, network, address)
		},
		DisableCompression:  true,
		MaxIdleConnsPerHost: 4096,
		IdleConnTimeout:     3 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
	}
	return t
}

// point directs the transport to another engine, nil for none.
func (t *transport) point(at *target) {
	t.at.Store(at)
	t.base.CloseIdleConnections()
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
	return t.base.RoundTrip(at.rewrite(req))
}

func (at *target) rewrite(req *http.Request) *http.Request {
	out := *req
	u := *req.URL
	u.Scheme, u.Host, u.User = at.scheme, at.host, nil
	if at.prefix != "" {
		// A raw path that says no more than the path is ignored by the URL's own encoding.
		u.RawPath = at.rawPrefix + u.EscapedPath()
		u.Path = at.prefix + u.Path
	}
	out.URL = &u
	out.Host = at.host
	if at.network != "" {
		out.Host = "localhost"
	}
	out.Header = req.Header.Clone()
	if out.Header == nil {
		out.Header = http.Header{}
	}
	out.Header.Del("Authorization")
	out.Header.Del("X-Api-Key")
	if at.key != "" {
		out.Header.Set("Authorization", "Bearer "+at.key)
	}
	// Without GetBody the transport below cannot send a body again, whatever the method and headers say.
	out.GetBody = nil
	return &out
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
