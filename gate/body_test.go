package gate

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"admitd/gate/admission"
	"admitd/gate/journal"
)

// bigBody is a chat body of exactly n bytes with an image in it.
func bigBody(n int) string {
	head := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,`
	tail := `"}}]}]}`
	return head + strings.Repeat("A", n-len(head)-len(tail)) + tail
}

func TestF10_ManyMegabyteBodies(t *testing.T) {
	var got atomic.Int64
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		n, _ := io.Copy(io.Discard, q.Body)
		got.Store(n)
		answerJSON(w, q)
	}, nil)
	for _, mb := range []int{1, 9, 32} {
		n := mb << 20
		resp, body := r.get("POST", chatPath, bigBody(n))
		if resp.StatusCode != http.StatusOK || got.Load() != int64(n) {
			t.Errorf("%d MiB: status %d, engine got %d bytes, body %s", mb, resp.StatusCode, got.Load(), body)
		}
	}
	before := r.engine.hits.Load()
	for _, mb := range []int{33, 200} {
		status, head, body := r.declare(int64(mb)<<20, "")
		if status != 413 || !strings.Contains(body, "33554432") || !strings.Contains(head, "X-Admitd-Reason: body_too_large") {
			t.Errorf("%d MiB: status %d, head %s, body %s", mb, status, head, body)
		}
	}
	// Of unknown length: read up to the limit, then refused.
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+chatPath, io.MultiReader(strings.NewReader(bigBody(33<<20))))
	resp, err := r.client.Do(req)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("chunked: status %d", resp.StatusCode)
		}
	}
	r.await("the refusal", func(all []journal.Entry) bool { return len(decisionsOf(all)) == 6 })
	if n := r.engine.hits.Load(); n != before {
		t.Errorf("the engine saw %d refused requests", n-before)
	}
	r.buffersEmpty()
}

// declare sends only the head of a request with a body of n bytes, waiting for 100 Continue, and returns the answer.
func (r *rig) declare(n int64, secret string) (status int, head, body string) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	auth := ""
	if secret != "" {
		auth = "Authorization: Bearer " + secret + "\r\n"
	}
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", chatPath, auth, n)
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, _ := io.ReadAll(resp.Body)
	var h strings.Builder
	_ = resp.Header.Write(&h)
	return resp.StatusCode, h.String(), string(all)
}

func (r *rig) buffersEmpty() {
	r.t.Helper()
	late := time.Now().Add(patience)
	for {
		r.gate.buffers.mu.Lock()
		used := r.gate.buffers.used
		r.gate.buffers.mu.Unlock()
		if used == 0 {
			return
		}
		if time.Now().After(late) {
			r.t.Fatalf("%d bytes of the buffer budget were never given back", used)
		}
		<-time.After(time.Millisecond)
	}
}

func TestF10_ExpectContinueWithWrongKeyNeverUploads(t *testing.T) {
	r := newRig(t, answerJSON, func(s *setup) { s.Keys = oneKey(t, nil) })
	// http.ReadResponse returns 100 as a response of its own: an upload was not asked for if it is not there.
	if status, head, _ := r.declare(9<<20, "sk-wrong"); status != 401 || !strings.Contains(head, "X-Admitd-Reason: key_invalid") {
		t.Errorf("status %d, head %s", status, head)
	}
	if status, _, _ := r.declare(9<<20, goodSecret); status != 100 {
		t.Errorf("with the right key: status %d, want 100", status)
	}
	r.await("both decisions", func(all []journal.Entry) bool { return len(decisionsOf(all)) == 2 })
	r.buffersEmpty()
}

func TestF10_FiftyAtOnceOverTheBufferCap(t *testing.T) {
	const size, room = 1 << 20, 4
	open := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(open) })
	defer letGo() // also when the test fails: the engine's handlers must not wait for ever
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		<-open
		answerJSON(w, q)
	}, func(s *setup) {
		s.Limits.MaxBodyBytes, s.Limits.MaxBufferedBytes = size, room*size
		s.policy = oneAtATime
	})
	body := bigBody(size)
	var wg sync.WaitGroup
	var full, ok atomic.Int64
	for range 50 {
		wg.Go(func() {
			resp, err := r.client.Post(r.url+chatPath, "application/json", strings.NewReader(body))
			if err != nil {
				// The gate may close the connection on an upload that it refuses; the refusal is in the journal.
				return
			}
			defer resp.Body.Close()
			switch resp.StatusCode {
			case http.StatusOK:
				ok.Add(1)
			case http.StatusServiceUnavailable:
				if resp.Header.Get("X-Admitd-Reason") == "buffer_full" && resp.Header.Get("Retry-After") != "" {
					full.Add(1)
				}
			}
		})
	}
	// One at the engine, the others held with their bodies: nobody leaves before the cap was met. Room is taken as bytes
	// arrive, so callers who come together can each have a part, and fewer than fit may get through.
	refused := 0
	everybody := func() bool {
		all, _, _ := r.pool.Journal.Read(0, 0)
		refused = 0
		for _, d := range decisionsOf(all) {
			if d.Reason == "buffer_full" {
				refused++
			}
		}
		books := r.pool.Admission.Dump(admission.Totals)
		return refused+books.InFlight+books.Held == 50
	}
	late := time.After(patience)
	for !everybody() {
		select {
		case <-late:
			t.Fatalf("%d refused of 50, and the rest is nowhere: %+v", refused, r.pool.Admission.Dump(admission.Totals))
		case <-time.After(5 * time.Millisecond):
		}
	}
	letGo()
	wg.Wait()
	if n := int(ok.Load()); n != 50-refused || n < 1 || n > room {
		t.Errorf("%d served, %d refused; between 1 and the %d that fit must be served, and all others refused", n, refused, room)
	}
	r.buffersEmpty()
	r.idle()
}

func TestBufferIsGivenBackWhileTheStreamGoesOn(t *testing.T) {
	end := make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		sse(w, tokenEvent("a"))
		<-end
		sse(w, endEvents())
	}, nil)
	resp := r.do("POST", chatPath, streamBody)
	readUntil(t, resp.Body, tokenEvent("a"))
	r.buffersEmpty()
	close(end)
	readUntil(t, resp.Body, doneMark)
}

func TestBodyThatNeverComesIsRefused(t *testing.T) {
	r := newRig(t, answerJSON, func(s *setup) { s.Limits.BodyTimeout = 20 * time.Millisecond })
	c, err := new(net.Dialer).DialContext(context.Background(), "tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: gate\r\nContent-Length: 1000\r\n\r\n{", chatPath)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "20ms") {
		t.Errorf("status %d, body %s", resp.StatusCode, body)
	}
	r.buffersEmpty()
}
