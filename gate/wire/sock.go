package wire

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// bufSize is the size of a pooled buffer, in bytes.
const bufSize = 16 << 10

// errNoSocket: the connection has no file descriptor of its own, so it is no plain socket.
var errNoSocket = errors.New("not a plain TCP or unix socket")

// buffers lends buffers of bufSize bytes.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() []byte {
	if p, ok := b.pool.Get().(*[bufSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufSize)
}

// put takes a buffer back; one that has grown is left to the collector.
func (b *buffers) put(p []byte) {
	if cap(p) == bufSize {
		b.pool.Put((*[bufSize]byte)(p[:bufSize]))
	}
}

// sock is a connection with a buffer for what was read and not used yet. The buffer is there only while it holds
// something. One goroutine reads, one (perhaps another) writes.
type sock struct {
	nc   net.Conn
	raw  syscall.RawConn
	bufs *buffers
	// in[r:w] is what was read and not used yet.
	in   []byte
	r, w int

	// The functions that are called with the descriptor, made once, and their arguments and results.
	readFn, writeFn func(uintptr) bool
	readN, writeN   int
	readErr         error
	writeErr        error
	out             []byte
}

func (s *sock) init(nc net.Conn, bufs *buffers) error {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return errNoSocket
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	s.nc, s.raw, s.bufs = nc, raw, bufs
	s.readFn, s.writeFn = s.tryRead, s.tryWrite
	return nil
}

// buffered returns what was read and not used yet.
func (s *sock) buffered() []byte { return s.in[s.r:s.w] }

// consume marks n buffered bytes as used, and lets go of an empty buffer.
func (s *sock) consume(n int) {
	if s.r += n; s.r == s.w {
		s.release()
	}
}

func (s *sock) release() {
	if s.in != nil {
		s.bufs.put(s.in)
		s.in = nil
	}
	s.r, s.w = 0, 0
}

// fill reads what is there behind what is buffered, and waits while nothing is. It returns io.EOF when the other side
// has ended. The buffer grows when it is full; callers bound it. After a timeout it may be called again.
func (s *sock) fill() error {
	if s.w == len(s.in) && s.in != nil {
		if s.r > 0 {
			s.w = copy(s.in, s.in[s.r:s.w])
			s.r = 0
		} else {
			bigger := make([]byte, 2*len(s.in))
			copy(bigger, s.in)
			s.bufs.put(s.in)
			s.in = bigger
		}
	}
	s.readN, s.readErr = 0, nil
	if err := s.raw.Read(s.readFn); err != nil {
		return err
	}
	switch {
	case s.readErr != nil:
		return s.readErr
	case s.readN == 0:
		return io.EOF
	}
	return nil
}

// tryRead is one attempt of fill. It borrows a buffer for the attempt only, so that a connection that waits has none.
func (s *sock) tryRead(fd uintptr) (done bool) {
	if s.in == nil {
		s.in, s.r, s.w = s.bufs.get(), 0, 0
	}
	n, err := readNow(int(fd), s.in[s.w:])
	if n <= 0 && s.r == s.w {
		s.release()
	}
	if err != nil {
		if errors.Is(err, syscall.EAGAIN) {
			return false
		}
		s.readErr = &net.OpError{Op: "read", Net: "socket", Err: err}
		return true
	}
	s.readN = n
	s.w += n
	return true
}

// readInto gives buffered bytes first, else reads from the socket into p without a copy in between.
func (s *sock) readInto(p []byte) (int, error) {
	if s.r < s.w {
		n := copy(p, s.in[s.r:s.w])
		s.consume(n)
		return n, nil
	}
	return s.nc.Read(p)
}

// writeNow writes as much of p as the kernel takes without waiting: possibly nothing, without an error.
func (s *sock) writeNow(p []byte) (int, error) {
	s.out, s.writeN, s.writeErr = p, 0, nil
	err := s.raw.Write(s.writeFn)
	s.out = nil
	if err == nil {
		err = s.writeErr
	}
	return s.writeN, err
}

func (s *sock) tryWrite(fd uintptr) (done bool) {
	for s.writeN < len(s.out) {
		n, err := sendNow(int(fd), s.out[s.writeN:])
		if err != nil {
			if !errors.Is(err, syscall.EAGAIN) {
				s.writeErr = &net.OpError{Op: "write", Net: "socket", Err: err}
			}
			return true
		}
		s.writeN += n
	}
	return true
}

// ioctlInt asks the socket for a number.
func (s *sock) ioctlInt(request uint) (n int, err error) {
	if cerr := s.raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), request) }); cerr != nil {
		return 0, cerr
	}
	return n, err
}
