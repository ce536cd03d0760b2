package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"admitd/gate/admission"
	"admitd/gate/dialect"
)

// mute is a connection on which, once it is stale, nothing can be written any more.
type mute struct {
	net.Conn
	stale *atomic.Bool
	mine  bool
}

func (m *mute) Write(p []byte) (int, error) {
	if m.mine && m.stale.Load() {
		return 0, errors.New("stale")
	}
	return m.Conn.Write(p)
}

// A reused connection that takes no byte proves that the engine saw nothing: the request goes out once more, on a
// fresh one.
func TestReusedConnectionThatTookNothingIsReplacedOnce(t *testing.T) {
	var stale atomic.Bool
	var dials atomic.Int64
	r := newRig(t, answerJSON, nil)
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", r.engine.Listener.Addr().String())
		return &mute{Conn: c, stale: &stale, mine: dials.Add(1) == 1}, err
	}}
	defer tr.CloseIdleConnections()
	r.engine.transport = tr
	if resp, _ := r.get("POST", chatPath, chatBody); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	r.outcome(1)
	stale.Store(true)
	resp, body := r.get("POST", chatPath, chatBody)
	if resp.StatusCode != http.StatusOK || body != wholeJSON || r.engine.hits.Load() != 2 || dials.Load() != 2 {
		t.Errorf("status %d, %d requests seen, %d connections", resp.StatusCode, r.engine.hits.Load(), dials.Load())
	}
}

func TestF20_RefusedAndInvalidRequestsLeaveNothingReserved(t *testing.T) {
	var invalid atomic.Bool
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		if invalid.Load() {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"too long","code":400}}`)
			return
		}
		<-q.Context().Done()
	}, func(s *setup) { s.policy = "policy: concurrency\nparams:\n  max_in_flight: 1\nhold:\n  max_wait: 0s\n" })
	abandon, _, _ := r.send(chatBody)
	r.decision(1)
	before := r.pool.Admission.Dump(admission.Totals)
	for range 5 {
		if resp, _ := r.get("POST", chatPath, chatBody); resp.StatusCode != http.StatusServiceUnavailable {
			t.Fatal(resp.Status)
		}
	}
	after := r.pool.Admission.Dump(admission.Totals)
	if after.ReservedTokens != before.ReservedTokens || after.InFlight != 1 || after.Deferred != 5 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	abandon()
	r.outcome(1)
	invalid.Store(true)
	for i := range 3 {
		if resp, body := r.get("POST", chatPath, chatBody); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "too long") {
			t.Errorf("status %d, body %s", resp.StatusCode, body)
		}
		if o := r.outcome(2 + i); o.Ending != string(dialect.EndInvalid) || o.CompletionTokens != nil {
			t.Errorf("outcome %+v", o)
		}
	}
	r.idle()
}

// audio builds a form whose fields come after the file.
func audio(t *testing.T, boundary string, fields ...string) (contentType string, body []byte) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		t.Fatal(err)
	}
	part, err := w.CreateFormFile("file", "a.wav")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write(bytes.Repeat([]byte{0, 1, 2, '\r', '\n', '-', '-'}, 1<<20))
	for i := 0; i < len(fields); i += 2 {
		_ = w.WriteField(fields[i], fields[i+1])
	}
	_ = w.Close()
	return w.FormDataContentType(), b.Bytes()
}

func TestF32_FormsPassByteIdentical(t *testing.T) {
	var got []byte
	var kind string
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		got, _ = io.ReadAll(q.Body)
		kind = q.Header.Get("Content-Type")
		answerJSON(w, q)
	}, nil)
	const path = "/v1/audio/transcriptions"
	ct, body := audio(t, "odd'boundary:(x)", "model", "m")
	resp, answer := r.get("POST", path, string(body), "Content-Type", ct)
	if resp.StatusCode != http.StatusOK || !bytes.Equal(got, body) || kind != ct {
		t.Errorf("status %d, %s; engine got %d bytes of %d as %q", resp.StatusCode, answer, len(got), len(body), kind)
	}
	for name, fields := range map[string][]string{"no model": nil, "two models": {"model", "m", "model", "x"}} {
		ct, body := audio(t, "b", fields...)
		if resp, answer := r.get("POST", path, string(body), "Content-Type", ct); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: status %d, %s", name, resp.StatusCode, answer)
		}
	}
	ct, body = audio(t, "b", "model", "nope")
	if resp, _ := r.get("POST", path, string(body), "Content-Type", ct); resp.StatusCode != http.StatusNotFound {
		t.Errorf("unknown model: status %d", resp.StatusCode)
	}
	if r.engine.hits.Load() != 1 {
		t.Errorf("the engine saw %d forms", r.engine.hits.Load())
	}
}

// The status waits for the first event, but not for ever.
func TestStatusDoesNotWaitForASlowFirstEvent(t *testing.T) {
	talk := make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		sse(w, "")
		<-talk
		sse(w, wholeStream())
	}, func(s *setup) { s.FirstEventWait = 5 * time.Millisecond })
	resp := r.do("POST", chatPath, streamBody)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Admitd-Decision") != "admit" {
		t.Errorf("status %d, headers %v", resp.StatusCode, resp.Header)
	}
	close(talk)
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != wholeStream() {
		t.Errorf("%q %v", got, err)
	}
}

// What a broken engine sends must not get into the log.
func TestTransportErrorsQuoteNothing(t *testing.T) {
	for text, err := range map[string]error{
		"connection closed":   fmt.Errorf("x: %w", io.EOF),
		"dial: refused":       &net.OpError{Op: "dial", Err: errors.New("refused")},
		"*errors.errorString": errors.New("malformed HTTP response \"the answer\""),
		"context canceled":    context.Canceled,
	} {
		if got := plainError(err); got != text {
			t.Errorf("%v: %q, want %q", err, got, text)
		}
	}
}

func TestPayloadLetsGoOnlyOfWhatWasSent(t *testing.T) {
	p := &payload{data: []byte("hello")}
	if p.drop() || p.data == nil {
		t.Error("an unsent body was let go")
	}
	for range 2 {
		body, err := p.open()
		if err != nil {
			t.Fatal(err)
		}
		if all, err := io.ReadAll(body); err != nil || string(all) != "hello" {
			t.Errorf("%q %v", all, err)
		}
	}
	if !p.drop() || p.data != nil {
		t.Error("a sent body was kept")
	}
}
