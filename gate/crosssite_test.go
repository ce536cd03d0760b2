package gate

import (
	"net/http"
	"testing"
)

// Engines answer every origin that they hear of with an invitation to read the answer. What the gate invites is configured.
func TestEnginesInvitationsToOtherSitesDoNotPass(t *testing.T) {
	origin := "not asked"
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		origin = q.Header.Get("Origin")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		answerJSON(w, q)
	}, nil)
	resp, body := r.get("POST", "/v1/chat/completions", chatBody, "Origin", "https://evil.example")
	if resp.StatusCode != http.StatusOK || origin != "" {
		t.Errorf("status %d, the engine saw origin %q: %s", resp.StatusCode, origin, body)
	}
	for name := range resp.Header {
		if len(name) > 15 && name[:15] == "Access-Control-" {
			t.Errorf("%s: %s", name, resp.Header.Get(name))
		}
	}
}
