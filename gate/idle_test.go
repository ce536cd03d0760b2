package gate

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

// open sends the head of a request that declares n bytes, and some of them.
func (r *rig) open(path string, n int, some string) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, n, some)
}

// Eight sockets that declared a body and sent nothing took the whole budget.
func TestIdleSocketsThatDeclareLargeBodiesKeepNobodyOut(t *testing.T) {
	r := newRig(t, answerJSON, func(s *setup) { s.Limits.MaxBodyBytes, s.Limits.MaxBufferedBytes = 1<<20, 8<<20 })
	for range 16 {
		r.open(chatPath, 1<<20, "{")
	}
	r.untilBuffered(16 * bodyFirst)
	if resp, body := r.get("POST", chatPath, bigBody(1<<20)); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, body %s", resp.StatusCode, body)
	}
}

// untilBuffered waits until exactly so many bytes of bodies are held.
func (r *rig) untilBuffered(n int64) {
	r.t.Helper()
	for late := time.Now().Add(patience); ; {
		r.gate.buffers.mu.Lock()
		used := r.gate.buffers.used
		r.gate.buffers.mu.Unlock()
		if used == n {
			return
		}
		if time.Now().After(late) {
			r.t.Fatalf("%d bytes held, want %d", used, n)
		}
		<-time.After(time.Millisecond)
	}
}

// A helper's place was taken before its body was there.
func TestIdleSocketsOfHelpersKeepNobodyOut(t *testing.T) {
	r := newRig(t, answerJSON, func(s *setup) { s.Limits.HelperConcurrency = 2 })
	for range 4 {
		r.open("/tokenize", 100, "{")
	}
	r.untilBuffered(4 * 100)
	if resp, body := r.get("POST", "/tokenize", `{"model":"m","prompt":"hi"}`); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, body %s", resp.StatusCode, body)
	}
}
