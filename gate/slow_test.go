package gate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"admitd/gate/admission"
	"admitd/gate/dialect"
	"admitd/gate/journal"
)

// deaf sends a request over a connection with a small receive buffer and reads nothing.
func (r *rig) deaf() net.Conn {
	r.t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		_ = raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		return err
	}}
	c, err := d.DialContext(context.Background(), "tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(streamBody), streamBody)
	return c
}

// untilFree waits until nothing is in flight.
func (r *rig) untilFree() {
	r.t.Helper()
	for late := time.Now().Add(patience); ; {
		if d := r.pool.Admission.Dump(admission.Totals); d.InFlight == 0 && d.Admitted > 0 {
			return
		}
		if time.Now().After(late) {
			r.t.Fatal("the request stays in flight")
		}
		<-time.After(time.Millisecond)
	}
}

const oneOrNone = "policy: concurrency\nparams:\n  max_in_flight: 1\nhold:\n  max_wait: 0s\n"

// Callers that stopped reading kept their places although the engine had long finished, and closed the gate.
func TestCallerThatStopsReadingDoesNotKeepItsPlace(t *testing.T) {
	long := strings.Repeat(tokenEvent(strings.Repeat("x", 4000)), 200)
	want := long + endEvents()
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		if b, _ := io.ReadAll(q.Body); strings.Contains(string(b), `"stream"`) {
			sse(w, want)
			return
		}
		answerJSON(w, q)
	}, func(s *setup) { s.policy, s.narrow = oneOrNone, true })
	var callers []net.Conn
	for range 12 {
		callers = append(callers, r.deaf())
		r.decision(len(callers))
		r.untilFree()
	}
	if resp, got := r.get("POST", chatPath, chatBody); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, body %s", resp.StatusCode, got)
	}
	for _, c := range callers {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(got) != want {
			t.Fatalf("%v after %d of %d bytes", err, len(got), len(want))
		}
	}
	for _, o := range outcomesOf(r.await("all outcomes", func(all []journal.Entry) bool { return len(outcomesOf(all)) == 13 })) {
		if o.Ending != string(dialect.EndWhole) || !o.SLOMet {
			t.Errorf("outcome %+v", o)
		}
	}
	r.idle()
	if r.gate.ahead.used != 0 {
		t.Errorf("%d bytes still held", r.gate.ahead.used)
	}
}

// Reading ahead must not become reading everything.
func TestCallerFarBehindHoldsTheEngineBack(t *testing.T) {
	const ahead, events = 64 << 10, 2000
	want := strings.Repeat(tokenEvent(strings.Repeat("x", 16<<10)), events)
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { sse(w, want, endEvents()) }, func(s *setup) {
		s.Limits.MaxAheadBytes, s.WriteStall, s.narrow = ahead, -1, true
	})
	held := func() int64 {
		r.gate.ahead.mu.Lock()
		defer r.gate.ahead.mu.Unlock()
		return r.gate.ahead.used
	}
	c := r.deaf()
	for late := time.Now().Add(patience); held() < ahead; <-time.After(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("nothing was read ahead")
		}
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 64<<10), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, buf := 0, make([]byte, 256<<10)
	for err == nil {
		var n int
		n, err = resp.Body.Read(buf)
		got += n
		if h := held(); h > ahead+pumpBytes {
			t.Fatalf("%d bytes read ahead, the limit is %d", h, ahead)
		}
	}
	if !errors.Is(err, io.EOF) || got != len(want)+len(endEvents()) {
		t.Errorf("%v after %d bytes", err, got)
	}
	r.outcome(1)
	r.idle()
}

func TestCallerThatReadsNothingIsGone(t *testing.T) {
	cut := make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		defer close(cut)
		for q.Context().Err() == nil {
			sse(w, tokenEvent(strings.Repeat("x", 8000)))
		}
	}, func(s *setup) { s.WriteStall = 100 * time.Millisecond })
	c := r.deaf()
	recv(t, "cancellation at the engine", cut)
	if o := r.cancelled(); !strings.Contains(o.Error, "read nothing for 100ms") {
		t.Errorf("outcome %+v", o)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("the cut stream ended like a whole one")
	}
	if r.gate.ahead.used != 0 {
		t.Errorf("%d bytes still held", r.gate.ahead.used)
	}
}

// The engine's end is seen and the caller leaves before it has everything.
func TestCallerThatLeavesWithTheRestUnreadIsGoneAndSettledOnce(t *testing.T) {
	long := strings.Repeat(tokenEvent(strings.Repeat("x", 4000)), 240) + endEvents()
	seen := &counting{settled: map[admission.ID]int{}}
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { sse(w, long) }, func(s *setup) {
		s.wrap = func(c admission.Controlling) admission.Controlling { seen.Controlling = c; return seen }
		s.narrow = true
	})
	c := r.deaf()
	r.untilFree()
	if all, _, _ := r.pool.Journal.Read(0, 0); len(outcomesOf(all)) != 0 {
		t.Fatal("the whole answer fitted into the kernel's buffers")
	}
	c.Close()
	r.cancelled()
	if seen.errs != 0 || len(seen.settled) != 1 {
		t.Errorf("%d errors, %d settled", seen.errs, len(seen.settled))
	}
}

func TestOptionsStarIsAnUnknownPath(t *testing.T) {
	r := newRig(t, answerJSON, nil)
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprint(c, "OPTIONS * HTTP/1.1\r\nHost: gate\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound || resp.Header.Get("X-Admitd-Reason") != "path_unknown" {
		t.Errorf("status %d, headers %v", resp.StatusCode, resp.Header)
	}
}
