package dialect

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// failedResponse takes the response object out of the response.failed event.
func failedResponse(t *testing.T, stream []byte) map[string]any {
	t.Helper()
	_, rest, ok := bytes.Cut(stream, []byte("event: response.failed\ndata: "))
	if !ok {
		t.Fatalf("no response.failed in %q", stream)
	}
	var ev struct {
		Type     string         `json:"type"`
		Response map[string]any `json:"response"`
	}
	if err := json.Unmarshal(bytes.TrimSpace(rest), &ev); err != nil || ev.Type != "response.failed" {
		t.Fatalf("%v in %q", err, rest)
	}
	return ev.Response
}

// TestResponseFailedHasTheIdentityOfResponseCreated: openai-python's responses.stream() stops with "Lifecycle response
// identity changed." at a response.failed of another id, and the caller never sees why the response failed.
func TestResponseFailedHasTheIdentityOfResponseCreated(t *testing.T) {
	_, _, body := capture(t, "responses-stream.http")
	cut := body[:len(body)/2]
	for _, rewrite := range []string{"", "caller's"} {
		_, f, _ := run(FilterOptions{Endpoint: endpoint(t, "/v1/responses"), Stream: true, RewriteModel: rewrite}, whole(cut))
		model := "smol"
		if rewrite != "" {
			model = rewrite
		}
		want := map[string]any{
			"id": "resp_93afb6bffabbbbad", "object": "response", "created_at": 1796043522.0, "model": model, "status": "failed",
			"error": map[string]any{"code": "server_error", "message": "gone"},
		}
		if diff := cmp.Diff(want, failedResponse(t, f.StreamError(502, "gone"))); diff != "" {
			t.Errorf("model rewritten to %q (-want +got):\n%s", rewrite, diff)
		}
	}
}

// TestStreamErrorWithoutAnIdentity: before the first event, with an id far too long, and in the other dialects the error
// is what it always was.
func TestStreamErrorWithoutAnIdentity(t *testing.T) {
	long := `{"type":"response.created","response":{"id":"` + strings.Repeat("x", 10_000) + `"}}`
	for path, body := range map[string][]byte{
		"/v1/responses": sse(long), "/v1/chat/completions": sse(word), "/v1/completions": nil, "/v1/messages": sse(anthropicWord),
	} {
		ep := endpoint(t, path)
		_, f, _ := run(FilterOptions{Endpoint: ep, Stream: true}, whole(body))
		if diff := cmp.Diff(string(StreamError(ep.Family, ep.Kind, 502, "gone")), string(f.StreamError(502, "gone"))); diff != "" {
			t.Errorf("%s (-package +filter):\n%s", path, diff)
		}
	}
}
