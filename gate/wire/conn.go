package wire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
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
	// began is when it was taken.
	began time.Time
	// scanned is how many buffered bytes were searched for the end of a head.
	scanned int
	// served tells that a request was read before.
	served bool

	mu sync.Mutex
	// under is the context of the request under way. gone: the caller has ended its side. killed: Close was called.
	under        *Context
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
	c.gone = true
	c.mu.Unlock()
	c.giveUp()
}

// giveUp ends the context of the request under way.
func (c *conn) giveUp() {
	c.mu.Lock()
	under := c.under
	c.mu.Unlock()
	if under != nil {
		under.Cancel()
	}
}

// hurry ends a connection that waits for a request.
func (c *conn) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting {
		c.cutWait()
		c.tell(&c.read)
	}
}

// cutWait ends the wait for a request once nobody is served any more. A caller that has just connected sends a request
// any moment: it is waited for a little longer. The lock is held.
func (c *conn) cutWait() {
	end := c.began.Add(spareFor)
	if c.served || !time.Now().Before(end) {
		end = past()
	}
	if c.read.want.IsZero() || c.read.want.After(end) {
		c.read.want = end
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
		text, p, err := c.readHead()
		if err != nil {
			return
		}
		var w *response
		if p == nil {
			w = c.s.response(c)
			p = w.req.parse(text)
		}
		if p != nil {
			c.refuse(p, text)
			return
		}
		keep = c.answer(w)
	}
}

