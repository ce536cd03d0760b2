package gate

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"admitd/gate/reason"
)

// bodyStep is how much of a body of unknown length is taken from the budget at a time.
const bodyStep = 256 << 10

// bodyFirst is what a body of known length takes from the budget before its first byte; it doubles from there.
const bodyFirst = 16 << 10

// budget bounds bytes held at once: of request bodies, of answers to slow callers.
type budget struct {
	mu        sync.Mutex
	max, used int64
}

// take reserves n bytes, or nothing when they are not there.
func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.max {
		return false
	}
	b.used += n
	return true
}

// owe reserves n bytes whether they are there or not, for what cannot be refused any more; others wait for it.
func (b *budget) owe(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += n
}

// spare reports whether anything is left.
func (b *budget) spare() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used < b.max
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

// hurryBody gives the body a time to arrive in, from now. It counts for a body that nobody reads as well: net/http
// waits for small ones before it answers. The deadline is for the socket, so it is real time whatever the gate's
// clock is; writers without a socket (in tests) have none.
func (a *arrival) hurryBody() {
	if a.r.Body != nil && a.r.Body != http.NoBody {
		_ = http.NewResponseController(a.w).SetReadDeadline(time.Now().Add(a.s.o.Limits.BodyTimeout))
	}
}

// readBody reads the whole body, once, within the limits. What it takes from the budget dropBody gives back.
func (a *arrival) readBody() (ref *refusal) {
	if a.r.ContentLength >= 0 {
		ref = a.readKnown(a.r.ContentLength)
	} else {
		ref = a.readUnknown()
	}
	if ref == nil {
		// From here on the connection is read only to see the caller leave, however long the answer takes.
		_ = http.NewResponseController(a.w).SetReadDeadline(time.Time{})
	}
	return ref
}

// readKnown takes memory as bytes arrive: what a caller declares costs nobody anything.
func (a *arrival) readKnown(n int64) *refusal {
	var buf []byte
	for int64(len(buf)) < n {
		if len(buf) == cap(buf) {
			want := min(max(2*int64(cap(buf)), bodyFirst), n)
			if !a.take(want - int64(cap(buf))) {
				return a.full()
			}
			bigger := make([]byte, len(buf), want)
			copy(bigger, buf)
			buf = bigger
		}
		got, err := a.r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+got]
		if err != nil && int64(len(buf)) < n {
			return a.unread(err, int64(len(buf)))
		}
	}
	a.body = buf
	// Reading up to the end is what makes net/http watch for the caller going away.
	_, _ = a.r.Body.Read(a.more[:])
	return nil
}

func (a *arrival) readUnknown() *refusal {
	limit := a.s.o.Limits.MaxBodyBytes
	var buf []byte
	for {
		if len(buf) == cap(buf) {
			if int64(len(buf)) > limit {
				return tooLarge(limit)
			}
			grow := max(int64(cap(buf)), bodyStep)
			if !a.take(grow) {
				return a.full()
			}
			bigger := make([]byte, len(buf), int64(len(buf))+grow)
			copy(bigger, buf)
			buf = bigger
		}
		n, err := a.r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			return tooLarge(limit)
		}
		if errors.Is(err, io.EOF) {
			a.body = buf
			return nil
		}
		if err != nil {
			return a.unread(err, int64(len(buf)))
		}
	}
}

func (a *arrival) take(n int64) bool {
	if !a.s.buffers.take(n) {
		return false
	}
	a.buffered += n
	return true
}

// dropBody lets go of the body and gives its bytes back to the budget.
func (a *arrival) dropBody() {
	a.body = nil
	if a.buffered > 0 {
		a.s.buffers.give(a.buffered)
		a.buffered = 0
	}
}

func (a *arrival) full() *refusal {
	return &refusal{code: reason.BufferFull, retryAfter: 2 * time.Second,
		message: fmt.Sprintf("Request bodies fill the gate's limit of %s; try again in a moment.", size(a.s.buffers.max))}
}

func (a *arrival) unread(err error, got int64) *refusal {
	text := fmt.Sprintf("The body ended early, after %d bytes; send as many as Content-Length says.", got)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		text = fmt.Sprintf("The body did not arrive within %s (%d bytes came); send it faster or make it smaller.", a.s.o.Limits.BodyTimeout, got)
	}
	return &refusal{code: reason.BadRequest, message: text}
}

func tooLarge(limit int64) *refusal {
	return &refusal{code: reason.BodyTooLarge,
		message: fmt.Sprintf("The body is larger than the limit of %s; make it smaller or ask the operator to raise limits.max_body.", size(limit))}
}

// size writes bytes exactly, and in MiB where that is exact too.
func size(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d bytes (%d MiB)", n, n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// payload is a body on its way to the engine that can be let go while the response is still running: net/http
// keeps the request, and so its body, until the response has ended.
type payload struct {
	mu   sync.Mutex
	data []byte
	sent bool
	// url and first are the request's that carries it.
	url   url.URL
	first payloadReader
}

// open returns a reader from the start; net/http calls it again only for a connection on which nothing was written.
func (p *payload) open() (io.ReadCloser, error) { return &payloadReader{p: p}, nil }

// drop lets go of the bytes if all were handed over, and reports whether it did.
func (p *payload) drop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent {
		p.data = nil
	}
	return p.sent
}

type payloadReader struct {
	p  *payload
	at int
}

// Read implements io.Reader.
func (r *payloadReader) Read(b []byte) (int, error) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if r.at >= len(r.p.data) {
		r.p.sent = true
		return 0, io.EOF
	}
	n := copy(b, r.p.data[r.at:])
	r.at += n
	r.p.sent = r.p.sent || r.at == len(r.p.data)
	return n, nil
}

// Close implements io.Closer.
func (r *payloadReader) Close() error { return nil }
