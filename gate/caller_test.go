package gate

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"admitd/gate/admission"
	"admitd/gate/dialect"
	"admitd/gate/journal"
	"admitd/supervisor"
)

const oneAtATime = "policy: concurrency\nparams:\n  max_in_flight: 1\nhold:\n  max_wait: 30s\n  max_requests: 10\n"

func both(t *testing.T, f func(t *testing.T, body string)) {
	t.Run("stream", func(t *testing.T) { f(t, streamBody) })
	t.Run("whole", func(t *testing.T) { f(t, chatBody) })
}

// send starts a request that the test can abandon; done is closed when its round trip and body are over.
func (r *rig) send(body string) (abandon context.CancelFunc, heads <-chan *http.Response, done <-chan struct{}) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	r.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+chatPath, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	h, d := make(chan *http.Response, 1), make(chan struct{})
	go func() {
		defer close(d)
		resp, err := r.client.Do(req)
		if err != nil {
			return
		}
		h <- resp
		<-ctx.Done()
		resp.Body.Close()
	}()
	return cancel, h, d
}

func TestF08_CallerLeavesWhileHeld(t *testing.T) {
	both(t, func(t *testing.T, body string) {
		busy := make(chan struct{})
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			<-busy
			answerJSON(w, q)
		}, func(s *setup) { s.policy = oneAtATime })
		_, heads, _ := r.send(chatBody)
		r.decision(1)
		abandon, _, done := r.send(body)
		r.untilHeld(1)
		abandon()
		recv(t, "the caller's end", done)
		d := r.decision(2)
		if d.Verdict != "defer" || d.Status != 0 || !strings.Contains(d.Message, "left") {
			t.Errorf("decision %+v", d)
		}
		close(busy)
		recv(t, "the first answer", heads)
		r.outcome(1)
		r.idle()
		if n := r.engine.hits.Load(); n != 1 {
			t.Errorf("the engine saw %d requests: one that was only held was sent", n)
		}
	})
}

// untilHeld waits until so many requests are held in the gate.
func (r *rig) untilHeld(n int) {
	r.t.Helper()
	for late := time.Now().Add(patience); r.pool.Admission.Dump(admission.Totals).Held != n; {
		if time.Now().After(late) {
			r.t.Fatalf("never %d held", n)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-r.t.Context().Done():
		}
	}
}

// untilGenerated waits until the one request in flight is known to have produced so many tokens.
func (r *rig) untilGenerated(n int) {
	r.t.Helper()
	for late := time.Now().Add(patience); ; {
		d := r.pool.Admission.Dump(admission.PerRequest)
		if len(d.Requests) == 1 && d.Requests[0].Generated >= n {
			return
		}
		if time.Now().After(late) {
			r.t.Fatalf("never %d tokens", n)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-r.t.Context().Done():
		}
	}
}

func TestF08_CallerLeavesDuringPrefill(t *testing.T) {
	both(t, func(t *testing.T, body string) {
		in, cut := make(chan struct{}), make(chan struct{})
		r := newRig(t, func(_ http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			close(in)
			<-q.Context().Done()
			close(cut)
		}, nil)
		abandon, _, done := r.send(body)
		recv(t, "the request at the engine", in)
		abandon()
		recv(t, "cancellation at the engine", cut)
		recv(t, "the caller's end", done)
		r.cancelled()
	})
}

func TestF08_CallerLeavesMidStream(t *testing.T) {
	both(t, func(t *testing.T, body string) {
		cut := make(chan struct{})
		stream := strings.Contains(body, `"stream"`)
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			if stream {
				sse(w, tokenEvent("a"), tokenEvent("b"))
			} else {
				w.Header().Set("Content-Type", "application/json")
				// Enough that the gate passes the head on.
				_, _ = io.WriteString(w, `{"pad":"`+strings.Repeat("x", 64<<10))
				_ = http.NewResponseController(w).Flush()
			}
			<-q.Context().Done()
			close(cut)
		}, nil)
		abandon, heads, done := r.send(body)
		recv(t, "the response's head", heads)
		abandon()
		recv(t, "cancellation at the engine", cut)
		recv(t, "the caller's end", done)
		o := r.cancelled()
		if stream && (o.CompletionTokens == nil || *o.CompletionTokens < 1 || !o.Estimated) {
			t.Errorf("outcome %+v: not settled at what was produced", o)
		}
	})
}

