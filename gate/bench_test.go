package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/gate/wire"
	"admitd/signals"
	"admitd/supervisor"
)

// instant is an engine that answers from memory, so that a benchmark sees the gate alone.
type instant struct{ fakeEngine }

func (*instant) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(wholeJSON)), ContentLength: int64(len(wholeJSON))}, nil
}

// benchGate is a gate before an engine that is always ready.
func benchGate(tb testing.TB, e supervisor.Engine) *Server {
	tb.Helper()
	snap := signals.NewSnapshot(signals.Snapshot{})
	j, err := journal.New(journal.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	g, err := New(Options{Pools: []*Pool{{Model: "m", EngineModel: "m", Engine: e, Journal: j,
		Snapshot: func() *signals.Snapshot { return snap }, Admission: NewAdmission(admission.New(admission.Config{}, nil), time.Now)}}})
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// BenchmarkWalk is one request through the gate, from the handler's entry to its settlement, without any socket.
func BenchmarkWalk(b *testing.B) {
	e := &instant{}
	e.status, e.transport = supervisor.Status{State: supervisor.Ready}, e
	g := benchGate(b, e)
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(chatBody)))
		if w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}

// socketed is a gate between wire's server and client, with an engine on loopback that answers each request with the same bytes,
// and a caller's connection to it. Neither engine nor caller allocates anything.
type socketed struct {
	caller net.Conn
	buf    []byte
}

func newSocketed(tb testing.TB) *socketed {
	tb.Helper()
	engine := listenLoopback(tb)
	go answerAll(engine)
	client := &wire.Client{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", engine.Addr().String())
	}}
	e := &fakeEngine{status: supervisor.Status{State: supervisor.Ready}, transport: client}
	srv := &wire.Server{Handler: benchGate(tb, e)}
	front := listenLoopback(tb)
	go func() { _ = srv.Serve(front) }()
	c, err := new(net.Dialer).DialContext(tb.Context(), "tcp", front.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		c.Close()
		srv.Close()
		client.CloseIdleConnections()
		engine.Close()
	})
	return &socketed{caller: c, buf: make([]byte, 16<<10)}
}

func listenLoopback(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// answerAll answers whatever comes in one piece.
func answerAll(l net.Listener) {
	answer := []byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(wholeJSON), wholeJSON))
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for buf := make([]byte, 16<<10); ; {
				if _, err := c.Read(buf); err != nil {
					return
				}
				if _, err := c.Write(answer); err != nil {
					return
				}
			}
		}()
	}
}

var smallCall = []byte("POST " + chatPath + " HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nAccept: */*\r\nUser-Agent: bench\r\n" +
	"Authorization: Bearer sk-bench\r\nContent-Length: " + strconv.Itoa(len(chatBody)) + "\r\n\r\n" + chatBody)

var errNotWhole = errors.New("an answer is not whole")

// call sends the small request and reads its answer.
func (s *socketed) call() error {
	if _, err := s.caller.Write(smallCall); err != nil {
		return err
	}
	for n := 0; !bytes.HasSuffix(s.buf[:n], []byte("}}")); {
		got, err := s.caller.Read(s.buf[n:])
		if err != nil {
			return errors.Join(errNotWhole, err)
		}
		n += got
	}
	return nil
}

// BenchmarkSmallRequest is one small request after the other through sockets, server, gate and client.
func BenchmarkSmallRequest(b *testing.B) {
	s := newSocketed(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.call(); err != nil {
			b.Fatal(err)
		}
	}
}
