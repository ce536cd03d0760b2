package wire

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// heldBytes is how many bytes of a body of unknown length are kept back so that a short one gets its length told.
	heldBytes = 2 << 10
	// sendBytes is how much is collected before it is sent without being asked.
	sendBytes = 4 << 10
	// pieceBytes is the largest chunk.
	pieceBytes = 8 << 10
)

// Conn is what the Server's http.ResponseWriter can do besides. Like its Write it is for one goroutine at a time, and
// not after the handler has returned.
type Conn interface {
	// WriteNow sends as much of p as the kernel takes without waiting, after what was written before. n is how many bytes
	// of p are on their way; the rest must come with the next Write or WriteNow. It says neither how the caller reads
	// nor does it wait for any deadline; only what is unread of the request's body is waited for, a moment, before the
	// answer's head goes. n < len(p) without an error means that the caller does not keep up.
	WriteNow(p []byte) (n int, err error)
	// Unsent is how many bytes the kernel holds for the caller that were not acknowledged (on a unix socket: not read).
	Unsent() (n int, err error)
}

var _ interface {
	http.ResponseWriter
	http.Flusher
	Conn
} = (*response)(nil)

// errReturned: the handler has returned.
var errReturned = errors.New("the handler has returned")

// Ways to tell where an answer ends.
const (
	undecided = iota
	sized
	inChunks
	// untilClose is for HTTP/1.0.
	untilClose
	// bodiless answers are 204, 304, and those to HEAD.
	bodiless
)

// response is one answer on its way.
type response struct {
	c    *conn
	req  head
	body body
	// expect: the caller waits for 100 Continue.
	expect atomic.Bool
	minor  int
	// head: the request was a HEAD. close: the connection ends with this answer. duplex: the handler reads the body while
	// it answers.
	head, close, duplex bool

	header http.Header
	status int
	// framing says how the body's end is told. length is its declared size, written what came of it.
	framing         int
	length, written int64
	// left is what is missing of the chunk that has begun.
	left int
	// out is what was not sent yet; held is a body that waits for its framing.
	out, held []byte
	typed     bool
	err       error
}

// maxKept is the number of fields up to which a header is used again.
const maxKept = 32

// response returns an empty one for a request on c.
func (s *Server) response(c *conn) *response {
	w, ok := s.responses.Get().(*response)
	if !ok {
		w = &response{header: http.Header{}}
		w.req.header = http.Header{}
	}
	w.c = c
	return w
}

// done leaves one that has been sent to the next request. Its handler has returned.
func (s *Server) done(w *response) {
	if len(w.header) > maxKept || len(w.req.header) > maxKept {
		return
	}
	ours, theirs := w.header, w.req.header
	clear(ours)
	clear(theirs)
	*w = response{header: ours}
	w.req.header = theirs
	s.responses.Put(w)
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. Informational statuses are not sent.
func (w *response) WriteHeader(status int) {
	if w.status != 0 || status >= 100 && status < 200 {
		return
	}
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid status code %d", status))
	}
	if w.expect.CompareAndSwap(true, false) {
		// Whether the body will still come is the caller's choice, so what follows it cannot be told from it.
		w.close = true
	}
	w.status, w.length = status, -1
	if n, p := contentLength(w.header); p == nil {
		w.length = n
	}
	_, w.typed = w.header["Content-Type"]
	w.close = w.close || hasListed(w.header["Connection"], "close")
	w.out = w.appendHead(w.take())
	switch {
	case w.head || status == http.StatusNoContent || status == http.StatusNotModified:
		if w.framing = bodiless; w.length >= 0 && status != http.StatusNoContent {
			w.appendLength(w.length)
		}
		w.endHead()
	case w.length >= 0:
		w.framing = sized
		w.appendLength(w.length)
		w.endHead()
	}
}

func (w *response) take() []byte { return w.c.bufs.get()[:0] }

