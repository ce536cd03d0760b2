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
	"sync/atomic"
	"testing"
	"time"
)

// scripted is an engine whose connections a test plays by hand.
func scripted(t *testing.T, play func(n int, c *net.TCPConn, br *bufio.Reader)) (url string, conns *atomic.Int64) {
	t.Helper()
	l := listen(t)
	conns = &atomic.Int64{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := int(conns.Add(1))
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				play(n, c.(*net.TCPConn), bufio.NewReader(c))
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "http://" + l.Addr().String() + "/x", conns
}

// take reads one request.
func take(br *bufio.Reader) bool {
	r, err := http.ReadRequest(br)
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	return err == nil
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func ask(ctx context.Context, t *testing.T, c *Client, url, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return c.RoundTrip(req)
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	url, conns := scripted(t, func(_ int, c *net.TCPConn, br *bufio.Reader) {
		for i := 0; ; i++ {
			if ok := take(br); !ok {
				return
			}
			answers := []string{okAnswer, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n",
				"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" + okAnswer, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"}
			send(t, c, answers[i%len(answers)])
		}
	})
	c := newClient(t)
	for range 12 {
		post(t, c, url, "hello")
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestConnectionsAreNotUsedAgainWhenTheyMustNot(t *testing.T) {
	for name, answer := range map[string]string{
		"told":             "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.0":         "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"bytes after it":   okAnswer + "HTTP/1.1 200 OK\r\n",
		"two lengths":      "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"until the end":    "HTTP/1.1 200 OK\r\n\r\nok",
		"closed afterward": okAnswer,
	} {
		t.Run(name, func(t *testing.T) {
			url, conns := scripted(t, func(_ int, c *net.TCPConn, br *bufio.Reader) {
				if ok := take(br); ok {
					send(t, c, answer)
				}
				if !strings.Contains(name, "end") && !strings.Contains(name, "closed") {
					take(br)
				}
			})
			c := newClient(t)
			for i := range 3 {
				if _, got := post(t, c, url, "hello"); got != "ok" {
					t.Errorf("answer %q", got)
				}
				if name == "closed afterward" {
					untilClosed(t, c)
				}
				if n := conns.Load(); n != int64(i+1) {
					t.Errorf("%d connections after %d requests", n, i+1)
				}
			}
		})
	}
}

// untilClosed waits until the one idle connection is known to be closed by the other side.
func untilClosed(t *testing.T, c *Client) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.idle {
		for _, e := range l {
			for late := time.Now().Add(patience); e.alive(); <-time.After(time.Millisecond) {
				if time.Now().After(late) {
					t.Fatal("still open")
				}
			}
		}
	}
}

// A request of which the engine may have seen something must not be sent twice.
func TestRequestThatMayHaveBeenSeenIsNotSentAgain(t *testing.T) {
	var seen atomic.Int64
	url, _ := scripted(t, func(_ int, c *net.TCPConn, br *bufio.Reader) {
		for {
			if ok := take(br); !ok {
				return
			}
			if seen.Add(1)%2 == 0 {
				return
			}
			send(t, c, okAnswer)
		}
	})
	c := newClient(t)
	post(t, c, url, "hello")
	resp, err := ask(t.Context(), t, c, url, "hello")
	if err == nil {
		resp.Body.Close()
		t.Fatal("no error")
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) || seen.Load() != 2 {
		t.Errorf("%v; the engine saw %d requests", err, seen.Load())
	}
}

func TestDeadlineOfAReadLeavesTheBodyAsItWas(t *testing.T) {
	for name, head := range map[string]string{"chunked": "Transfer-Encoding: chunked\r\n\r\n3\r\n", "sized": "Content-Length: 6\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			goOn := make(chan struct{})
			url, conns := scripted(t, func(_ int, c *net.TCPConn, br *bufio.Reader) {
				for {
					if ok := take(br); !ok {
						return
					}
					send(t, c, "HTTP/1.1 200 OK\r\n"+head+"abc")
					<-goOn
					if name == "chunked" {
						send(t, c, "\r\n3\r\ndef\r\n0\r\n\r\n")
					} else {
						send(t, c, "def")
					}
				}
			})
			c := newClient(t)
			for range 2 {
				resp, err := ask(t.Context(), t, c, url, "x")
				if err != nil {
					t.Fatal(err)
				}
				body := resp.Body.(ResponseBody)
				buf := make([]byte, 100)
				if n, err := body.Read(buf); string(buf[:n]) != "abc" || err != nil {
					t.Fatalf("first read %q, %v", buf[:n], err)
				}
				for range 3 {
					_ = body.SetReadDeadline(time.Now().Add(time.Millisecond))
					if n, err := body.Read(buf); n != 0 || !isTimeout(err) {
						t.Fatalf("read %d bytes, %v", n, err)
					}
				}
				_ = body.SetReadDeadline(time.Time{})
				goOn <- struct{}{}
				if rest, err := io.ReadAll(body); string(rest) != "def" || err != nil {
					t.Fatalf("rest %q, %v", rest, err)
				}
			}
			if n := conns.Load(); n != 1 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

func TestContextThatEndsClosesTheConnection(t *testing.T) {
	for _, stage := range []string{"before the head", "in the body"} {
		t.Run(stage, func(t *testing.T) {
			got, closed := make(chan struct{}), make(chan struct{})
			url, _ := scripted(t, func(_ int, c *net.TCPConn, br *bufio.Reader) {
				take(br)
				if stage == "in the body" {
					send(t, c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
				}
				close(got)
				_, _ = br.ReadByte()
				close(closed)
			})
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-got; cancel() }()
			resp, err := ask(ctx, t, newClient(t), url, "x")
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			recv(t, "the connection's end", closed)
		})
	}
}

func TestBodyThatIsClosedEarlyTakesItsConnectionWithIt(t *testing.T) {
	closed := make(chan struct{})
	url, _ := scripted(t, func(_ int, c *net.TCPConn, br *bufio.Reader) {
		take(br)
		send(t, c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
		_, _ = br.ReadByte()
		close(closed)
	})
	resp, err := ask(t.Context(), t, newClient(t), url, "x")
	if err != nil {
		t.Fatal(err)
	}
	reading := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(resp.Body)
		reading <- err
	}()
	resp.Body.Close()
	if err := recv(t, "the read's end", reading); err == nil {
		t.Error("a closed body ended like a whole one")
	}
	recv(t, "the connection's end", closed)
}

func TestCutBodyIsAnError(t *testing.T) {
	for name, answer := range map[string]string{
		"sized":         "Content-Length: 10\r\n\r\nabc",
		"chunked":       "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"bad chunk":     "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
		"in its size":   "Transfer-Encoding: chunked\r\n\r\n3",
		"last one open": "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := scripted(t, func(_ int, c *net.TCPConn, br *bufio.Reader) {
				take(br)
				send(t, c, "HTTP/1.1 200 OK\r\n"+answer)
			})
			resp, err := ask(t.Context(), t, newClient(t), url, "x")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("%q ended like a whole answer", got)
			}
		})
	}
}

func TestMalformedAnswersAreErrorsThatQuoteNothing(t *testing.T) {
	for name, answer := range map[string]string{
		"not HTTP":     "SECRET\r\n\r\n",
		"status":       "HTTP/1.1 2x0 SECRET\r\n\r\n",
		"version":      "HTTP/2.0 200 SECRET\r\n\r\n",
		"field":        "HTTP/1.1 200 OK\r\nSECRET\r\n\r\n",
		"bare LF":      "HTTP/1.1 200 OK\nSECRET: x\n\n",
		"length":       "HTTP/1.1 200 OK\r\nContent-Length: SECRET\r\n\r\n",
		"coding":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: SECRET\r\n\r\n",
		"upgrade":      "HTTP/1.1 101 SECRET\r\n\r\n",
		"many infos":   strings.Repeat("HTTP/1.1 103 SECRET\r\n\r\n", 20),
		"endless head": "HTTP/1.1 200 SECRET\r\nX: " + strings.Repeat("x", 2<<20),
		"nothing":      "",
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := scripted(t, func(_ int, c *net.TCPConn, br *bufio.Reader) {
				take(br)
				_, _ = io.WriteString(c, answer)
			})
			resp, err := ask(t.Context(), t, newClient(t), url, "x")
			if err == nil {
				resp.Body.Close()
				t.Fatalf("status %d", resp.StatusCode)
			}
			if strings.Contains(err.Error(), "SECRET") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// An engine that answers before it has read a large body was waited for until it read on, which it never did.
func TestAnswerBeforeTheBodyWasReadArrives(t *testing.T) {
	stay := make(chan struct{})
	url, _ := scripted(t, func(_ int, c *net.TCPConn, br *bufio.Reader) {
		_, _ = http.ReadRequest(br)
		send(t, c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		<-stay
	})
	defer close(stay)
	resp, got := post(t, newClient(t), url, strings.Repeat("x", 64<<20))
	if resp.StatusCode != http.StatusRequestEntityTooLarge || got != "no" {
		t.Errorf("status %d, body %q", resp.StatusCode, got)
	}
}

func TestBodiesOfUnknownLengthAreSentInChunks(t *testing.T) {
	addr := serveStock(t, handlerEcho)
	for _, n := range []int{0, 1, 16<<10 - 200, 16 << 10, 300_000} {
		want := strings.Repeat("y", n)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/", struct{ io.Reader }{strings.NewReader(want)})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := newClient(t).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(got) != fmt.Sprintf("POST / HTTP/1.1 host=%q len=-1 body=%q err=false", addr, want) {
			t.Errorf("%d bytes: answer %.100q of %d", n, got, len(got))
		}
	}
}

func TestBodyShorterThanDeclaredIsNotTakenForWhole(t *testing.T) {
	whole := make(chan bool, 1)
	url, _ := scripted(t, func(_ int, _ *net.TCPConn, br *bufio.Reader) {
		ok := take(br)
		whole <- ok
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, struct{ io.Reader }{strings.NewReader("abc")})
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = 1 << 20
	if resp, err := newClient(t).RoundTrip(req); !errors.Is(err, errShortBody) {
		if err == nil {
			resp.Body.Close()
		}
		t.Errorf("error %v", err)
	}
	_ = whole
}

func TestIdleConnectionsGoAfterTheirTime(t *testing.T) {
	closed := make(chan struct{})
	url, _ := scripted(t, func(_ int, c *net.TCPConn, br *bufio.Reader) {
		take(br)
		send(t, c, okAnswer)
		_, _ = br.ReadByte()
		close(closed)
	})
	c := newClient(t)
	c.IdleTimeout = 10 * time.Millisecond
	post(t, c, url, "x")
	recv(t, "the idle connection's end", closed)
}

func TestWhatCannotBeSentIsRefused(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"https":  func(r *http.Request) { r.URL.Scheme = "https" },
		"method": func(r *http.Request) { r.Method = "A B" },
		"field":  func(r *http.Request) { r.Header["X"] = []string{"a\r\nY: b"} },
		"name":   func(r *http.Request) { r.Header["X Y"] = []string{"a"} },
		"host":   func(r *http.Request) { r.Host = "a\r\nb" },
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:1/", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			change(req)
			if resp, err := newClient(t).RoundTrip(req); !errors.Is(err, errScheme) && !errors.Is(err, errBadHead) {
				if err == nil {
					resp.Body.Close()
				}
				t.Errorf("error %v", err)
			}
		})
	}
}
