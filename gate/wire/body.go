package wire

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// body is a request's body. 100 Continue is sent when it is first read.
type body struct {
	w       *response
	chunked bool

	mu sync.Mutex
	// left is what is to come when it is not chunked, in bytes.
	left int64
	dec  chunkDecoder
	// done: read to its end. closed: the handler has returned or closed it. err is why it cannot be read on.
	done, closed bool
	err          error
}

// Read implements io.Reader. After a timeout (os.ErrDeadlineExceeded) it can be called again.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return 0, http.ErrBodyReadAfterClose
	case b.err != nil:
		return 0, b.err
	case b.done:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	if b.w.expect.CompareAndSwap(true, false) {
		if err := b.w.c.writeAll([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			b.err = err
			return 0, err
		}
	}
	return b.read(p)
}

// Close implements io.Closer. What was not read is left to the connection.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// read gives what is there, and waits while nothing is. The lock is held.
func (b *body) read(p []byte) (n int, err error) {
	if b.chunked {
		n, err = b.readChunked(p)
	} else {
		n, err = b.readPlain(p)
	}
	if err != nil && !b.done {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			b.err = err
		}
	}
	return n, err
}

func (b *body) readPlain(p []byte) (int, error) {
	c := b.w.c
	p = p[:min(int64(len(p)), b.left)]
	waits := c.r == c.w
	if waits {
		c.enter(&c.read)
	}
	n, err := c.readInto(p)
	if waits {
		c.exit(&c.read)
	}
	if b.left -= int64(n); b.left == 0 {
		b.done = true
		return n, io.EOF
	}
	return n, err
}

func (b *body) readChunked(p []byte) (int, error) {
	c := b.w.c
	for {
		n, used, err := b.dec.decode(p, c.buffered())
		c.consume(used)
		switch {
		case err != nil:
			return n, err
		case b.dec.done():
			b.done = true
			return n, io.EOF
		case n > 0:
			return n, nil
		}
		c.enter(&c.read)
		err = c.fill()
		c.exit(&c.read)
		if err != nil {
			return 0, err
		}
	}
}

// drain reads what the handler has left, within bounds, and reports whether the connection stands at the next request.
// It must be known before an answer's head is sent: a caller that is not told of the connection's end sends its next
// request to where nobody reads it. While something else reads the body its end is not known.
func (b *body) drain() bool {
	if !b.mu.TryLock() {
		return false
	}
	defer b.mu.Unlock()
	if b.done || b.err != nil || b.left > maxDrain || b.w.duplex {
		return b.done
	}
	b.closed = true
	c := b.w.c
	c.mu.Lock()
	if soon := time.Now().Add(drainWithin); c.read.want.IsZero() || c.read.want.After(soon) {
		c.read.want = soon
	}
	c.mu.Unlock()
	p := c.bufs.get()
	defer c.bufs.put(p)
	for total := 0; total <= maxDrain; {
		n, err := b.read(p)
		if err != nil {
			return b.done
		}
		total += n
	}
	return false
}