// appendHead appends the status line and the handler's fields, sorted by name; those that tell the framing are ours.
func (w *response) appendHead(b []byte) []byte {
	b = append(b, "HTTP/1."...)
	b = append(b, byte('0'+w.minor), ' ')
	b = strconv.AppendInt(b, int64(w.status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(w.status)...)
	b = append(b, "\r\n"...)
	var room [24]string
	names := room[:0]
	for name := range w.header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Connection", "Date", "Trailer":
			continue
		}
		if !allToken(name) {
			continue
		}
		for _, value := range w.header[name] {
			b = append(b, name...)
			b = append(b, ": "...)
			b = appendValue(b, value)
			b = append(b, "\r\n"...)
		}
	}
	return w.c.s.appendDate(b)
}

// appendValue makes spaces of what would end a field.
func appendValue(b []byte, v string) []byte {
	v = trimOWS(v)
	if allText(v) {
		return append(b, v...)
	}
	for i := range len(v) {
		if c := v[i]; isText(c) {
			b = append(b, c)
		} else {
			b = append(b, ' ')
		}
	}
	return b
}

func (w *response) appendLength(n int64) {
	w.out = append(w.out, "Content-Length: "...)
	w.out = strconv.AppendInt(w.out, n, 10)
	w.out = append(w.out, "\r\n"...)
}

// endHead completes the head, once it is known how the body ends. What is unread of the request's body is read first.
func (w *response) endHead() {
	w.close = w.close || w.c.s.closing.Load() || w.framing == untilClose || !w.body.drain()
	switch {
	case w.close:
		w.out = append(w.out, "Connection: close\r\n"...)
	case w.minor == 0:
		w.out = append(w.out, "Connection: keep-alive\r\n"...)
	}
	w.out = append(w.out, "\r\n"...)
}

// decide settles how the body ends: n is its whole length, -1 when that is not known.
func (w *response) decide(n int64) {
	if w.framing != undecided {
		return
	}
	if !w.typed && len(w.held) > 0 {
		w.out = append(w.out, "Content-Type: "...)
		w.out = append(w.out, http.DetectContentType(w.held)...)
		w.out = append(w.out, "\r\n"...)
	}
	switch {
	case n >= 0:
		w.framing, w.length = sized, n
		w.appendLength(n)
	case w.minor == 0:
		w.framing = untilClose
	default:
		w.framing = inChunks
		w.out = append(w.out, "Transfer-Encoding: chunked\r\n"...)
	}
	w.endHead()
	if held := w.held; held != nil {
		w.held, w.written = nil, 0
		if len(held) > 0 {
			_, _, _ = w.frame(held)
		}
		w.c.bufs.put(held)
	}
}

// frame appends the start of p with what frames it, as one run: at most a chunk. It returns where the run begins in out
// and how long it is.
func (w *response) frame(p []byte) (at, n int, err error) {
	n = len(p)
	switch {
	case w.framing == sized && w.written+int64(n) > w.length:
		return 0, 0, http.ErrContentLength
	case w.framing != inChunks:
	case w.left == 0:
		n = min(n, pieceBytes)
		w.out = appendChunkSize(w.room(), n)
		w.left = n
	default:
		n = min(n, w.left)
	}
	at = len(w.room())
	w.out = append(w.out, p[:n]...)
	w.written += int64(n)
	if w.framing == inChunks {
		if w.left -= n; w.left == 0 {
			w.out = append(w.out, "\r\n"...)
		}
	}
	return at, n, nil
}

// room returns out with a buffer behind it.
func (w *response) room() []byte {
	if w.out == nil {
		w.out = w.take()
	}
	return w.out
}

// ready is common to all writing: it reports whether there is anything to be written at all.
func (w *response) ready(p []byte) (bool, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.err != nil:
		return false, w.err
	case w.framing != bodiless:
		return true, nil
	case w.head || len(p) == 0:
		return false, nil
	}
	return false, http.ErrBodyNotAllowed
}