// cancelled checks the one outcome of a caller who left.
func (r *rig) cancelled() *journal.Outcome {
	r.t.Helper()
	o := r.outcome(1)
	if o.Ending != string(dialect.EndCaller) || o.SLOMet {
		r.t.Errorf("outcome %+v", o)
	}
	r.idle()
	return o
}

func TestF06_SilentPrefillIsKeptAliveByCommentsOnly(t *testing.T) {
	for name, tc := range map[string]struct{ path, body, beat, stream string }{
		"openai": {chatPath, streamBody, ": keep-alive\n\n", wholeStream()},
		"anthropic": {"/v1/messages", `{"model":"m","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`,
			"event: ping\ndata: {\"type\": \"ping\"}\n\n",
			"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\n" +
				"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			talk := make(chan struct{})
			r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				<-talk
				sse(w, tc.stream)
			}, func(s *setup) { s.KeepAliveComment = 5 * time.Millisecond })
			resp := r.do("POST", tc.path, tc.body)
			if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
				t.Errorf("headers %v", resp.Header)
			}
			got := readUntil(t, resp.Body, tc.beat+tc.beat)
			close(talk)
			rest, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.ReplaceAll(got+string(rest), tc.beat, ""); all != tc.stream {
				t.Errorf("without the beats %q, want %q", all, tc.stream)
			}
		})
	}
}

// Once a beat was sent the status is spent; an engine error is told inside the stream.
func TestF06_EngineErrorAfterKeepAliveIsToldInTheStream(t *testing.T) {
	fail := make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		<-fail
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"context too long","code":400}}`)
	}, func(s *setup) { s.KeepAliveComment = 5 * time.Millisecond })
	resp := r.do("POST", chatPath, streamBody)
	readUntil(t, resp.Body, ": keep-alive\n\n")
	close(fail)
	rest, _ := io.ReadAll(resp.Body)
	if !strings.Contains(string(rest), "context too long") || !strings.HasSuffix(string(rest), doneMark) {
		t.Errorf("rest %q", rest)
	}
	if o := r.outcome(1); o.Ending != string(dialect.EndInvalid) {
		t.Errorf("outcome %+v", o)
	}
}

func TestF06_NoKeepAliveUnlessAskedForAndNeverOnWholeAnswers(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		select {
		case <-time.After(30 * time.Millisecond):
		case <-q.Context().Done():
		}
		answerJSON(w, q)
	}, func(s *setup) { s.KeepAliveComment = time.Millisecond })
	if _, body := r.get("POST", chatPath, chatBody); body != wholeJSON {
		t.Errorf("body %q", body)
	}
}

func TestEngineStateRefusesBeforeTheBodyIsRead(t *testing.T) {
	r := newRig(t, answerJSON, nil)
	r.engine.set(func(s *supervisor.Status) {
		s.State, s.Phase, s.ExpectedReadyIn = supervisor.Loading, "weights", 41500*time.Millisecond
	})
	resp, body := r.get("POST", chatPath, chatBody)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("X-Admitd-Reason") != "engine_loading" ||
		resp.Header.Get("Retry-After") != "42" || !strings.Contains(body, "weights") {
		t.Errorf("status %d, headers %v, body %s", resp.StatusCode, resp.Header, body)
	}
	for _, state := range []supervisor.State{supervisor.Starting, supervisor.Stalled, supervisor.Draining, supervisor.Stopped, supervisor.Failed, supervisor.Wedged} {
		r.engine.set(func(s *supervisor.Status) { *s = supervisor.Status{State: state} })
		resp, body := r.get("POST", chatPath, "not even JSON")
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: status %d, headers %v, body %s", state, resp.StatusCode, resp.Header, body)
		}
	}
	if n := r.engine.hits.Load(); n != 0 {
		t.Errorf("the engine saw %d requests", n)
	}
}
