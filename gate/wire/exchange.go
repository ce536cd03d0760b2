package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ResponseBody is what the body of a Client's response can do besides.
type ResponseBody interface {
	io.ReadCloser
	// SetReadDeadline ends a Read that waits at a time, with os.ErrDeadlineExceeded; the body can be read on after it.
	// The zero time means that it waits for ever.
	SetReadDeadline(at time.Time) error
}

var (
	errNoAnswer  = errors.New("the engine closed the connection before it answered")
	errUpgraded  = errors.New("the engine switched to another protocol")
	errManyInfos = errors.New("the engine sent too many informational answers")
	errCoding    = errors.New("the engine uses a transfer coding that is not known")
	errClosed    = errors.New("the response's body was closed")
)

// maxInfos is how many informational answers may come before the real one.
const maxInfos = 16

// exchange is one request and its response on a connection to the engine; it is the response's body too.
type exchange struct {
	c    *Client
	e    *engineConn
	u    upload
	resp http.Response
	// room is for the values of the response's fields.
	room [8]string
	ctx  context.Context //nolint:containedctx // the body of a response lives in its request's context
	// unhook takes the connection from the hands of a context that is not ours.
	unhook func() bool
	// over: the connection was given back or closed.
	over atomic.Bool
	// reusable: another request may follow on the connection.
	reusable bool

	mu      sync.Mutex
	framing int
	// left is what is to come of a sized body, in bytes.
	left int64
	dec  chunkDecoder
	err  error
	// timed: the connection has a deadline.
	timed atomic.Bool
}

// start takes a connection, which is closed when the context ends: what waits for it fails.
func (x *exchange) start(e *engineConn) {
	x.e = e
	x.over.Store(false)
	ours, ok := x.ctx.(*Context)
	if !ok {
		x.unhook = context.AfterFunc(x.ctx, func() { _ = e.nc.Close() })
		return
	}
	if !ours.add(x) {
		_ = e.nc.Close()
	}
}

// contextEnded implements ender.
func (x *exchange) contextEnded(error) { _ = x.e.nc.Close() }

// stop takes the connection from the context's hands; false when that has ended.
func (x *exchange) stop() bool {
	if ours, ok := x.ctx.(*Context); ok {
		return ours.remove(x)
	}
	return x.unhook()
}

// shut closes the connection.
func (x *exchange) shut() {
	if x.over.CompareAndSwap(false, true) {
		x.stop()
		x.e.close()
	}
}

// receive waits for the response's head. sendErr is how the sending failed, if it did: an engine that refuses a body may
// close before it has read it, and its answer says more than our error.
func (x *exchange) receive(req *http.Request, sendErr error) (*http.Response, error) {
	if sendErr != nil {
		x.u.end()
		if cause := new(bodyError); errors.As(sendErr, &cause) {
			return nil, sendErr
		}
	}
	resp, err := x.readHead(req)
	switch {
	case err == nil:
		return resp, nil
	case x.ctx.Err() != nil:
		return nil, x.ctx.Err()
	case sendErr != nil:
		return nil, sendErr
	}
	return nil, err
}

func (x *exchange) readHead(req *http.Request) (*http.Response, error) {
	for range maxInfos {
		text, err := x.headText()
		if err != nil {
			return nil, err
		}
		resp := &x.resp
		if err := parseResponse(text, resp, x.room[:]); err != nil {
			return nil, err
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return nil, errUpgraded
		}
		if resp.StatusCode >= 200 {
			resp.Request = req
			return resp, x.begin(resp)
		}
	}
	return nil, errManyInfos
}

func (x *exchange) headText() (string, error) {
	limit := x.c.MaxHeaderBytes
	if limit <= 0 {
		limit = DefaultMaxHeaderBytes
	}
	for scanned := 0; ; {
		b := x.e.buffered()
		n, p := headEnd(b, scanned)
		scanned = len(b)
		switch {
		case p != nil:
			return "", malformed(p.Code)
		case n > limit, n == 0 && len(b) > limit:
			return "", malformed("head too large")
		case n > 0:
			text := string(b[:n])
			x.e.consume(n)
			return text, nil
		}
		if err := x.e.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				return "", fmt.Errorf("%w: %w", errNoAnswer, io.ErrUnexpectedEOF)
			}
			return "", err
		}
	}
}

// malformedError says what is wrong with a response, without quoting any of it.
type malformedError struct{ what string }

// Error implements error.
func (e *malformedError) Error() string { return "malformed response: " + e.what }

func malformed(what string) error { return &malformedError{what} }

