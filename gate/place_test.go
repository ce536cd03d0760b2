package gate

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"admitd/gate/admission"
)

// Whoever has its whole answer can ask again: its place is free by then, also while the engine still holds the stream open.
func TestCallerWithItsWholeAnswerHasGivenBackItsPlace(t *testing.T) {
	leave := make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		switch text := string(body); {
		case strings.Contains(text, `"stream"`):
			sse(w, wholeStream())
			_ = http.NewResponseController(w).Flush()
			select {
			case <-leave:
			case <-q.Context().Done():
			}
		case strings.Contains(text, "wrong"):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"no","type":"invalid_request_error","code":400}}`)
		default:
			answerJSON(w, q)
		}
	}, func(s *setup) { s.policy = oneOrNone })
	free := func(after string) {
		t.Helper()
		if d := r.pool.Admission.Dump(admission.Totals); d.InFlight != 0 || d.ReservedTokens != 0 {
			t.Fatalf("after %s: %d in flight, %d tokens reserved", after, d.InFlight, d.ReservedTokens)
		}
	}
	for range 20 {
		resp, got := r.get("POST", chatPath, chatBody)
		free("a whole body")
		if resp.StatusCode != http.StatusOK || got != wholeJSON {
			t.Fatalf("status %d, body %s", resp.StatusCode, got)
		}
		if resp, _ := r.get("POST", chatPath, strings.Replace(chatBody, "hello", "wrong", 1)); resp.StatusCode != http.StatusBadRequest {
			t.Fatalf("status %d", resp.StatusCode)
		}
		free("an error")
		stream := r.do("POST", chatPath, streamBody)
		lines := bufio.NewScanner(stream.Body)
		for lines.Scan() && lines.Text() != strings.TrimSpace(doneMark) {
		}
		free("a stream's terminal mark")
		leave <- struct{}{}
		if rest, err := io.ReadAll(stream.Body); err != nil {
			t.Fatalf("%v after %q", err, rest)
		}
	}
	r.idle()
}
