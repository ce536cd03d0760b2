package gate

import (
	"context"
	"net"
	"net/http"
	"syscall"

	"golang.org/x/sys/unix"
)

// connKey finds the connection of a request in its context.
type connKey struct{}

// Prepare sets what the gate needs of the http.Server in front of it, before it serves: "OPTIONS *" comes to the gate
// like every other request, and the gate can see how far a slow caller has read.
func Prepare(srv *http.Server) {
	srv.DisableGeneralOptionsHandler = true
	before := srv.ConnContext
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if before != nil {
			ctx = before(ctx, c)
		}
		return context.WithValue(ctx, connKey{}, c)
	}
}

// unsentOf returns what tells how many bytes the caller's kernel has not acknowledged; nil when that is not known.
func unsentOf(ctx context.Context) func() (int, bool) {
	under := ctx.Value(connKey{})
	if t, ok := under.(interface{ NetConn() net.Conn }); ok {
		under = t.NetConn() // TLS: bytes of its records, which come to the same
	}
	c, ok := under.(syscall.Conn)
	if !ok {
		return nil
	}
	return func() (n int, ok bool) {
		raw, err := c.SyscallConn()
		if err != nil {
			return 0, false
		}
		err = raw.Control(func(fd uintptr) {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ)
			ok = err == nil
		})
		return n, ok && err == nil
	}
}
