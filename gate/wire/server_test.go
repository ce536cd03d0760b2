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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// onStream serves one handler that a test drives, and returns its connection.
func onStream(t *testing.T, s *Server, h http.HandlerFunc, request string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	s.Handler = h
	c := dial(t, serve(t, s))
	send(t, c, request)
	return c, bufio.NewReader(c)
}

const plainGet = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

func TestCallerThatLeavesEndsTheContext(t *testing.T) {
	for name, leave := range map[string]func(c *net.TCPConn){
		"closes":                  func(c *net.TCPConn) { c.Close() },
		"closes its sending half": func(c *net.TCPConn) { _ = c.CloseWrite() },
		"resets":                  func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			in, out := make(chan struct{}), make(chan struct{})
			c, _ := onStream(t, &Server{}, func(_ http.ResponseWriter, r *http.Request) {
				close(in)
				<-r.Context().Done()
				close(out)
			}, plainGet)
			recv(t, "the request", in)
			leave(c)
			recv(t, "the end of its context", out)
		})
	}
}

func TestCallerThatLeftBeforeItsRequestIsServedIsGone(t *testing.T) {
	gone := make(chan struct{})
	c, _ := onStream(t, &Server{}, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/second" {
			<-r.Context().Done()
			close(gone)
			return
		}
		<-r.Context().Done()
	}, plainGet+"GET /second HTTP/1.1\r\nHost: h\r\n\r\n")
	_ = c.CloseWrite()
	recv(t, "the second request's end", gone)
}

func TestContextLivesWhileTheCallerDoes(t *testing.T) {
	ask := make(chan struct{})
	c, br := onStream(t, &Server{}, func(w http.ResponseWriter, r *http.Request) {
		<-ask
		fmt.Fprint(w, r.Context().Err())
	}, plainGet)
	send(t, c, plainGet)
	close(ask)
	for range 2 {
		if _, got := answerOf(t, br, "GET"); got != "<nil>" {
			t.Errorf("context of a caller that is there: %s", got)
		}
	}
}

func TestContinueIsSentWhenTheBodyIsReadAndNotBefore(t *testing.T) {
	read := make(chan bool)
	c, br := onStream(t, &Server{}, func(w http.ResponseWriter, r *http.Request) {
		if <-read {
			echo(w, r)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	}, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	read <- true
	if line, _ := br.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("first line %q", line)
	}
	_, _ = br.ReadString('\n')
	send(t, c, "hello")
	if _, got := answerOf(t, br, "POST"); !strings.Contains(got, `body="hello"`) {
		t.Errorf("answer %s", got)
	}
	send(t, c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	read <- false
	resp, _ := answerOf(t, br, "POST")
	if resp.StatusCode != http.StatusForbidden || !resp.Close {
		t.Errorf("status %d, close %v: what follows cannot be told from a body", resp.StatusCode, resp.Close)
	}
}

func TestAnswerReachesACallerThatIsStillSendingALargeBody(t *testing.T) {
	const n = 10_000_000
	c, br := onStream(t, &Server{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) },
		fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", n))
	go func() { _, _ = c.Write(bytes.Repeat([]byte("x"), n)); _, _ = io.WriteString(c, plainGet) }()
	if resp, _ := answerOf(t, br, "POST"); resp.StatusCode != http.StatusTeapot || !resp.Close {
		t.Errorf("status %d, close %v", resp.StatusCode, resp.Close)
	}
}

func TestSlowHeadAndSlowBodyAreCut(t *testing.T) {
	l := listen(t)
	br := bufio.NewReader(dial(t, l.Addr().String()))
	c := dial(t, l.Addr().String())
	send(t, c, "GET / HT")
	s := &Server{ReadHeaderTimeout: 20 * time.Millisecond}
	go s.Serve(l)
	defer s.Close()
	if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("a connection that sends nothing ends with %v", err)
	}
	br = bufio.NewReader(c)
	if resp, body := answerOf(t, br, "GET"); resp.StatusCode != http.StatusRequestTimeout || !strings.Contains(body, "slow_head") {
		t.Errorf("status %d, body %s", resp.StatusCode, body)
	}
	failed := make(chan error, 1)
	_, br = onStream(t, &Server{}, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err := io.ReadAll(r.Body)
		failed <- err
		w.WriteHeader(http.StatusBadRequest)
	}, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\nhello")
	if err := recv(t, "the body's end", failed); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	answerOf(t, br, "POST")
}

// A deadline that one request had ended the next one's body or answer.
func TestDeadlinesEndWithTheirRequest(t *testing.T) {
	c, br := onStream(t, &Server{}, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.Method == http.MethodPost {
			echo(w, r)
			return
		}
		_ = rc.SetReadDeadline(past())
		_ = rc.SetWriteDeadline(past())
		if _, err := w.Write(make([]byte, 5000)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a write after its deadline: %v", err)
		}
		_ = rc.SetWriteDeadline(time.Time{})
	}, plainGet)
	if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection of an answer that could not be written ends with %v", err)
	}
	_ = c
	c, br = onStream(t, &Server{}, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.Method == http.MethodPost {
			echo(w, r)
		} else {
			_, _ = io.WriteString(w, "x")
			_ = rc.Flush()
		}
		_ = rc.SetReadDeadline(past())
	}, plainGet)
	answerOf(t, br, "GET")
	send(t, c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\na")
	send(t, c, "b")
	if _, got := answerOf(t, br, "POST"); !strings.Contains(got, `body="ab"`) {
		t.Errorf("answer %s", got)
	}
}

