package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	hangWord  = "please-hang"
	floodWord = "please-flood"
	paceWord  = "please-pace"
	callText  = "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nAccept: */*\r\n" +
		"User-Agent: speedbench\r\nAuthorization: Bearer sk-bench\r\nContent-Length: "
)

func callOf(stream bool, prompt string) []byte {
	body := `{"model":"m","messages":[{"role":"user","content":"` + prompt + `"}],"max_tokens":128`
	if stream {
		body += `,"stream":true,"stream_options":{"include_usage":true}`
	}
	body += "}"
	return []byte(callText + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// answerReader finds the end of an answer, and the times in its events, without keeping it.
type answerReader struct {
	head    []byte
	headed  bool
	status  int
	chunked bool
	// left is what is to come of a body or a chunk.
	left int
	// line is what has come of a chunk's size line, last that it was the last one's; tail what may be the beginning of a
	// mark.
	line, tail []byte
	last       bool
	// events counts events that said when they were sent; delays holds how long each took from there, where wanted.
	events int
	delays []time.Duration
	time   bool
	done   bool
}

var mark = []byte(`"t":`)

// see takes the next bytes.
func (a *answerReader) see(p []byte) {
	if !a.headed {
		a.head = append(a.head, p...)
		end := bytes.Index(a.head, []byte("\r\n\r\n"))
		if end < 0 {
			return
		}
		a.headed = true
		head := a.head[:end]
		if len(head) > 12 {
			a.status, _ = strconv.Atoi(string(head[9:12]))
		}
		a.chunked = bytes.Contains(bytes.ToLower(head), []byte("transfer-encoding: chunked"))
		a.left = declared(head)
		p = a.head[end+4:]
	}
	if !a.chunked {
		a.left -= len(p)
		a.done = a.left <= 0
		return
	}
	a.body(p)
}

// body takes bytes of a chunked body apart: relays may begin a chunk anywhere, also within an event.
func (a *answerReader) body(p []byte) {
	for len(p) > 0 && !a.done {
		if a.left > 0 {
			n := min(a.left, len(p))
			a.scan(p[:n])
			a.left -= n
			p = p[n:]
			continue
		}
		c := p[0]
		p = p[1:]
		if c != '\n' {
			a.line = append(a.line, c)
			continue
		}
		// The line behind a chunk's data is empty.
		line := strings.TrimSpace(string(a.line))
		if a.line = a.line[:0]; line == "" {
			a.done = a.last
			continue
		}
		n, err := strconv.ParseInt(line, 16, 32)
		a.left, a.last = int(n), n == 0 && err == nil
	}
}

// scan counts the events in decoded bytes.
func (a *answerReader) scan(p []byte) {
	now := time.Now().UnixNano()
	all := append(a.tail, p...)
	at := 0
	for {
		i := bytes.Index(all[at:], mark)
		if i < 0 {
			at = max(at, len(all)-len(mark)+1)
			break
		}
		if at += i; len(all) < at+len(mark)+19 {
			break
		}
		at += len(mark)
		a.events++
		if a.time {
			if sent, err := strconv.ParseInt(string(all[at:at+19]), 10, 64); err == nil {
				a.delays = append(a.delays, time.Duration(now-sent))
			}
		}
	}
	a.tail = append(a.tail[:0], all[min(at, len(all)):]...)
}

// declared is the Content-Length of a head; 0 when it has none.
func declared(head []byte) int {
	const name = "\r\ncontent-length:"
	i := bytes.Index(bytes.ToLower(head), []byte(name))
	if i < 0 {
		return 0
	}
	line, _, _ := bytes.Cut(head[i+len(name):], []byte("\r\n"))
	n, _ := strconv.Atoi(string(bytes.TrimSpace(line)))
	return n
}

// caller is one connection to a relay that sends one request after the other.
type caller struct {
	address string
	conn    net.Conn
	buf     []byte
}

var errShort = errors.New("an answer was short")

// call sends a request and reads its whole answer. A connection that the relay closed is opened anew, once.
func (c *caller) call(ctx context.Context, request []byte, timed bool) (answerReader, error) {
	a := answerReader{time: timed}
	if c.buf == nil {
		c.buf = make([]byte, 16<<10)
	}
	for try := 0; ; try++ {
		fresh := c.conn == nil
		if fresh {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", c.address)
			if err != nil {
				return a, err
			}
			c.conn = conn
		}
		err := c.once(request, &a)
		if err == nil {
			if a.status != 200 {
				return a, fmt.Errorf("status %d: %s", a.status, a.head)
			}
			return a, nil
		}
		_ = c.conn.Close()
		c.conn = nil
		if fresh || a.headed || try > 0 {
			return a, err
		}
	}
}

func (c *caller) once(request []byte, a *answerReader) error {
	_ = c.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	for !a.done {
		n, err := c.conn.Read(c.buf)
		if err != nil {
			return err
		}
		a.see(c.buf[:n])
	}
	return nil
}

func (c *caller) close() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
}
