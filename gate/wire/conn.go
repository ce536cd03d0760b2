package wire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// conn is one connection from a caller and the goroutine that serves it.
type conn struct {
	sock
	s      *Server
	ctx    context.Context
	id     uint64
	remote string
	// scanned is how many buffered bytes were searched for the end of a head.
	scanned int
	// served tells that a request was read before.
	served bool

	mu sync.Mutex
	// cancel ends the context of the request under way. gone: the caller has ended its side. killed: Close was called.
	cancel       context.CancelFunc
	gone, killed bool
	// waiting: no byte of a request is here, so that the connection may be closed at any time.
	waiting     bool
	read, write limit
}

// limit is a deadline that is told to the socket only when something is going to wait for it: most reads and writes
// never do.
type limit struct {
	want, told time.Time
	// busy: something waits right now.
	busy bool
}

// past is a deadline that has passed.
func past() time.Time { return time.Unix(1, 0) }

func (c *conn) tell(l *limit) {
	if l.want.Equal(l.told) {
		return
	}
	l.told = l.want
	if l == &c.read {
		_ = c.nc.SetReadDeadline(l.want)
	} else {
		_ = c.nc.SetWriteDeadline(l.want)
	}
}

// setLimit changes a deadline; what waits now feels it.
func (c *conn) setLimit(l *limit, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.want = at; l.busy {
		c.tell(l)
	}
}

// enter is called before something may wait for a limit, exit after it.
func (c *conn) enter(l *limit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.busy = true
	c.tell(l)
}

func (c *conn) exit(l *limit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.busy = false
}

// left is called when the caller has ended its side.
func (c *conn) left() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	if c.cancel != nil {
		c.cancel()
	}
}

// hurry ends a connection that waits for a request.
func (c *conn) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting {
		c.read.want = past()
		c.tell(&c.read)
	}
}

// kill ends the connection and the request under way.
func (c *conn) kill() {
	c.left()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
	_ = c.nc.Close()
}

func (c *conn) serve() {
	defer func() {
		c.release()
		_ = c.nc.Close()
		c.s.drop(c)
	}()
	for keep := true; keep; {
		h, p, err := c.readHead()
		switch {
		case err != nil:
			return
		case p != nil:
			c.refuse(p)
			c.linger()
			return
		}
		keep = c.answer(&h)
	}
}

// readHead waits for a request and reads its head. The error says only that there is none.
func (c *conn) readHead() (h head, p *Problem, err error) {
	if c.r == c.w {
		if err := c.awaitRequest(); err != nil {
			return h, nil, err
		}
	}
	limit := time.Time{}
	for late := false; ; {
		c.skipEmptyLines()
		n, p := headEnd(c.buffered(), c.scanned)
		c.scanned = c.w - c.r
		switch {
		case p != nil:
			return h, p, nil
		case n > c.s.maxHead(), n == 0 && c.scanned > c.s.maxHead():
			return h, problem(http.StatusRequestHeaderFieldsTooLarge, "head_too_large", "The request's head is too large; send fewer or shorter fields."), nil
		case n > 0:
			text := string(c.buffered()[:n])
			c.consume(n)
			c.scanned, c.served = 0, true
			h, p = parseHead(text)
			return h, p, nil
		case c.scanned > 0 && !isToken(c.in[c.r]) && string(c.buffered()) != "\r":
			return h, bad("bad_method", "This is no HTTP/1.1 request: it must begin with a method. TLS is spoken on another port, if at all."), nil
		case late:
			return h, problem(http.StatusRequestTimeout, "slow_head", "The request's head did not arrive in time; send it at once."), nil
		}
		if limit.IsZero() && c.s.ReadHeaderTimeout > 0 && c.served {
			limit = time.Now().Add(c.s.ReadHeaderTimeout)
			c.setLimit(&c.read, limit)
		}
		c.enter(&c.read)
		err := c.fill()
		c.exit(&c.read)
		if late = errors.Is(err, os.ErrDeadlineExceeded) && c.r < c.w; err != nil && !late {
			return h, nil, err
		}
	}
}

// skipEmptyLines drops empty lines before a request line, which some clients send after a body (RFC 9112 section 2.2).
func (c *conn) skipEmptyLines() {
	for {
		b := c.buffered()
		if len(b) < 2 || b[0] != '\r' || b[1] != '\n' {
			return
		}
		c.consume(2)
		c.scanned = 0
	}
}