// readHead waits for a request and reads its head. The error says only that there is none.
func (c *conn) readHead() (text string, p *Problem, err error) {
	var patience, limit time.Time
	for late := false; ; {
		c.skipEmptyLines()
		if c.r == c.w {
			// Empty lines alone are no request.
			if err := c.awaitRequest(&patience); err != nil {
				return "", nil, err
			}
			limit = time.Time{}
			continue
		}
		n, p := headEnd(c.buffered(), c.scanned)
		c.scanned = c.w - c.r
		switch {
		case p != nil:
			return "", p, nil
		case n > c.s.maxHead(), n == 0 && c.scanned > c.s.maxHead():
			return "", problem(http.StatusRequestHeaderFieldsTooLarge, "head_too_large", "The request's head is too large; send fewer or shorter fields."), nil
		case n > 0:
			text := string(c.buffered()[:n])
			c.consume(n)
			c.scanned, c.served = 0, true
			return text, nil, nil
		case c.scanned > 0 && !isToken(c.in[c.r]) && string(c.buffered()) != "\r":
			return "", bad("bad_method", "This is no HTTP/1.1 request: it must begin with a method. TLS is spoken on another port, if at all."), nil
		case late:
			return "", problem(http.StatusRequestTimeout, "slow_head", "The request's head did not arrive in time; send it at once."), nil
		}
		if limit.IsZero() && c.s.ReadHeaderTimeout > 0 && c.served {
			limit = time.Now().Add(c.s.ReadHeaderTimeout)
			c.setLimit(&c.read, limit)
		}
		c.enter(&c.read)
		err := c.fill()
		c.exit(&c.read)
		if late = errors.Is(err, os.ErrDeadlineExceeded) && c.r < c.w; err != nil && !late {
			return "", nil, err
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

// awaitRequest waits for the first byte of a request, with no buffer held. until is when that ends, kept from one call
// to the next while there is no request.
func (c *conn) awaitRequest(until *time.Time) error {
	patience := c.s.IdleTimeout
	if !c.served {
		patience = c.s.ReadHeaderTimeout
	}
	if patience > 0 && until.IsZero() {
		*until = time.Now().Add(patience)
	}
	c.release()
	c.mu.Lock()
	c.waiting, c.read.busy, c.read.want = true, true, *until
	if c.s.closing.Load() {
		c.cutWait()
	}
	// A deadline that is nearly the right one is right enough: moving it costs more than a small request's parsing.
	if d := c.read.want.Sub(c.read.told); c.read.told.IsZero() || c.read.want.IsZero() || d < 0 || d > patience/16 {
		c.tell(&c.read)
	}
	c.mu.Unlock()
	err := c.fill()
	c.mu.Lock()
	c.waiting, c.read.busy = false, false
	c.read.want = time.Time{}
	if !c.served {
		// On a new connection the head's time runs from the start.
		c.read.want = *until
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
	c.setLimit(&c.read, time.Now().Add(refuseWithin))
	c.enter(&c.read)
	defer c.exit(&c.read)
	return c.fill() == nil
}

// answer has the handler answer a request, and reports whether the connection can take the next one.
func (c *conn) answer(w *response) (keep bool) {
	h := &w.req
	w.minor, w.head, w.close = h.minor, h.method == http.MethodHead, h.close
	w.body.w, w.body.left, w.body.chunked = w, h.length, h.chunked
	ctx := NewContext(c.ctx)
	defer ctx.Cancel()
	r := (&http.Request{}).WithContext(ctx)
	r.Method, r.URL, r.Proto, r.ProtoMajor, r.ProtoMinor, r.Header = h.method, &h.url, "HTTP/1.1", 1, h.minor, h.header
	r.Host, r.ContentLength, r.RemoteAddr, r.RequestURI, r.Body, r.Close = h.host, h.length, c.remote, h.target, http.NoBody, h.close
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
	c.mu.Lock()
	c.under = ctx
	c.read.want, c.write.want = time.Time{}, time.Time{}
	gone := c.gone
	c.mu.Unlock()
	if gone {
		ctx.Cancel()
	}
	whole := c.call(w, r)
	c.mu.Lock()
	c.under = nil
	c.mu.Unlock()
	if !whole {
		w.abandon()
		return false
	}
	keep = w.finish()
	c.s.done(w)
	return keep
}

// call runs the handler; false means that it gave the answer up.
func (c *conn) call(w http.ResponseWriter, r *http.Request) (whole bool) {
	defer c.caught()
	c.s.Handler.ServeHTTP(w, r)
	return true
}

// caught ends a panic. The value of one may hold anything, so only its place is told.
func (c *conn) caught() {
	caught := recover()
	if err, ok := caught.(error); caught != nil && (!ok || !errors.Is(err, http.ErrAbortHandler)) {
		c.s.logger().Error("panic in a handler", "stack", string(debug.Stack()))
	}
}

// linger ends a connection after an answer. What the caller still sends is read for a while, because a socket that has
// unread bytes when it is closed, or gets more, takes back what the caller has not read of the answer (RFC 9112 section
// 9.6). It is over when the caller ends its side, or has the answer and time to see that it was the last.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.release()
	p := c.bufs.get()
	defer c.bufs.put(p)
	for end := time.Now().Add(lingerMost); c.discard(p); {
		unsent, err := c.ioctlInt(unix.TIOCOUTQ)
		if err != nil || unsent == 0 || c.s.closing.Load() || !time.Now().Before(end) {
			return
		}
	}
}

// discard reads for lingerFor, and reports whether the caller has still not ended its side.
func (c *conn) discard(p []byte) bool {
	c.setLimit(&c.read, time.Now().Add(lingerFor))
	c.enter(&c.read)
	defer c.exit(&c.read)
	for {
		if _, err := c.nc.Read(p); err != nil {
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}

// refuse answers a request that no handler can see. text is its head if it was read whole.
func (c *conn) refuse(p *Problem, text string) {
	p.Remote = c.remote
	if text == "" {
		text = string(c.buffered()[:min(len(c.buffered()), len("HEAD "))])
	}
	w := &response{c: c, close: true, head: strings.HasPrefix(text, "HEAD "), minor: 1, header: http.Header{}}
	w.body.w, w.body.done = w, true
	c.setLimit(&c.write, time.Now().Add(refuseWithin))
	answer := c.s.BadRequest
	if answer == nil {
		answer = plainRefusal
	}
	if c.told(answer, w, p) {
		w.finish()
	}
}

func (c *conn) told(answer func(http.ResponseWriter, *Problem), w http.ResponseWriter, p *Problem) (whole bool) {
	defer c.caught()
	answer(w, p)
	return true
}

func plainRefusal(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.Status)
	_, _ = io.WriteString(w, `{"error":{"message":"`+p.Message+`","type":"invalid_request_error","code":"`+p.Code+`"}}`)
}
