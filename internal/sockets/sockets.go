// Package sockets opens what admitd listens on, and talks to whoever started it: addresses, unix sockets, listeners handed
// down by systemd or by the admitd that is being upgraded, certificates, and notices to the service manager.
//
// Goal: one way to a listener wherever it comes from, which can be counted, handed on, and left without cutting anybody off.
//
// Non-goals: serving (package app has the servers), deciding who may call (gate and ui do), the talk of two admitds during
// an upgrade (package handover).
//
// Invariants: a socket file that somebody answers on is never removed; a unix socket is never open wider than its mode, not
// for a moment; descriptors that were handed down do not reach the engine; a certificate that cannot be used never takes the
// place of one that can.
package sockets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unixPrefix begins the address of a unix socket.
const unixPrefix = "unix:"

// ParseAddress takes host:port or unix:/path apart into what package net calls network and address. Errors say what is wrong.
func ParseAddress(s string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(s, unixPrefix); ok {
		switch {
		case !strings.HasPrefix(path, "/"):
			return "", "", fmt.Errorf("%q: the path of a unix socket begins with /, for instance unix:/run/admitd/gate.sock", s)
		case strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0):
			return "", "", fmt.Errorf("%q is not the path of a file", s)
		case len(path) > maxUnixPath:
			return "", "", fmt.Errorf("%q: the path has %d bytes; the kernel takes %d", s, len(path), maxUnixPath)
		}
		return "unix", path, nil
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", "", fmt.Errorf("%q is not host:port, for instance 127.0.0.1:8080, nor unix:/path", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	return "tcp", s, nil
}

// maxUnixPath is the room for a path in Linux' sockaddr_un, less the zero byte at its end.
const maxUnixPath = 107

// Local reports whether only this machine can reach a well-formed address.
func Local(s string) bool {
	network, address, err := ParseAddress(s)
	if err != nil {
		return false
	}
	if network == "unix" {
		return true
	}
	host, _, _ := net.SplitHostPort(address)
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Text writes a listener's address as ParseAddress reads it.
func Text(a net.Addr) string {
	if a.Network() == "unix" {
		return unixPrefix + a.String()
	}
	return a.String()
}

// Listener is an open listener that knows its connections. It is safe for concurrent use.
type Listener struct {
	inner interface {
		net.Listener
		syscall.Conn
	}
	// path is the socket file that Close removes, "" for none.
	path  string
	open  atomic.Int64
	left  atomic.Bool
	close sync.Once
	err   error
}

// Listen opens an address. mode is that of a unix socket's file; TCP ignores it. The file of a socket that nobody answers on
// any more is replaced; one that somebody answers on, and a file that is no socket, are errors.
func Listen(ctx context.Context, address string, mode fs.FileMode) (*Listener, error) {
	network, address, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if network == "tcp" {
		l, err := new(net.ListenConfig).Listen(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return wrap(l, "")
	}
	if err := clearPath(ctx, address); err != nil {
		return nil, err
	}
	// The mode is set on the socket before it has a name: the file is never open to more people than it should be (unix(7):
	// bind takes the mode of the socket's own inode, less the umask).
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), uint32(mode.Perm())) })
		return errors.Join(err, failed)
	}}
	l, err := lc.Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Chmod(address, mode.Perm()); err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(address))
	}
	return wrap(l, address)
}

// clearPath removes the file of a socket that nobody listens on.
func clearPath(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there already and is no socket", path)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = c.Close()
		return fmt.Errorf("%s: somebody answers on this socket", path)
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	// A full queue, or no permission: there may be somebody.
	return fmt.Errorf("%s: cannot tell whether somebody answers on this socket: %w", path, err)
}

// FromFile makes a listener of a descriptor that was handed down, and closes the file. own says that the file of a unix
// socket is ours to remove in the end.
func FromFile(f *os.File, own bool) (*Listener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %q is no listening socket: %w", f.Name(), err)
	}
	f.Close()
	path := ""
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
		if name := l.Addr().String(); own && strings.HasPrefix(name, "/") {
			path = name
		}
	}
	return wrap(l, path)
}

func wrap(l net.Listener, path string) (*Listener, error) {
	out := &Listener{path: path}
	switch l := l.(type) {
	case *net.TCPListener:
		out.inner = l
	case *net.UnixListener:
		out.inner = l
	default:
		return nil, errors.Join(fmt.Errorf("%s sockets cannot be listened on", l.Addr().Network()), l.Close())
	}
	return out, nil
}

// Accept implements net.Listener. After Leave and Close the error is net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.inner.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	gone := sync.OnceFunc(func() { l.open.Add(-1) })
	switch c := c.(type) {
	case *net.TCPConn:
		return &tcpConn{c, gone}, nil
	case *net.UnixConn:
		return &unixConn{c, gone}, nil
	}
	return &otherConn{c, gone}, nil
}

// The connections keep the methods of their kinds, which servers look for.
type (
	tcpConn struct {
		*net.TCPConn
		gone func()
	}
	unixConn struct {
		*net.UnixConn
		gone func()
	}
	otherConn struct {
		net.Conn
		gone func()
	}
)

// Close implements net.Conn.
func (c *tcpConn) Close() error { c.gone(); return c.TCPConn.Close() }

// Close implements net.Conn.
func (c *unixConn) Close() error { c.gone(); return c.UnixConn.Close() }

// Close implements net.Conn.
func (c *otherConn) Close() error { c.gone(); return c.Conn.Close() }

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Connections is the number of accepted connections that are not closed.
func (l *Listener) Connections() int { return int(l.open.Load()) }

// Owned reports whether Close removes a socket file.
func (l *Listener) Owned() bool { return l.path != "" }

// Leave ends accepting here and leaves the socket to the other process that has it: whoever is in its queue is served
// there. Connections that were accepted go on.
func (l *Listener) Leave() error {
	l.left.Store(true)
	return l.Close()
}

// Close implements net.Listener. The second call does nothing.
func (l *Listener) Close() error {
	l.close.Do(func() {
		if l.path != "" && !l.left.Load() {
			// Before the descriptor: a file that is still there when nobody listens looks like a crash.
			if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				l.err = err
			}
		}
		l.err = errors.Join(l.err, l.inner.Close())
	})
	return l.err
}
