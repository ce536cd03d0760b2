package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// chunks is a body of n chunks of 10,000 bytes without its last chunk.
func chunks(n int) string { return strings.Repeat("2710\r\n"+strings.Repeat("x", 10_000)+"\r\n", n) }

// The answer said nothing of the end, and what came after the body was thrown away.
func TestNextRequestIsNotLostAfterARefusedBody(t *testing.T) {
	const sizedHead = "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
	for name, tc := range map[string]struct {
		// sent comes before the handler answers, rest after the answer's head has come.
		sent, rest string
		// read: the handler reads the body until its time is over.
		read, last bool
	}{
		"large, in chunks":             {sent: chunkedHead + chunks(30) + "0\r\n\r\n", last: true},
		"large, in chunks, no end":     {sent: chunkedHead + chunks(30), rest: "0\r\n\r\n", last: true},
		"large, sized":                 {sent: fmt.Sprintf(sizedHead, 300_000) + strings.Repeat("x", 300_000), last: true},
		"small, in chunks":             {sent: chunkedHead + chunks(9) + "0\r\n\r\n"},
		"small, sized":                 {sent: fmt.Sprintf(sizedHead, 100_000) + strings.Repeat("x", 100_000)},
		"small, its end does not come": {sent: fmt.Sprintf(sizedHead, 1000) + strings.Repeat("x", 900), rest: strings.Repeat("x", 100), last: true},
		"not in time":                  {sent: fmt.Sprintf(sizedHead, 10) + "hello", rest: "hello", read: true, last: true},
		"trailers not in time":         {sent: chunkedHead + "1\r\nx\r\n0\r\nX: ", rest: "y\r\n\r\n", read: true, last: true},
		"malformed":                    {sent: chunkedHead + "zz\r\n", last: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := make(chan struct{})
			c, br := onStream(t, &Server{}, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					return
				}
				<-whole
				if tc.read {
					_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(20 * time.Millisecond))
					if _, err := io.ReadAll(r.Body); !isTimeout(err) {
						t.Errorf("reading ends with %v", err)
					}
				}
				w.WriteHeader(http.StatusTeapot)
			}, tc.sent)
			close(whole)
			resp, _ := answerOf(t, br, http.MethodPost)
			if resp.StatusCode != http.StatusTeapot || resp.Close != tc.last {
				t.Fatalf("status %d, last %v, want last %v", resp.StatusCode, resp.Close, tc.last)
			}
			if !tc.last {
				send(t, c, tc.rest+plainGet)
				answerOf(t, br, http.MethodGet)
			}
		})
	}
}

// A handler that reads while it answers gets its body, and the connection ends with the answer.
func TestFullDuplexHandlerGetsItsBodyAfterItsAnswerHasBegun(t *testing.T) {
	c, br := onStream(t, &Server{}, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		_ = rc.Flush()
		_, _ = io.Copy(w, r.Body)
	}, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n")
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	send(t, c, "hello")
	if got, err := io.ReadAll(resp.Body); string(got) != "hello" || err != nil || !resp.Close {
		t.Errorf("answer %q, %v, last %v", got, err, resp.Close)
	}
}

// A socket that is closed with unread bytes, or gets some afterwards, resets the connection: the caller got a part.
func TestLastAnswerArrivesWholeHoweverMuchTheCallerSends(t *testing.T) {
	want := bytes.Repeat([]byte("x"), 3_000_000)
	for name, tc := range map[string]struct {
		body, tail string
		late       bool
	}{
		"an empty line after the body":      {body: strings.Repeat("x", 100_000), tail: "\r\n"},
		"a second request":                  {tail: plainGet},
		"a second request after the answer": {tail: plainGet, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			ready, answered := make(chan struct{}), make(chan struct{})
			c, _ := onStream(t, &Server{}, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-ready
				_, _ = w.Write(want)
				close(answered)
			}, fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", len(tc.body)))
			send(t, c, tc.body)
			if !tc.late {
				send(t, c, tc.tail)
			}
			close(ready)
			resp, err := http.ReadResponse(bufio.NewReaderSize(c, 4096), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var got bytes.Buffer
			if tc.late {
				// What the server's kernel holds when the handler is through would be lost.
				for open := true; open; {
					select {
					case <-answered:
						open = false
					default:
						if _, err := io.CopyN(&got, resp.Body, 4096); err != nil {
							t.Fatal(err)
						}
					}
				}
				send(t, c, tc.tail)
			}
			if _, err := io.Copy(&got, resp.Body); err != nil || !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%d bytes of %d came: %v", got.Len(), len(want), err)
			}
		})
	}
}

