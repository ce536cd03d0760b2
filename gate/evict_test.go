package gate

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"admitd/gate/dialect"
)

// An engine that stands still: it has the request and answers nothing.
func standingStill(in, cut chan struct{}) http.HandlerFunc {
	return func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		in <- struct{}{}
		<-q.Context().Done()
		cut <- struct{}{}
	}
}

func TestRequestThatBlocksTheEngineIsTakenOutAndItsCallerTold(t *testing.T) {
	both(t, func(t *testing.T, body string) {
		in, cut := make(chan struct{}, 1), make(chan struct{}, 1)
		r := newRig(t, standingStill(in, cut), nil)
		if _, ok := r.pool.Admission.EvictOldest(); ok {
			t.Error("there was one to take although nothing is in flight")
		}
		go func() {
			<-in
			_, _ = r.pool.Admission.EvictOldest()
		}()
		resp, text := r.get("POST", chatPath, body)
		recv(t, "the end at the engine", cut)
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("X-Admitd-Reason") != "engine_stalled" || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s %v %s", resp.Status, resp.Header, text)
		}
		if o := r.outcome(1); o.Ending != string(dialect.EndError) || o.SLOMet {
			t.Errorf("outcome %+v", o)
		}
		r.idle()
	})
}

func TestTakenOutAfterAKeepAliveIsToldInTheStream(t *testing.T) {
	in, cut := make(chan struct{}, 1), make(chan struct{}, 1)
	r := newRig(t, standingStill(in, cut), func(s *setup) { s.KeepAliveComment = 5 * time.Millisecond })
	resp := r.do("POST", chatPath, streamBody)
	readUntil(t, resp.Body, ": keep-alive\n\n")
	if id, ok := r.pool.Admission.EvictOldest(); !ok || string(id) != resp.Header.Get("X-Admitd-Request-Id") {
		t.Errorf("taken: %q %v", id, ok)
	}
	rest, _ := io.ReadAll(resp.Body)
	if !strings.Contains(string(rest), "stood still") || !strings.HasSuffix(string(rest), doneMark) {
		t.Errorf("rest %q", rest)
	}
	r.outcome(1)
	r.idle()
}
