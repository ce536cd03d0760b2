package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// pumpBytes is the size of a pump's one buffer: what one response holds in memory, whatever its lines are.
const pumpBytes = 16 << 10

var errTransportPanic = errors.New("the transport to the engine panicked")

// head is the engine's status and headers, or why there are none.
type head struct {
	resp *http.Response
	err  error
}

// chunk is what one read of the engine's body gave. data belongs to the receiver until it gives it back.
type chunk struct {
	data []byte
	err  error
}

// pump sends one request and reads its response in a goroutine of its own, so that the relay can also wait for
// timers and for the caller. It reads on when its buffer has come back, and ends when ctx does.
type pump struct {
	heads  chan head
	chunks chan chunk
	free   chan []byte
}

func startPump(ctx context.Context, rt http.RoundTripper, req *http.Request) *pump {
	p := &pump{heads: make(chan head, 1), chunks: make(chan chunk), free: make(chan []byte, 1)}
	go p.run(ctx, rt, req)
	return p
}

func (p *pump) run(ctx context.Context, rt http.RoundTripper, req *http.Request) {
	headed := false
	// A defect below us must cost this request, not the whole gate.
	defer func() {
		switch caught := recover(); {
		case caught == nil:
		case !headed:
			p.heads <- head{err: errTransportPanic}
		default:
			p.send(ctx, chunk{err: errTransportPanic})
		}
	}()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		headed = true
		p.heads <- head{err: err}
		return
	}
	defer func() { _ = resp.Body.Close() }()
	headed = true
	p.heads <- head{resp: resp}
	p.free <- make([]byte, pumpBytes)
	for {
		var buf []byte
		select {
		case buf = <-p.free:
		case <-ctx.Done():
			return
		}
		n, err := resp.Body.Read(buf)
		if !p.send(ctx, chunk{data: buf[:n], err: err}) || err != nil {
			return
		}
	}
}

func (p *pump) send(ctx context.Context, c chunk) bool {
	select {
	case p.chunks <- c:
		return true
	case <-ctx.Done():
		return false
	}
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

// giveBack returns a chunk's buffer to the pump.
func (p *pump) giveBack(c chunk) { p.free <- c.data[:cap(c.data)] }
