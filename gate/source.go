package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// The engine is read in one of two ways. A body that can be given a deadline is read by the goroutine that serves the
// request, and what it gives is written to the caller in the same breath: no other goroutine wakes for an event. Any other
// body, net/http's among them, is read by a pump.

const (
	// pumpBytes is the largest buffer that one response is read with: what it holds in memory, whatever its lines are.
	pumpBytes = 16 << 10
	// firstBytes is the buffer that it begins with. Events take some hundred bytes, and thousands of streams may be open.
	firstBytes = 2 << 10
)

var errTransportPanic = errors.New("the transport to the engine panicked")

// deadliner is a response body whose reads can be given an end. A read that ends so leaves the body as it was; one that is
// under way when the request's context ends fails.
type deadliner interface {
	io.Reader
	SetReadDeadline(at time.Time) error
}

// head is the engine's status and headers, or why there are none.
type head struct {
	resp *http.Response
	err  error
}

// askEngine asks the engine. A defect below us must cost this request, not the whole gate.
func askEngine(rt http.RoundTripper, req *http.Request) (h head) {
	defer func() {
		if recover() != nil {
			h = head{err: errTransportPanic}
		}
	}()
	h.resp, h.err = rt.RoundTrip(req) //nolint:bodyclose // run closes it
	return h
}

// run takes the request from the engine's head to the end of its answer.
func (f *flow) run() {
	h, here := f.awaitHead()
	if !here {
		f.left()
		return
	}
	if h.resp == nil {
		f.unreachable(h.err)
		return
	}
	if d, ok := h.resp.Body.(deadliner); ok {
		defer func() { _ = h.resp.Body.Close() }()
		// Whoever gives such a body has sent the request.
		f.sent = true
		if f.onHead(h.resp) {
			f.runInline(d)
		}
		return
	}
	p := startPump(f.ctx, h.resp.Body)
	if f.onHead(h.resp) {
		f.runPumped(p)
	}
}

// awaitHead asks the engine and waits for its head. here is false when the caller left meanwhile.
func (f *flow) awaitHead() (h head, here bool) {
	rt, req := f.a.pool.Engine.Transport(), f.a.upstreamRequest(f.ctx, f.body, f.up)
	if !f.keepsAlive() {
		h = askEngine(rt, req)
		return h, h.resp != nil || f.ctx.Err() == nil
	}
	heads, ctx := make(chan head), f.ctx
	go func() {
		h := askEngine(rt, req)
		select {
		case heads <- h:
		case <-ctx.Done():
			if h.resp != nil {
				_ = h.resp.Body.Close()
			}
		}
	}()
	t := alarm{}
	defer t.stop()
	for {
		select {
		case <-f.ctx.Done():
			return h, false
		case h = <-heads:
			return h, true
		case <-t.at(f.next()):
			f.ring()
		}
	}
}

// next is when there is something to do without the engine; zero means never.
func (f *flow) next() time.Time {
	if f.firstBy.IsZero() || !f.aliveAt.IsZero() && f.aliveAt.Before(f.firstBy) {
		return f.aliveAt
	}
	return f.firstBy
}

// ring does what is due.
func (f *flow) ring() {
	now := time.Now()
	if !f.firstBy.IsZero() && !now.Before(f.firstBy) {
		f.commit()
	}
	if !f.aliveAt.IsZero() && !now.Before(f.aliveAt) {
		f.keepAlive()
	}
}

// runInline reads the engine and writes to the caller in turn. A caller that is too far behind holds the engine back, and
// only then.
func (f *flow) runInline(body deadliner) {
	buf := f.a.s.reading.take()
	defer func() { f.a.s.reading.give(buf) }()
	armed := time.Time{}
	for {
		if !f.out.room() && !f.awaitRoom() {
			f.left()
			return
		}
		if next := f.next(); next != armed {
			armed = next
			_ = body.SetReadDeadline(next)
		}
		n, err := readBody(body, *buf)
		if err != nil && f.ctx.Err() != nil {
			f.left()
			return
		}
		rung := err != nil && !armed.IsZero() && errors.Is(err, os.ErrDeadlineExceeded)
		if rung {
			err = nil
		}
		if (n > 0 || err != nil) && !f.onChunk((*buf)[:n], err) {
			return
		}
		if rung {
			// A deadline that has passed ends every read until another is set.
			armed = time.Time{}
			_ = body.SetReadDeadline(armed)
			f.ring()
		}
		if n == len(*buf) && n < pumpBytes {
			*buf = make([]byte, min(4*n, pumpBytes))
		}
	}
}

