package wire

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cpu is the processor time of the whole process, client and engine included, which are the same for both stacks.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// stack is one way to serve callers and to reach the engine.
type stack struct {
	name  string
	serve func(testing.TB, http.Handler) string
	rt    func() (http.RoundTripper, func())
}

func stacks() []stack {
	return []stack{
		{"net-http", serveStock, func() (http.RoundTripper, func()) {
			t := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
			return t, t.CloseIdleConnections
		}},
		{"wire", func(b testing.TB, h http.Handler) string { return serve(b, &Server{Handler: h}) }, func() (http.RoundTripper, func()) {
			c := &Client{}
			return c, c.CloseIdleConnections
		}},
	}
}

// relay passes a request on and the answer back, as plainly as it can.
func relay(rt http.RoundTripper, engine string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+engine+r.URL.Path, r.Body)
		if err != nil {
			return
		}
		out.ContentLength = r.ContentLength
		resp, err := rt.RoundTrip(out)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		for _, name := range []string{"Content-Type", "Content-Length"} {
			if v := resp.Header[name]; v != nil {
				w.Header()[name] = v
			}
		}
		w.WriteHeader(resp.StatusCode)
		pass(w, resp.Body)
	})
}

func pass(w http.ResponseWriter, body io.Reader) {
	now, direct := w.(Conn)
	buf := make([]byte, 4096)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if direct {
				if k, err := now.WriteNow(buf[:n]); err != nil || k < n {
					return
				}
			} else {
				_, _ = w.Write(buf[:n])
				_ = http.NewResponseController(w).Flush()
			}
		}
		if err != nil {
			return
		}
	}
}

// rawEngine answers each request with the same bytes; with events, one by one, each when the one before was read.
func rawEngine(b *testing.B, events int) string {
	l := listen(b)
	event := "data: " + strings.Repeat("x", 220) + "\n\n"
	piece := fmt.Sprintf("%x\r\n%s\r\n", len(event), event)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				br := bufio.NewReader(c)
				for take(br) {
					if events == 0 {
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 300\r\n\r\n"+strings.Repeat("y", 300))
						continue
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
					tick := time.NewTicker(time.Millisecond)
					for range events {
						<-tick.C
						_, _ = io.WriteString(c, piece)
					}
					tick.Stop()
					_, _ = io.WriteString(c, "0\r\n\r\n")
				}
			}()
		}
	}()
	b.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// one asks on a raw connection and reads until the answer's end.
func one(b *testing.B, c net.Conn, buf []byte, end func(total int, tail []byte) bool) {
	if _, err := io.WriteString(c, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 400\r\n\r\n"+strings.Repeat("z", 400)); err != nil {
		b.Fatal(err)
	}
	for total := 0; ; {
		n, err := c.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		if total += n; end(total, buf[:n]) {
			return
		}
	}
}

// BenchmarkSmall is one small request after the other through a relay; BenchmarkEvent is a stream of events, a millisecond
// apart. "cpu-ns" counts everything in the process, and so the same client and engine for both stacks: the relay's own share
// differs more than these numbers.
func BenchmarkSmall(b *testing.B) {
	for _, s := range stacks() {
		b.Run(s.name, func(b *testing.B) {
			rt, done := s.rt()
			defer done()
			c := dial(b, s.serve(b, relay(rt, rawEngine(b, 0))))
			_ = c.SetDeadline(time.Time{})
			buf := make([]byte, 8192)
			b.ReportAllocs()
			before, n := cpu(b), 0
			for b.Loop() {
				one(b, c, buf, func(_ int, tail []byte) bool { return tail[len(tail)-1] == 'y' })
				n++
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(n), "cpu-ns/op")
		})
	}
}

// BenchmarkEvent: see BenchmarkSmall.
func BenchmarkEvent(b *testing.B) {
	const events = 100
	for _, s := range stacks() {
		b.Run(s.name, func(b *testing.B) {
			rt, done := s.rt()
			defer done()
			c := dial(b, s.serve(b, relay(rt, rawEngine(b, events))))
			_ = c.SetDeadline(time.Time{})
			buf := make([]byte, 8192)
			b.ReportAllocs()
			before, n := cpu(b), 0
			for b.Loop() {
				one(b, c, buf, func(_ int, tail []byte) bool { return strings.HasSuffix(string(tail), "0\r\n\r\n") })
				n++
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(n*events), "cpu-ns/event")
		})
	}
}

// BenchmarkHead parses a common head.
func BenchmarkHead(b *testing.B) {
	text := "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:8080\r\nAuthorization: Bearer sk-1\r\nContent-Type: application/json\r\n" +
		"Accept: application/json\r\nUser-Agent: OpenAI/Python 1.0\r\nX-Stainless-Lang: python\r\nContent-Length: 400\r\n\r\n"
	b.ReportAllocs()
	h := &head{header: http.Header{}}
	for b.Loop() {
		clear(h.header)
		if p := h.parse(text); p != nil {
			b.Fatal(p)
		}
	}
}