// parseResponse parses a whole head into resp. room is where the values of its fields go, as far as it reaches.
func parseResponse(text string, resp *http.Response, room []string) error {
	end := strings.Index(text, "\r\n")
	line := text[:max(end, 0)]
	const start = "HTTP/1.x 200"
	if len(line) < len(start) || !strings.HasPrefix(line, "HTTP/1.") || line[7] != '0' && line[7] != '1' || line[8] != ' ' ||
		len(line) > len(start) && line[len(start)] != ' ' || !allText(line) {
		return malformed("status line")
	}
	*resp = http.Response{Proto: line[:8], ProtoMajor: 1, ProtoMinor: int(line[7] - '0'), Status: line[9:]}
	for _, c := range []byte(line[9:12]) {
		if c < '0' || c > '9' {
			return malformed("status line")
		}
		resp.StatusCode = 10*resp.StatusCode + int(c-'0')
	}
	if resp.StatusCode < 100 {
		return malformed("status line")
	}
	h, p := fields(text[end+2:], nil, room)
	if p != nil {
		return malformed(p.Code)
	}
	resp.Header = h
	return nil
}

// begin finds out how the body ends.
func (x *exchange) begin(resp *http.Response) error {
	h := resp.Header
	te := h["Transfer-Encoding"]
	length, p := contentLength(h)
	resp.Close = hasListed(h["Connection"], "close") || resp.ProtoMinor == 0 && !hasListed(h["Connection"], "keep-alive")
	x.reusable = !resp.Close && !resp.Request.Close
	resp.ContentLength = -1
	switch {
	case resp.Request.Method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified:
		if resp.ContentLength = 0; p == nil && length > 0 {
			resp.ContentLength = length
		}
		resp.Body = http.NoBody
		x.finish()
		return nil
	case len(te) > 0:
		if len(te) > 1 || !strings.EqualFold(te[0], "chunked") || resp.ProtoMinor == 0 {
			return errCoding
		}
		x.framing = inChunks
		// Two lengths: the coding wins, and nothing else is believed of this connection (RFC 9112 section 6.3).
		x.reusable = x.reusable && len(h["Content-Length"]) == 0
		delete(h, "Content-Length")
		delete(h, "Transfer-Encoding")
		resp.TransferEncoding = []string{"chunked"}
	case p != nil:
		return malformed(p.Code)
	case length >= 0:
		x.framing, x.left, resp.ContentLength = sized, length, length
		if length == 0 {
			resp.Body = http.NoBody
			x.finish()
			return nil
		}
	default:
		x.framing, x.reusable = untilClose, false
	}
	resp.Body = x
	return nil
}

// finish gives the connection back after a whole response.
func (x *exchange) finish() {
	if !x.over.CompareAndSwap(false, true) {
		return
	}
	e := x.e
	if !x.stop() || !x.reusable || e.r < e.w || !x.u.whole() {
		e.close()
		return
	}
	if x.timed.Load() {
		_ = e.nc.SetReadDeadline(time.Time{})
	}
	x.c.give(e)
}

// Read implements io.Reader: it returns what is there, and waits only while nothing is. The last bytes come with io.EOF
// when they came together.
func (x *exchange) Read(p []byte) (n int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return 0, x.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err = x.read(p)
	if err != nil {
		err = x.failed(err)
	}
	return n, err
}

// failed finds out what an error of a read means. Only a timeout leaves the body readable.
func (x *exchange) failed(err error) error {
	switch {
	case errors.Is(err, errEnd):
		x.err = io.EOF
		x.finish()
		return x.err
	case x.ctx.Err() != nil:
		err = x.ctx.Err()
	case errors.Is(err, io.EOF) && x.framing == untilClose:
		x.err = io.EOF
		x.shut()
		return x.err
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	case isTimeout(err):
		return err
	case x.over.Load():
		err = errClosed
	}
	x.err = err
	x.shut()
	return err
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// errEnd: the body's own end was read.
var errEnd = errors.New("end")

func (x *exchange) read(p []byte) (int, error) {
	switch x.framing {
	case inChunks:
		return x.readChunked(p)
	case sized:
		n, err := x.e.readInto(p[:min(int64(len(p)), x.left)])
		if x.left -= int64(n); x.left == 0 {
			return n, errEnd
		}
		return n, err
	}
	return x.e.readInto(p)
}

func (x *exchange) readChunked(p []byte) (int, error) {
	for {
		n, used, err := x.dec.decode(p, x.e.buffered())
		x.e.consume(used)
		switch {
		case err != nil:
			return n, malformed("chunk")
		case x.dec.done():
			return n, errEnd
		case n > 0:
			return n, nil
		}
		if err := x.e.fill(); err != nil {
			return 0, err
		}
	}
}

// Close implements io.Closer. A body that was not read to its end takes its connection with it: reading on would let the
// engine work for nobody.
func (x *exchange) Close() error {
	if x.over.CompareAndSwap(false, true) {
		x.stop()
		// What reads now is woken by this.
		_ = x.e.nc.Close()
		x.mu.Lock()
		defer x.mu.Unlock()
		x.err = errClosed
		x.e.release()
	}
	return nil
}

// SetReadDeadline implements ResponseBody.
func (x *exchange) SetReadDeadline(at time.Time) error {
	if x.over.Load() {
		return nil
	}
	x.timed.Store(true)
	return x.e.nc.SetReadDeadline(at)
}
