package dialect

import (
	"net/http"
	"strings"
	"testing"
)

func session(t *testing.T, path, body string, headers ...string) (Session, int) {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	f, p := Read(endpoint(t, path), h, []byte(body))
	if p != nil {
		t.Fatalf("%s: %s", body, p.Message)
	}
	return f.Session, f.BadHints
}

// TestDerivedSessionStaysTheSame: the turns of one conversation are one session, others are others.
func TestDerivedSessionStaysTheSame(t *testing.T) {
	const chat, anthropic, responses = "/v1/chat/completions", "/v1/messages", "/v1/responses"
	tests := []struct {
		name, path, first, second string
		same                      bool
	}{
		{"next turn", chat,
			`{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}]}`,
			`{"messages":[{"content":"s","role":"system"},{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":"v"}],"model":"m","stream":true}`, true},
		{"other model", chat,
			`{"model":"m","messages":[{"role":"user","content":"u"}]}`, `{"model":"n","messages":[{"role":"user","content":"u"}]}`, false},
		{"other first user message", chat,
			`{"model":"m","messages":[{"role":"user","content":"u"}]}`, `{"model":"m","messages":[{"role":"user","content":"v"}]}`, false},
		{"other system prompt", chat,
			`{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}]}`,
			`{"model":"m","messages":[{"role":"system","content":"t"},{"role":"user","content":"u"}]}`, false},
		{"text moved from system to user", chat,
			`{"model":"m","messages":[{"role":"system","content":"ab"},{"role":"user","content":"c"}]}`,
			`{"model":"m","messages":[{"role":"system","content":"a"},{"role":"user","content":"bc"}]}`, false},
		{"moving cache marks", anthropic,
			`{"model":"m","system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"u","cache_control":{"type":"ephemeral"}}]}]}`,
			`{"model":"m","system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"text","text":"u"}]},{"role":"assistant","content":"a"},{"role":"user","content":"x"}]}`, true},
		{"responses", responses,
			`{"model":"m","instructions":"s","input":[{"role":"user","content":[{"type":"input_text","text":"u"}]}]}`,
			`{"model":"m","instructions":"s","input":[{"role":"user","content":[{"type":"input_text","text":"u"}]},{"type":"function_call_output","output":"x"}]}`, true},
	}
	for _, tt := range tests {
		a, _ := session(t, tt.path, tt.first)
		b, _ := session(t, tt.path, tt.second)
		if a.ID == "" || a.Source != SourceDerived || len(a.ID) != 16 {
			t.Errorf("%s: first session %+v is not derived", tt.name, a)
		}
		if (a.ID == b.ID) != tt.same {
			t.Errorf("%s: sessions %s and %s, want same=%v", tt.name, a.ID, b.ID, tt.same)
		}
	}
}

func TestNothingToDeriveFrom(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"m","messages":[{"role":"user","content":null},{"role":"user","content":"second"}]}`,
		"/v1/completions":      `{"model":"m","prompt":"x"}`,
		"/v1/embeddings":       `{"model":"m","input":"x"}`,
		"/v1/messages":         `{"model":"m","system":"s","messages":[{"role":"assistant","content":"x"}]}`,
	} {
		if s, bad := session(t, path, body); s != (Session{}) || bad != 0 {
			t.Errorf("%s: session %+v, bad hints %d; want none", path, s, bad)
		}
	}
}

// TestMalformedSessions: what is too long or not printable is counted and passed over, never cut to fit.
func TestMalformedSessions(t *testing.T) {
	const body = `{"model":"m","input":"x"}`
	long := strings.Repeat("a", maxHint+1)
	tests := []struct {
		name, body string
		headers    []string
		want       string
		bad        int
	}{
		{"longest", body, []string{"X-Admitd-Session", long[1:]}, long[1:], 0},
		{"too long", body, []string{"X-Admitd-Session", long}, "", 1},
		{"too long in the body", `{"model":"m","input":"x","program_id":"` + long + `"}`, nil, "", 1},
		{"control character", body, []string{"X-Admitd-Session", "a\x00b"}, "", 1},
		{"not UTF-8", body, []string{"X-Admitd-Session", "a\xffb"}, "", 1},
		{"spaces around", body, []string{"X-Admitd-Session", "  a b  "}, "a b", 0},
		{"only spaces", body, []string{"X-Admitd-Session", "   "}, "", 0},
		{"the same twice", body, []string{"X-Admitd-Session", "a", "X-Admitd-Session", "a"}, "a", 0},
		{"bad parent only", body, []string{"X-Admitd-Session", "a", "X-Admitd-Parent", long}, "a", 1},
		{"bad fan-out only", body, []string{"X-Admitd-Session", "a", "X-Admitd-Fanout", "-3"}, "a", 1},
		{"context too long", `{"model":"m","input":"x","vllm_xargs":{"agentic_context":"{\"session_id\":\"s\",\"x\":\"` + strings.Repeat("y", maxContext) + `\"}"}}`, nil, "", 1},
		{"context nested too deep", `{"model":"m","input":"x","vllm_xargs":{"agentic_context":"` + strings.Repeat("[", 4000) + `"}}`, nil, "", 1},
	}
	for _, tt := range tests {
		s, bad := session(t, "/v1/embeddings", tt.body, tt.headers...)
		if s.ID != tt.want || bad != tt.bad {
			t.Errorf("%s: session %.20q, bad hints %d; want %.20q, %d", tt.name, s.ID, bad, tt.want, tt.bad)
		}
	}
}
