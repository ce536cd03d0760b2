package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen; it decides nothing but when to give up.
const patience = 20 * time.Second

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve runs a Server until the test ends, and returns its address.
func serve(t testing.TB, s *Server) string {
	t.Helper()
	l := listen(t)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("connections left: %v", err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve = %v", err)
		}
	})
	return l.Addr().String()
}

// serveStock runs net/http's server until the test ends.
func serveStock(t testing.TB, h http.Handler) string {
	t.Helper()
	l := listen(t)
	s := &http.Server{Handler: h, DisableGeneralOptionsHandler: true, ErrorLog: nil}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
	return l.Addr().String()
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

func send(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func answerOf(t testing.TB, br *bufio.Reader, method string) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(br, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("answer cut after %q: %v", b, err)
	}
	return resp, string(b)
}

func recv[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not happen within %s", what, patience)
		panic("unreachable")
	}
}

// echo answers with what reached it.
func echo(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "%s %s %s host=%q len=%d body=%q err=%v", r.Method, r.RequestURI, r.Proto, r.Host, r.ContentLength, b, err != nil)
}

var handlerEcho = http.HandlerFunc(echo)

func post(t testing.TB, rt http.RoundTripper, url, body string) (*http.Response, string) {
	t.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, rd)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func newClient(t testing.TB) *Client {
	c := &Client{}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func TestClientAndServerUnderstandEachOtherAndNetHTTP(t *testing.T) {
	ours, stock := serve(t, &Server{Handler: handlerEcho}), serveStock(t, handlerEcho)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	long := strings.Repeat("x", 300_000)
	for name, c := range map[string]struct {
		rt   http.RoundTripper
		addr string
	}{"both ours": {newClient(t), ours}, "our client": {newClient(t), stock}, "our server": {tr, ours}} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				for _, body := range []string{"", "hello", long} {
					resp, got := post(t, c.rt, "http://"+c.addr+"/a%2Fb?q=1", body)
					want := fmt.Sprintf("POST /a%%2Fb?q=1 HTTP/1.1 host=%q len=%d body=%q err=false", c.addr, len(body), body)
					if resp.StatusCode != http.StatusOK || got != want {
						t.Fatalf("status %d, answer %.200q, want %.200q", resp.StatusCode, got, want)
					}
				}
			}
		})
	}
}
