package wire

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultMaxHeaderBytes is the largest request head, in bytes, when Server does not say.
	DefaultMaxHeaderBytes = http.DefaultMaxHeaderBytes
	// maxDrain is how many bytes of a body that no handler read are read so that the connection can be used again.
	maxDrain = 256 << 10
	// drainWithin bounds that reading, which delays the answer.
	drainWithin = time.Second
	// refuseWithin bounds the writing of the answer to what is no request, and the wait for a request that crossed with the end.
	refuseWithin = 5 * time.Second
	// lingerFor is how long a connection that is closed after an answer is still read, so that the answer arrives, and
	// lingerMost how long it is when the caller has not got all of the answer yet.
	lingerFor  = 500 * time.Millisecond
	lingerMost = 5 * time.Second
	// spareFor is how long after its start a connection that has sent nothing yet is not closed by Shutdown.
	spareFor = 2 * time.Second
)

// Server serves HTTP/1.1 on plain listeners. Its fields must not change once Serve was called. The zero value of a
// limit means its default or, for times, no limit.
//
// Neither request nor writer, nor the maps in them, may be used once the handler has returned: the next request uses them.
// Only the request's context and the strings may be kept.
//
// The http.ResponseWriter it gives to handlers has Flush, FlushError, WriteString, what http.ResponseController needs
// for deadlines and full duplex, and the methods of Conn.
type Server struct {
	// Handler answers the requests; required.
	Handler http.Handler
	// ReadHeaderTimeout bounds the time from a request's first byte (on a new connection: from its start) to the end
	// of its head; IdleTimeout the wait for a next request.
	ReadHeaderTimeout, IdleTimeout time.Duration
	// MaxHeaderBytes is the largest head, in bytes; 0 means DefaultMaxHeaderBytes.
	MaxHeaderBytes int
	// Logger is told of panics in handlers (Error) and of connections that fail (Debug); nil discards.
	Logger *slog.Logger
	// ConnContext changes the context of a new connection's requests; c is the plain connection.
	ConnContext func(ctx context.Context, c net.Conn) context.Context
	// BadRequest answers a request that was refused before any handler could see it, and may count it; the connection
	// is closed afterwards. nil answers with a JSON object.
	BadRequest func(w http.ResponseWriter, p *Problem)

	bufs buffers
	// responses are what requests that were answered leave to the next.
	responses sync.Pool
	date      atomic.Pointer[dateLine]
	closing   atomic.Bool

	mu        sync.Mutex
	watch     *watcher
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	// serving counts Serve calls and connections; idle is closed when closing has begun and it falls to zero.
	serving int
	idle    chan struct{}
	// closed: Close was called.
	closed bool
}

// Serve takes connections from l, each of which must be a plain TCP or unix socket, until Shutdown or Close; then it
// returns http.ErrServerClosed. It closes l. May be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	defer func() { _ = l.Close() }()
	if err := s.begin(l); err != nil {
		return err
	}
	defer s.end(l)
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.start(nc)
			continue
		case s.closing.Load():
			return http.ErrServerClosed
		case !temporary(err):
			return err
		}
		// Out of descriptors or memory: it passes.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.logger().Warn("cannot take a connection; trying again", "error", err, "in", pause)
		t := time.NewTimer(pause)
		<-t.C
	}
}

func temporary(err error) bool {
	var ne interface{ Temporary() bool }
	return errors.As(err, &ne) && ne.Temporary()
}

func (s *Server) logger() *slog.Logger {
	if s.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Logger
}

func (s *Server) maxHead() int {
	if s.MaxHeaderBytes <= 0 {
		return DefaultMaxHeaderBytes
	}
	return s.MaxHeaderBytes
}

func (s *Server) begin(l net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return http.ErrServerClosed
	}
	if s.watch == nil {
		w, err := newWatcher()
		if err != nil {
			return err
		}
		s.watch = w
		s.listeners, s.conns = map[net.Listener]struct{}{}, map[*conn]struct{}{}
	}
	s.listeners[l] = struct{}{}
	s.serving++
	return nil
}

func (s *Server) end(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
	s.left()
}

// left notes that one Serve or connection has ended. The lock is held.
func (s *Server) left() {
	if s.serving--; s.serving == 0 && s.closing.Load() {
		s.watch.close()
		close(s.idle)
	}
}

// start serves a connection in a goroutine of its own.
func (s *Server) start(nc net.Conn) {
	c := &conn{s: s, remote: addr(nc.RemoteAddr()), began: time.Now()}
	if err := c.init(nc, &s.bufs); err != nil {
		s.logger().Error("a connection cannot be served", "error", err)
		_ = nc.Close()
		return
	}
	c.ctx = context.WithValue(context.Background(), http.LocalAddrContextKey, nc.LocalAddr())
	if s.ConnContext != nil {
		c.ctx = s.ConnContext(c.ctx, nc)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// One that was taken while Shutdown began is answered like every new one.
	if s.closed {
		_ = nc.Close()
		return
	}
	if err := s.watch.add(c); err != nil {
		s.logger().Warn("a connection cannot be served", "error", err)
		_ = nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.serving++
	go c.serve()
}

func addr(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}

// drop forgets a connection that has ended.
func (s *Server) drop(c *conn) {
	s.watch.remove(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.left()
}

// stop closes the listeners and returns the connections that there are. With all there will be no other.
func (s *Server) stop(all bool) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = s.closed || all
	if !s.closing.Swap(true) {
		s.idle = make(chan struct{})
		if s.serving == 0 {
			close(s.idle)
		}
	}
	for l := range s.listeners {
		_ = l.Close()
	}
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

// Shutdown takes no more connections, closes those that wait for a request, and waits for the requests under way,
// which are told to close their connections. Connections that have no request under way but have begun to send one
// get it answered, and so do those so new that their first request may be on its way. When ctx ends first its error is returned, and the requests go on; Close ends them.
func (s *Server) Shutdown(ctx context.Context) error {
	for _, c := range s.stop(false) {
		c.hurry()
	}
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close takes no more connections and closes those that there are; contexts of requests under way end. It does not
// wait for handlers to return.
func (s *Server) Close() error {
	for _, c := range s.stop(true) {
		c.kill()
	}
	return nil
}

// dateLine is the Date field of the answers of one second.
type dateLine struct {
	unix int64
	text []byte
}

func (s *Server) appendDate(b []byte) []byte {
	now := time.Now()
	d := s.date.Load()
	if d == nil || d.unix != now.Unix() {
		d = &dateLine{unix: now.Unix(), text: []byte("Date: " + now.UTC().Format(http.TimeFormat) + "\r\n")}
		s.date.Store(d)
	}
	return append(b, d.text...)
}