// awaitRequest waits for the first byte of a request, with no buffer held.
func (c *conn) awaitRequest() error {
	patience := c.s.IdleTimeout
	if !c.served {
		patience = c.s.ReadHeaderTimeout
	}
	c.release()
	c.mu.Lock()
	c.waiting, c.read.busy, c.read.want = true, true, time.Time{}
	if patience > 0 {
		c.read.want = time.Now().Add(patience)
	}
	if c.s.closing.Load() {
		c.read.want = past()
	}
	// A deadline that is nearly the right one is right enough: moving it costs more than a small request's parsing.
	if d := c.read.want.Sub(c.read.told); c.read.told.IsZero() || c.read.want.IsZero() || d < 0 || d > patience/16 {
		c.tell(&c.read)
	}
	c.mu.Unlock()
	err := c.fill()
	c.mu.Lock()
	c.waiting, c.read.busy = false, false
	if c.served {
		// On a new connection the head's time runs from the start.
		c.read.want = time.Time{}
	}
	c.mu.Unlock()
	if err != nil && c.s.closing.Load() && errors.Is(err, os.ErrDeadlineExceeded) && c.arrived() {
		// A request that crossed with the end of waiting is still answered.
		return nil
	}
	return err
}

// arrived reports whether something has come that no deadline keeps from being read.
func (c *conn) arrived() bool {
	n, err := c.ioctlInt(unix.TIOCINQ)
	if err != nil || n == 0 {
		return false
	}
	c.setLimit(&c.read, time.Now().Add(drainWithin))
	c.enter(&c.read)
	defer c.exit(&c.read)
	return c.fill() == nil
}

// answer has the handler answer a request, and reports whether the connection can take the next one.
func (c *conn) answer(h *head) (keep bool) {
	w := &response{c: c, close: h.close, minor: h.minor, head: h.method == http.MethodHead, header: http.Header{}}
	w.body = body{w: w, left: h.length, chunked: h.chunked}
	r := http.Request{Method: h.method, URL: h.url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: h.minor, Header: h.header,
		Host: h.host, ContentLength: h.length, RemoteAddr: c.remote, RequestURI: h.target, Body: http.NoBody, Close: h.close}
	if h.minor == 0 {
		r.Proto = "HTTP/1.0"
	}
	if h.chunked {
		r.TransferEncoding = []string{"chunked"}
	}
	if h.length != 0 {
		r.Body = &w.body
		w.expect.Store(h.expect)
	} else {
		w.body.done = true
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	c.mu.Lock()
	c.cancel = cancel
	c.read.want, c.write.want = time.Time{}, time.Time{}
	if c.gone {
		cancel()
	}
	c.mu.Unlock()
	q := r.WithContext(ctx)
	whole := c.call(func() { c.s.Handler.ServeHTTP(w, q) })
	c.mu.Lock()
	c.cancel = nil
	c.mu.Unlock()
	if !whole {
		w.abandon()
		return false
	}
	return w.finish()
}

// call runs a handler; false means that it gave the answer up.
func (c *conn) call(handler func()) (whole bool) {
	defer func() {
		if caught := recover(); caught != nil {
			if err, ok := caught.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				// The value of a panic may hold anything, so only its place is told.
				c.s.logger().Error("panic in a handler", "stack", string(debug.Stack()))
			}
		}
	}()
	handler()
	return true
}

// linger ends a connection on which the caller may still be sending. What it sends is read for a while, because a
// socket closed with unread bytes takes the answer back from the caller.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.setLimit(&c.read, time.Now().Add(lingerFor))
	c.enter(&c.read)
	defer c.exit(&c.read)
	c.release()
	p := c.bufs.get()
	defer c.bufs.put(p)
	for {
		if _, err := c.nc.Read(p); err != nil {
			return
		}
	}
}

// refuse answers a request that no handler can see.
func (c *conn) refuse(p *Problem) {
	p.Remote = c.remote
	w := &response{c: c, close: true, minor: 1, header: http.Header{}}
	w.body = body{w: w, done: true}
	c.setLimit(&c.write, time.Now().Add(drainWithin))
	answer := c.s.BadRequest
	if answer == nil {
		answer = plainRefusal
	}
	if c.call(func() { answer(w, p) }) {
		w.finish()
	}
}

func plainRefusal(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.Status)
	_, _ = io.WriteString(w, `{"error":{"message":"`+p.Message+`","type":"invalid_request_error","code":"`+p.Code+`"}}`)
}