// awaitRoom waits until the caller has read something; false when it has left.
func (f *flow) awaitRoom() bool {
	t := alarm{}
	defer t.stop()
	for !f.out.room() {
		select {
		case <-f.ctx.Done():
			return false
		case <-f.out.space:
		case <-t.at(f.next()):
			f.ring()
		}
	}
	return true
}

func readBody(body io.Reader, buf []byte) (n int, err error) {
	defer func() {
		if recover() != nil {
			n, err = 0, errTransportPanic
		}
	}()
	return body.Read(buf)
}

// runPumped takes what a pump has read.
func (f *flow) runPumped(p *pump) {
	t := alarm{}
	defer t.stop()
	for more := true; more; {
		var chunks chan chunk
		if f.out.room() {
			chunks = p.chunks
		}
		select {
		case <-f.ctx.Done():
			f.left()
			return
		case <-f.out.space:
		case c := <-chunks:
			if more = f.onChunk(c.data, c.err); c.err == nil {
				p.giveBack(c)
			}
		case <-t.at(f.next()):
			f.ring()
		}
	}
}

// alarm is a timer that exists only once it is needed.
type alarm struct {
	timer *time.Timer
	armed time.Time
}

// at returns what fires at a time, nil for the zero time.
func (a *alarm) at(when time.Time) <-chan time.Time {
	switch {
	case when.IsZero():
		a.stop()
		a.armed = when
		return nil
	case a.timer == nil:
		a.timer = time.NewTimer(time.Until(when))
	case when != a.armed:
		a.timer.Reset(time.Until(when))
	}
	a.armed = when
	return a.timer.C
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// bufferPool keeps buffers of firstBytes; larger ones are let go.
type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) take() *[]byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return buf
	}
	buf := make([]byte, firstBytes)
	return &buf
}

func (b *bufferPool) give(buf *[]byte) {
	if len(*buf) == firstBytes {
		b.pool.Put(buf)
	}
}

// chunk is what one read of the engine's body gave. data belongs to the receiver until it gives it back.
type chunk struct {
	data []byte
	err  error
}

// pump reads a body in a goroutine of its own, so that the relay can also wait for timers and for the caller. It reads on
// when its buffer has come back, and ends when ctx does.
type pump struct {
	chunks chan chunk
	free   chan []byte
}

func startPump(ctx context.Context, body io.ReadCloser) *pump {
	p := &pump{chunks: make(chan chunk), free: make(chan []byte, 1)}
	p.free <- make([]byte, firstBytes)
	go p.run(ctx, body)
	return p
}

func (p *pump) run(ctx context.Context, body io.ReadCloser) {
	defer func() { _ = body.Close() }()
	for {
		var buf []byte
		select {
		case buf = <-p.free:
		case <-ctx.Done():
			return
		}
		n, err := readBody(body, buf)
		select {
		case p.chunks <- chunk{data: buf[:n], err: err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// giveBack returns a chunk's buffer to the pump, or a larger one when it was full.
func (p *pump) giveBack(c chunk) {
	buf := c.data[:cap(c.data)]
	if len(c.data) == len(buf) && len(buf) < pumpBytes {
		buf = make([]byte, min(4*len(buf), pumpBytes))
	}
	p.free <- buf
}

// plainError says what went wrong on the way to the engine without the bytes that came: net/http quotes a malformed
// response, and an answer may be in it.
func plainError(err error) string {
	var op *net.OpError
	switch {
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed"
	case errors.Is(err, errTransportPanic), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err.Error()
	}
	return fmt.Sprintf("%T", err)
}
