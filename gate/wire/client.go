package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"syscall"
)

const (
	// DefaultIdleTimeout is how long an unused connection to the engine is kept when Client does not say.
	DefaultIdleTimeout = 3 * time.Second
	// DefaultMaxIdle is how many unused connections to one host are kept when Client does not say.
	DefaultMaxIdle = 4096
)

// Client is an http.RoundTripper for plain http URLs. It never sends a request again once a byte of it was written: a
// kept connection that turns out to be closed before that is replaced by another, any other failure is the caller's to
// judge. There is no limit on the time to a response's head but the request's context.
//
// A response's body implements ResponseBody. It is read in the goroutine that calls Read; when the request's context ends,
// the connection is closed and Read fails with the context's error. The zero value is ready to use.
type Client struct {
	// Dial opens a connection, a plain TCP or unix socket, for a URL's host (host:port as written). nil dials TCP.
	Dial func(ctx context.Context, host string) (net.Conn, error)
	// IdleTimeout is how long an unused connection is kept; 0 means DefaultIdleTimeout.
	IdleTimeout time.Duration
	// MaxIdle is how many unused connections to one host are kept; 0 means DefaultMaxIdle.
	MaxIdle int
	// MaxHeaderBytes is the largest head of a response, in bytes; 0 means DefaultMaxHeaderBytes.
	MaxHeaderBytes int

	bufs buffers

	mu    sync.Mutex
	idle  map[string][]*engineConn
	sweep *time.Timer
}

// engineConn is one connection to the engine.
type engineConn struct {
	sock
	host string
	// reused: it has served a request before. since is when it became idle.
	reused bool
	since  time.Time
	// peekFn looks whether an idle connection is still open.
	peekFn func(fd uintptr)
	open   bool
}

// peek is true when nothing has come and the other side has not ended: all else means that it cannot be used.
func (e *engineConn) peek(fd uintptr) {
	var b [1]byte
	_, err := readNow(int(fd), b[:])
	e.open = errors.Is(err, syscall.EAGAIN)
}

func (e *engineConn) alive() bool {
	e.open = false
	_ = e.raw.Control(e.peekFn)
	return e.open
}

func (e *engineConn) close() {
	e.release()
	_ = e.nc.Close()
}

func (c *Client) idleTimeout() time.Duration {
	if c.IdleTimeout <= 0 {
		return DefaultIdleTimeout
	}
	return c.IdleTimeout
}

// take returns an idle connection that is still open, or a new one.
func (c *Client) take(ctx context.Context, host string) (*engineConn, error) {
	for {
		e := c.pop(host)
		if e == nil {
			return c.dial(ctx, host)
		}
		if time.Since(e.since) < c.idleTimeout() && e.alive() {
			return e, nil
		}
		e.close()
	}
}

func (c *Client) pop(host string) *engineConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.idle[host]
	if len(l) == 0 {
		return nil
	}
	e := l[len(l)-1]
	l[len(l)-1] = nil
	c.idle[host] = l[:len(l)-1]
	return e
}

func (c *Client) dial(ctx context.Context, host string) (*engineConn, error) {
	dial := c.Dial
	if dial == nil {
		dial = func(ctx context.Context, host string) (net.Conn, error) {
			if _, _, err := net.SplitHostPort(host); err != nil {
				host = net.JoinHostPort(host, "80")
			}
			return new(net.Dialer).DialContext(ctx, "tcp", host)
		}
	}
	nc, err := dial(ctx, host)
	if err != nil {
		return nil, err
	}
	e := &engineConn{host: host}
	if err := e.init(nc, &c.bufs); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("connection to %s: %w", host, err)
	}
	e.peekFn = e.peek
	return e, nil
}

// give keeps a connection for the next request.
func (c *Client) give(e *engineConn) {
	limit := c.MaxIdle
	if limit <= 0 {
		limit = DefaultMaxIdle
	}
	e.reused, e.since = true, time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle[e.host]) >= limit {
		e.close()
		return
	}
	if c.idle == nil {
		c.idle = map[string][]*engineConn{}
	}
	c.idle[e.host] = append(c.idle[e.host], e)
	if c.sweep == nil {
		c.sweep = time.AfterFunc(c.idleTimeout(), c.sweepIdle)
	}
}

// sweepIdle closes what was idle for too long, and comes again while something is left.
func (c *Client) sweepIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sweep == nil {
		return
	}
	limit, oldest := c.idleTimeout(), time.Duration(-1)
	for host, l := range c.idle {
		kept := l[:0]
		for _, e := range l {
			if age := time.Since(e.since); age < limit {
				kept = append(kept, e)
				oldest = max(oldest, age)
				continue
			}
			e.close()
		}
		clear(l[len(kept):])
		if c.idle[host] = kept; len(kept) == 0 {
			delete(c.idle, host)
		}
	}
	if oldest < 0 {
		c.sweep = nil
		return
	}
	c.sweep.Reset(limit - oldest)
}

// CloseIdleConnections closes what is not in use now.
func (c *Client) CloseIdleConnections() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.idle {
		for _, e := range l {
			e.close()
		}
	}
	c.idle = nil
	if c.sweep != nil {
		c.sweep.Stop()
		c.sweep = nil
	}
}

// RoundTrip implements http.RoundTripper.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	x := &exchange{c: c, ctx: ctx}
	u := &x.u
	u.init(c, req)
	if err := u.begin(); err != nil {
		u.end()
		return nil, err
	}
	for {
		if err := ctx.Err(); err != nil {
			u.end()
			return nil, err
		}
		e, err := c.take(ctx, req.URL.Host)
		if err != nil {
			u.end()
			return nil, err
		}
		x.start(e)
		wrote, err := u.send(e)
		if err != nil && !wrote && e.reused && ctx.Err() == nil {
			// Closed by the other side while it was idle, and nothing was sent on it.
			x.shut()
			continue
		}
		resp, err := x.receive(req, err)
		if err != nil {
			x.shut()
			return nil, err
		}
		return resp, nil
	}
}
