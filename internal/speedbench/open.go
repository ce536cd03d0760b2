package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// stalledReaders is how many callers read nothing of a flood while streams are open.
const stalledReaders = 200

// leaveFor is how long after the last caller has left admitd's memory is looked at.
const leaveFor = 15 * time.Second

// openResult is admitd's memory with many open streams, in bytes.
type openResult struct {
	streams                    int
	idle, open, stalled, after int64
}

// openStreams opens streams that stay silent after their first event, then callers that read nothing, then lets all go.
func openStreams(ctx context.Context, s settings, place, engine string, n int) (openResult, error) {
	r := openResult{streams: n}
	address, err := freeAddress(ctx)
	if err != nil {
		return r, err
	}
	p, err := startAdmitd(ctx, s.admitd, place, address, engine)
	if err != nil {
		return r, err
	}
	defer p.stop()
	if err := serves(ctx, address); err != nil {
		return r, err
	}
	r.idle = p.resident()
	conns, err := openAll(ctx, address, n)
	defer closeAll(conns)
	if err != nil {
		return r, err
	}
	if r.open, err = settled(ctx, p); err != nil {
		return r, err
	}
	deaf, err := openDeaf(ctx, address, stalledReaders)
	defer closeAll(deaf)
	if err != nil {
		return r, err
	}
	if r.stalled, err = settled(ctx, p); err != nil {
		return r, err
	}
	closeAll(conns)
	closeAll(deaf)
	if err := pause(ctx, leaveFor); err != nil {
		return r, err
	}
	r.after, err = settled(ctx, p)
	return r, err
}

// settled is the memory once it stays the same within 2 % for five seconds, or after two minutes.
func settled(ctx context.Context, p *process) (int64, error) {
	last := p.resident()
	for same, tries := 0, 0; same < 10 && tries < 240; tries++ {
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return 0, err
		}
		now := p.resident()
		if same++; now > last+last/50 || now < last-last/50 {
			last, same = now, 0
		}
	}
	return p.resident(), nil
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

// openAll opens streams, 64 at a time, and reads the first event of each.
func openAll(ctx context.Context, address string, n int) ([]net.Conn, error) {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		all   []net.Conn
		first error
	)
	places := make(chan struct{}, 64)
	for range n {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			c, err := openOne(ctx, address, hangWord, 0)
			if err == nil {
				err = firstEvent(c)
			}
			mu.Lock()
			defer mu.Unlock()
			if c != nil {
				all = append(all, c)
			}
			if err != nil && first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	return all, first
}

func firstEvent(c net.Conn) error {
	a, buf := answerReader{}, make([]byte, 4<<10)
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	for a.events == 0 {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		if a.see(buf[:n]); a.headed && a.status != 200 {
			return fmt.Errorf("status %d: %s", a.status, a.head)
		}
	}
	return nil
}

// openDeaf asks for floods of events and reads nothing.
func openDeaf(ctx context.Context, address string, n int) (all []net.Conn, err error) {
	for range n {
		c, err := openOne(ctx, address, floodWord, 4096)
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	return all, nil
}

func openOne(ctx context.Context, address, word string, receive int) (net.Conn, error) {
	d := net.Dialer{}
	if receive > 0 {
		d.Control = func(_, _ string, raw syscall.RawConn) (err error) {
			_ = raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, receive) })
			return err
		}
	}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	_, err = c.Write(callOf(true, word))
	return c, err
}

// answers waits until anything at all is answered.
func answers(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			_, err = io.WriteString(c, "GET /health HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
			if err == nil {
				_, err = io.ReadAll(c)
			}
			_ = c.Close()
		}
		if err == nil {
			return nil
		}
		if pause(ctx, time.Millisecond) != nil {
			return fmt.Errorf("%s does not answer: %w", address, err)
		}
	}
}