func TestIdleConnectionIsClosedAndABusyOneIsNot(t *testing.T) {
	wait := make(chan struct{})
	c, br := onStream(t, &Server{IdleTimeout: 20 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		<-wait
		echo(w, r)
	}, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\na")
	// Longer than an idle connection may wait.
	<-time.After(50 * time.Millisecond)
	close(wait)
	send(t, c, "b")
	if _, got := answerOf(t, br, "POST"); !strings.Contains(got, `body="ab"`) {
		t.Errorf("answer %s", got)
	}
	if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("an idle connection ends with %v, want EOF", err)
	}
}

func TestHeadMayBeLargeAndComeInPiecesUpToTheLimit(t *testing.T) {
	c, br := onStream(t, &Server{MaxHeaderBytes: 100_000}, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, len(r.Header.Get("X-Long")))
	}, "GET / HTTP/1.1\r\nHost: h\r\nX-Long: ")
	for range 90 {
		send(t, c, strings.Repeat("x", 1000))
	}
	for _, piece := range []string{"\r", "\n", "\r", "\n"} {
		send(t, c, piece)
	}
	if _, got := answerOf(t, br, "GET"); got != "90000" {
		t.Errorf("%s bytes arrived", got)
	}
	go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nX: "+strings.Repeat("x", 200_000)) }()
	if resp, _ := answerOf(t, br, "GET"); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestShutdownLetsStreamsEndAndClosesWhatWaits(t *testing.T) {
	in, end := make(chan struct{}), make(chan struct{})
	s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "begin,")
			_ = http.NewResponseController(w).Flush()
			close(in)
			<-end
		}
		_, _ = io.WriteString(w, "end")
	})}
	addr := serve(t, s)
	idle, busy, fresh := dial(t, addr), dial(t, addr), dial(t, addr)
	send(t, idle, plainGet)
	idleR := bufio.NewReader(idle)
	answerOf(t, idleR, "GET")
	send(t, busy, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n")
	recv(t, "the stream", in)
	short, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(short) }()
	for name, r := range map[string]io.Reader{"idle": idleR, "new": fresh} {
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s connection: %v", name, err)
		}
	}
	cancel()
	if err := recv(t, "the end of waiting", done); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown = %v", err)
	}
	close(end)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	br := bufio.NewReader(busy)
	if _, got := answerOf(t, br, "GET"); got != "begin,end" {
		t.Errorf("the stream got %q", got)
	}
	if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream's connection goes on: %v", err)
	}
}

func TestAbortedAnswerDoesNotLookWhole(t *testing.T) {
	for name, request := range map[string]string{"chunked": plainGet, "until the end": "GET / HTTP/1.0\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			_, br := onStream(t, &Server{}, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat("x", 5000))
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}, request)
			resp, err := http.ReadResponse(br, nil)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if err == nil {
				t.Error("the cut answer ended like a whole one")
			}
		})
	}
}

func TestAnswersAreFramedAsTheyShould(t *testing.T) {
	for name, tc := range map[string]struct {
		h      http.HandlerFunc
		method string
		length int64
		body   string
		err    bool
	}{
		"nothing": {h: func(http.ResponseWriter, *http.Request) {}, body: ""},
		"short":   {h: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "abc") }, length: 3, body: "abc"},
		"long":    {h: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 30000)) }, length: -1, body: strings.Repeat("x", 30000)},
		"declared": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			_, _ = io.WriteString(w, "abc")
		}, length: 3, body: "abc"},
		"declared longer": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			_, _ = io.WriteString(w, "abc")
		}, length: 4, err: true},
		"no content": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			_, _ = io.WriteString(w, "abc")
		}},
		"to HEAD": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			_, _ = io.WriteString(w, "abc")
		}, method: "HEAD", length: 3},
	} {
		t.Run(name, func(t *testing.T) {
			method := tc.method
			if method == "" {
				method = "GET"
			}
			_, br := onStream(t, &Server{}, tc.h, method+" / HTTP/1.1\r\nHost: h\r\n\r\n")
			resp, err := http.ReadResponse(br, &http.Request{Method: method})
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if (err != nil) != tc.err || !tc.err && string(body) != tc.body || resp.ContentLength != tc.length {
				t.Errorf("length %d, body %.50q, error %v", resp.ContentLength, body, err)
			}
			if resp.Header.Get("Date") == "" {
				t.Error("no date")
			}
		})
	}
}

// What a handler puts into a field must not become another one.
func TestLineEndsInFieldsDoNotSplitTheAnswer(t *testing.T) {
	_, br := onStream(t, &Server{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-A", "a\r\nX-B: b")
		w.Header()["X C"] = []string{"c"}
	}, plainGet)
	resp, _ := answerOf(t, br, "GET")
	if resp.Header.Get("X-A") != "a  X-B: b" || resp.Header.Get("X-B") != "" {
		t.Errorf("headers %v", resp.Header)
	}
}

func TestUnixSocketsAreServed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan struct{})
	s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-r.Context().Done()
			close(left)
		}
		echo(w, r)
	})}
	go s.Serve(l)
	defer s.Close()
	leaver, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer leaver.Close()
	send(t, leaver, "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
	_ = leaver.(*net.UnixConn).CloseWrite()
	recv(t, "the end of the leaver's context", left)
	c := newClient(t)
	c.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	for range 2 {
		if _, got := post(t, c, "http://engine/x", "hello"); !strings.Contains(got, `host="engine" len=5 body="hello"`) {
			t.Errorf("answer %s", got)
		}
	}
}