// Write implements http.ResponseWriter. It waits while the caller does not keep up, up to the write deadline.
func (w *response) Write(p []byte) (n int, err error) {
	if ok, err := w.ready(p); !ok {
		return len(p), err
	}
	if w.framing == undecided {
		if len(w.held)+len(p) <= heldBytes {
			if w.held == nil {
				w.held = w.take()
			}
			w.held = append(w.held, p...)
			return len(p), nil
		}
		if len(w.held) == 0 && !w.typed {
			w.sniff(p)
		}
		w.decide(-1)
	}
	for n < len(p) {
		_, k, err := w.frame(p[n:min(len(p), n+pieceBytes)])
		if err != nil {
			return n, err
		}
		n += k
		if len(w.out) >= sendBytes {
			if err := w.send(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (w *response) sniff(p []byte) {
	w.typed = true
	w.out = append(w.out, "Content-Type: "+http.DetectContentType(p)+"\r\n"...)
}

// WriteString implements io.StringWriter.
func (w *response) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// WriteNow implements Conn.
func (w *response) WriteNow(p []byte) (n int, err error) {
	if ok, err := w.ready(p); !ok {
		return len(p), err
	}
	w.decide(-1)
	for {
		at, run, left := len(w.out), 0, w.left
		if n < len(p) {
			if at, run, err = w.frame(p[n:min(len(p), n+pieceBytes)]); err != nil {
				return n, err
			}
			if left == 0 && w.framing == inChunks {
				left = run
			}
		}
		w.c.freshen()
		sent, err := w.c.writeNow(w.out)
		if err != nil {
			return n, w.broken(err)
		}
		if sent == len(w.out) {
			w.empty()
			if n += run; n >= len(p) {
				return n, nil
			}
			continue
		}
		took := min(max(sent-at, 0), run)
		if took < run {
			// What was not taken is not ours to keep; its chunk stays open.
			w.out = w.out[:at]
			w.written -= int64(run - took)
			if w.framing == inChunks {
				w.left = left - took
			}
		}
		w.out = w.out[:copy(w.out, w.out[min(sent, len(w.out)):])]
		if len(w.out) == 0 {
			w.empty()
		}
		return n + took, nil
	}
}

// Unsent implements Conn.
func (w *response) Unsent() (int, error) { return w.c.ioctlInt(unix.TIOCOUTQ) }

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError sends what was kept back, for http.ResponseController.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.err != nil {
		return w.err
	}
	w.decide(-1)
	return w.send()
}

// send sends what is in out, and waits for it.
func (w *response) send() error {
	if len(w.out) == 0 {
		return nil
	}
	if err := w.c.writeAll(w.out); err != nil {
		return w.broken(err)
	}
	w.empty()
	return nil
}

func (w *response) empty() {
	if w.out != nil {
		w.c.bufs.put(w.out)
		w.out = nil
	}
}

// broken notes that nothing can be written any more: the caller is gone.
func (w *response) broken(err error) error {
	w.err = err
	w.empty()
	w.c.giveUp()
	return err
}

// writeAll writes p, and waits for it up to the write deadline. The socket hears of the deadline only when p does not
// go at once.
func (c *conn) writeAll(p []byte) error {
	if !c.freshen() {
		n, err := c.writeNow(p)
		if err != nil || n == len(p) {
			return err
		}
		p = p[n:]
	}
	c.enter(&c.write)
	defer c.exit(&c.write)
	_, err := c.nc.Write(p)
	return err
}

// freshen takes a write deadline that was changed meanwhile from the socket, and reports whether it has passed.
func (c *conn) freshen() (late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	late = !c.write.want.IsZero() && !time.Now().Before(c.write.want)
	if late || !c.write.told.IsZero() {
		c.tell(&c.write)
	}
	return late
}

// SetReadDeadline bounds reads of the request's body, for http.ResponseController.
func (w *response) SetReadDeadline(at time.Time) error {
	w.c.setLimit(&w.c.read, at)
	return nil
}

// SetWriteDeadline bounds Write and Flush, for http.ResponseController.
func (w *response) SetWriteDeadline(at time.Time) error {
	w.c.setLimit(&w.c.write, at)
	return nil
}

// EnableFullDuplex leaves the body to the handler while it answers; otherwise what is unread of it is read, within
// bounds, and dropped before the answer's head is sent. An answer that begins before the body has ended is the
// connection's last.
func (w *response) EnableFullDuplex() error {
	w.duplex = true
	return nil
}
