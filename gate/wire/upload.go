package wire

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

var (
	errScheme    = errors.New("only plain http URLs are served")
	errBadHead   = errors.New("the request's method, host or a field cannot be sent")
	errShortBody = errors.New("the request's body ended before its declared length")
)

// upload is a request on its way to the engine. The body is sent by the caller's goroutine as long as the kernel takes it
// at once, which is nearly always; the rest by one of its own, because an engine may answer before it has read everything.
type upload struct {
	c    *Client
	req  *http.Request
	body io.Reader
	// buf is what was read and not sent yet.
	buf []byte
	// left is what the body still has to give, -1 when it is chunked. read: it has given everything.
	left int64
	read bool
	// rest is closed when the goroutine that sends the rest has ended, nil without one. err is how the sending went.
	rest chan struct{}
	err  error
}

// bodyError: what was to be sent could not be had.
type bodyError struct{ error }

// Unwrap gives the cause.
func (e *bodyError) Unwrap() error { return e.error }

func (u *upload) init(c *Client, req *http.Request) {
	u.c, u.req, u.left, u.buf = c, req, req.ContentLength, c.bufs.get()[:0]
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		u.left, u.read = 0, true
	case req.ContentLength <= 0:
		u.left, u.body = -1, req.Body
	default:
		u.body = req.Body
	}
}

// end lets go of the request's body and the buffer.
func (u *upload) end() {
	if u.buf != nil {
		u.c.bufs.put(u.buf)
		u.buf = nil
	}
	if u.req.Body != nil {
		_ = u.req.Body.Close()
	}
}

// begin fills the buffer with the head and as much of the body as goes with it.
func (u *upload) begin() error {
	if err := u.appendHead(); err != nil {
		return err
	}
	return u.fillUp()
}

func (u *upload) appendHead() error {
	req := u.req
	method, host := req.Method, req.Host
	if method == "" {
		method = http.MethodGet
	}
	if host == "" {
		host = req.URL.Host
	}
	if req.URL.Scheme != "http" {
		return errScheme
	}
	target := req.URL.RequestURI()
	if !allToken(method) || !allText(target) || !allText(host) || target == "" || target[0] != '/' && target != "*" {
		return errBadHead
	}
	b := append(u.buf, method...)
	b = append(b, ' ')
	b = append(b, target...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	b = append(b, "\r\n"...)
	for name, values := range req.Header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Expect":
			continue
		}
		for _, v := range values {
			if !allToken(name) || !allText(v) {
				return errBadHead
			}
			if v == "" && name == "User-Agent" {
				continue
			}
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, v...)
			b = append(b, "\r\n"...)
		}
	}
	switch {
	case u.left < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case u.left > 0 || method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, u.left, 10)
		b = append(b, "\r\n"...)
	}
	if req.Close {
		b = append(b, "Connection: close\r\n"...)
	}
	u.buf = append(b, "\r\n"...)
	return nil
}

// fillUp reads from the body what fits into the buffer. It waits for the body, which the gate holds in memory.
func (u *upload) fillUp() error {
	const (
		framing        = 16
		maxUploadChunk = 0xffff
	)
	for !u.read && cap(u.buf)-len(u.buf) > framing {
		at := len(u.buf)
		if u.left < 0 {
			// Room for a chunk's size, of four digits always.
			at += len("0000\r\n")
		}
		room := u.buf[at : cap(u.buf)-framing/2]
		room = room[:min(len(room), maxUploadChunk)]
		if u.left > 0 {
			room = room[:min(int64(len(room)), u.left)]
		}
		if len(room) == 0 {
			return nil
		}
		n, err := u.body.Read(room)
		if n > 0 {
			u.took(at, n)
		}
		switch {
		case u.left == 0:
			u.read = true
		case errors.Is(err, io.EOF) && u.left < 0:
			u.read = true
			u.buf = append(u.buf, "0\r\n\r\n"...)
		case errors.Is(err, io.EOF):
			return &bodyError{errShortBody}
		case err != nil:
			return &bodyError{fmt.Errorf("read the request's body: %w", err)}
		}
	}
	return nil
}

// took notes n bytes that were read to at.
func (u *upload) took(at, n int) {
	if u.left > 0 {
		u.left -= int64(n)
		u.buf = u.buf[:at+n]
		return
	}
	const digits = "0123456789abcdef"
	size := u.buf[at-len("0000\r\n") : at]
	for i := range 4 {
		size[i] = digits[n>>(12-4*i)&15]
	}
	size[4], size[5] = '\r', '\n'
	u.buf = append(u.buf[:at+n], "\r\n"...)
}

// send sends what the kernel takes now, and leaves the rest to a goroutine. wrote tells whether a byte was sent; while
// none was, send can be called again for another connection.
func (u *upload) send(e *engineConn) (wrote bool, err error) {
	for {
		n, err := e.writeNow(u.buf)
		wrote = wrote || n > 0
		if err != nil {
			return wrote, err
		}
		if n < len(u.buf) {
			u.rest = make(chan struct{})
			go u.sendRest(e, n)
			return true, nil
		}
		u.buf = u.buf[:0]
		if u.read {
			u.end()
			return true, nil
		}
		if err := u.fillUp(); err != nil {
			return true, err
		}
	}
}

func (u *upload) sendRest(e *engineConn, from int) {
	defer close(u.rest)
	defer u.end()
	for {
		if _, u.err = e.nc.Write(u.buf[from:]); u.err != nil {
			return
		}
		from, u.buf = 0, u.buf[:0]
		if u.read {
			return
		}
		if u.err = u.fillUp(); u.err != nil {
			// The engine must not take what came for all of it.
			_ = e.nc.Close()
			return
		}
	}
}

// whole reports whether everything was sent.
func (u *upload) whole() bool {
	if u.rest == nil {
		return u.read && u.buf == nil
	}
	select {
	case <-u.rest:
		return u.err == nil
	default:
		return false
	}
}