func TestRefusedHEADGetsNoBody(t *testing.T) {
	addr := serve(t, &Server{Handler: handlerEcho, MaxHeaderBytes: 1000})
	for name, request := range map[string]string{
		"bad path":  "HEAD /%zz HTTP/1.1\r\nHost: h\r\n\r\n",
		"bare LF":   "HEAD / HTTP/1.1\nHost: h\n\n",
		"no host":   "HEAD / HTTP/1.1\r\n\r\n",
		"too large": "HEAD / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 2000),
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, addr)
			send(t, c, request)
			got, err := io.ReadAll(c)
			if _, body, ok := strings.Cut(string(got), "\r\n\r\n"); !ok || body != "" || err != nil {
				t.Errorf("answer %q, %v", got, err)
			}
		})
	}
}

// settled returns the server's connections once there are n, and each has read what was sent to it.
func (s *Server) settled(t *testing.T, n int) []*conn {
	t.Helper()
	for late := time.Now().Add(patience); time.Now().Before(late); <-time.After(time.Millisecond) {
		s.mu.Lock()
		var out []*conn
		for c := range s.conns {
			if queued, err := c.ioctlInt(unix.TIOCINQ); err == nil && queued == 0 {
				out = append(out, c)
			}
		}
		s.mu.Unlock()
		if len(out) == n {
			return out
		}
	}
	t.Fatalf("there are never %d connections that have been read", n)
	return nil
}

// It was closed under the first request of callers that had just connected.
func TestNewConnectionIsStillAnsweredDuringShutdown(t *testing.T) {
	s := &Server{Handler: handlerEcho}
	addr := serve(t, s)
	c := dial(t, addr)
	for _, sc := range s.settled(t, 1) {
		// However long this test is kept from running, it stays new.
		sc.mu.Lock()
		sc.began = time.Now().Add(time.Hour)
		sc.mu.Unlock()
	}
	used := dial(t, addr)
	send(t, used, plainGet)
	usedR := bufio.NewReader(used)
	answerOf(t, usedR, http.MethodGet)
	over, stop := context.WithCancel(t.Context())
	stop()
	if err := s.Shutdown(over); err == nil {
		t.Error("Shutdown did not wait")
	}
	if _, err := usedR.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("a connection that has been used: %v", err)
	}
	send(t, c, plainGet)
	if resp, _ := answerOf(t, bufio.NewReader(c), http.MethodGet); resp.StatusCode != http.StatusOK || !resp.Close {
		t.Errorf("status %d, last %v", resp.StatusCode, resp.Close)
	}
	_ = c.Close()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
}

// They counted as a request that has begun.
func TestEmptyLinesAloneDoNotHoldShutdown(t *testing.T) {
	s := &Server{Handler: handlerEcho}
	addr := serve(t, s)
	fresh, used := dial(t, addr), dial(t, addr)
	send(t, used, plainGet)
	answerOf(t, bufio.NewReader(used), http.MethodGet)
	for _, c := range []net.Conn{fresh, used} {
		send(t, c, "\r\n")
	}
	s.settled(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
}

func TestEmptyLinesDoNotGiveTheHeadMoreTime(t *testing.T) {
	t.Parallel()
	s := &Server{Handler: handlerEcho, ReadHeaderTimeout: 2 * time.Second}
	c := dial(t, serve(t, s))
	br := bufio.NewReader(c)
	send(t, c, plainGet)
	answerOf(t, br, http.MethodGet)
	for _, piece := range []string{"\r", "\n", "GET / HT"} {
		send(t, c, piece)
		s.settled(t, 1)
	}
	if resp, _ := answerOf(t, br, http.MethodGet); resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// lateListener gives a connection only once the server has begun to end.
type lateListener struct {
	net.Listener
	// taken is closed with the first connection.
	taken  chan<- struct{}
	ending <-chan struct{}
}

func (l lateListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		close(l.taken)
		<-l.ending
	}
	return c, err
}

// It was closed without an answer.
func TestConnectionTakenWhileShutdownBeginsIsAnswered(t *testing.T) {
	l, taken, ending := listen(t), make(chan struct{}), make(chan struct{})
	s := &Server{Handler: handlerEcho}
	done := make(chan error, 1)
	go func() { done <- s.Serve(lateListener{l, taken, ending}) }()
	t.Cleanup(func() { _ = s.Close() })
	c := dial(t, l.Addr().String())
	send(t, c, plainGet)
	over, stop := context.WithCancel(t.Context())
	stop()
	recv(t, "a connection", taken)
	_ = s.Shutdown(over)
	close(ending)
	if resp, _ := answerOf(t, bufio.NewReader(c), http.MethodGet); resp.StatusCode != http.StatusOK || !resp.Close {
		t.Errorf("status %d, last %v", resp.StatusCode, resp.Close)
	}
	if err := recv(t, "the end of Serve", done); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve = %v", err)
	}
}
