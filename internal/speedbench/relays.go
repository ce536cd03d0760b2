package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
)

// serveReverseProxy is Go's own reverse proxy as it comes, but for a pool of connections that is large enough.
func serveReverseProxy(ctx context.Context, address, engine string) error {
	to := &url.URL{Scheme: "http", Host: engine}
	p := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024},
	}
	return serveHTTP(ctx, address, p)
}

// serveRaw copies bytes between connections and reads only as much as it must: where a request ends. It is the floor for
// anything written in Go, and no proxy.
func serveRaw(ctx context.Context, address, engine string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	idle := &sync.Pool{}
	for {
		c, err := l.Accept()
		if err != nil {
			return ctx.Err()
		}
		go rawConn(ctx, c, engine, idle)
	}
}

func rawConn(ctx context.Context, c net.Conn, engine string, idle *sync.Pool) {
	defer func() { _ = c.Close() }()
	var d net.Dialer
	buf := make([]byte, 16<<10)
	for {
		n, err := readRequest(c, buf)
		if err != nil {
			return
		}
		up, ok := idle.Get().(net.Conn)
		if !ok {
			if up, err = d.DialContext(ctx, "tcp", engine); err != nil {
				return
			}
		}
		if _, err := up.Write(buf[:n]); err != nil || copyAnswer(c, up, buf) != nil {
			_ = up.Close()
			return
		}
		idle.Put(up)
	}
}

// readRequest reads a head and the body that it declares.
func readRequest(c io.Reader, buf []byte) (int, error) {
	n := 0
	for {
		m, err := c.Read(buf[n:])
		if err != nil {
			return 0, err
		}
		n += m
		if head := bytes.Index(buf[:n], []byte("\r\n\r\n")); head >= 0 && n >= head+4+declared(buf[:head]) {
			return n, nil
		}
	}
}

func copyAnswer(to io.Writer, from io.Reader, buf []byte) error {
	a := answerReader{}
	for !a.done {
		n, err := from.Read(buf)
		if err != nil {
			return err
		}
		a.see(buf[:n])
		if _, err := to.Write(buf[:n]); err != nil {
			return err
		}
	}
	return nil
}
