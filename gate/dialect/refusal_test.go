package dialect

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"admitd/gate/reason"
)

func TestRefusal(t *testing.T) {
	const hard = "no <room> for \"this\"\n"
	tests := []struct {
		family Family
		code   reason.Code
		status int
		param  string
		want   string
	}{
		{OpenAI, reason.KVPressure, 503, "", `{"error":{"message":"M","type":"overloaded_error","param":null,"code":"kv_pressure"}}`},
		{OpenAI, reason.TenantTokens, 429, "", `{"error":{"message":"M","type":"rate_limit_error","param":null,"code":"tenant_tokens"}}`},
		{OpenAI, reason.OutputCap, 400, "max_tokens", `{"error":{"message":"M","type":"invalid_request_error","param":"max_tokens","code":"output_cap"}}`},
		{OpenAI, reason.KeyInvalid, 401, "", `{"error":{"message":"M","type":"authentication_error","param":null,"code":"key_invalid"}}`},
		{OpenAI, reason.ModelForbidden, 403, "", `{"error":{"message":"M","type":"permission_error","param":null,"code":"model_forbidden"}}`},
		{OpenAI, reason.EngineDown, 500, "", `{"error":{"message":"M","type":"server_error","param":null,"code":"engine_down"}}`},
		{Anthropic, reason.Saturated, 529, "", `{"type":"error","error":{"type":"overloaded_error","message":"M"}}`},
		{Anthropic, reason.KVPressure, 503, "", `{"type":"error","error":{"type":"overloaded_error","message":"M"}}`},
		{Anthropic, reason.TenantRequests, 429, "", `{"type":"error","error":{"type":"rate_limit_error","message":"M"}}`},
		{Anthropic, reason.BadRequest, 400, "messages", `{"type":"error","error":{"type":"invalid_request_error","message":"M"}}`},
		{Anthropic, reason.MethodNotAllowed, 405, "", `{"type":"error","error":{"type":"invalid_request_error","message":"M"}}`},
		{Anthropic, reason.KeyMissing, 401, "", `{"type":"error","error":{"type":"authentication_error","message":"M"}}`},
		{Anthropic, reason.ModelForbidden, 403, "", `{"type":"error","error":{"type":"permission_error","message":"M"}}`},
		{Anthropic, reason.ModelUnknown, 404, "", `{"type":"error","error":{"type":"not_found_error","message":"M"}}`},
		{Anthropic, reason.TooLarge, 413, "", `{"type":"error","error":{"type":"request_too_large","message":"M"}}`},
		{Anthropic, reason.EngineDown, 500, "", `{"type":"error","error":{"type":"api_error","message":"M"}}`},
	}
	for _, tt := range tests {
		kind, got := Refusal(tt.family, tt.code, tt.status, "M", tt.param)
		if kind != "application/json" || string(got) != tt.want {
			t.Errorf("%s %d: got %s %s\nwant %s", tt.family, tt.status, kind, got, tt.want)
		}
		_, body := Refusal(tt.family, tt.code, tt.status, hard, tt.param)
		var back struct{ Error struct{ Message string } }
		if err := json.Unmarshal(body, &back); err != nil || back.Error.Message != hard {
			t.Errorf("%s: message came back as %q (%v)", body, back.Error.Message, err)
		}
	}
}

func TestStreamError(t *testing.T) {
	tests := []struct {
		family Family
		kind   Kind
		want   string
	}{
		{OpenAI, KindChat, "data: {\"error\":{\"message\":\"gone\",\"type\":\"server_error\",\"param\":null,\"code\":502}}\n\ndata: [DONE]\n\n"},
		{OpenAI, KindCompletions, "data: {\"error\":{\"message\":\"gone\",\"type\":\"server_error\",\"param\":null,\"code\":502}}\n\ndata: [DONE]\n\n"},
		{Anthropic, KindMessages, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"gone\"}}\n\n"},
		{OpenAI, KindResponses, "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"gone\",\"param\":null}\n\n" +
			"event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"object\":\"response\",\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"gone\"}}}\n\n"},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, string(StreamError(tt.family, tt.kind, 502, "gone"))); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.family, tt.kind, diff)
		}
	}
}

// TestStreamErrorIsReadBack: what the gate writes when a stream breaks is an error to the gate's own reader, in
// every dialect.
func TestStreamErrorIsReadBack(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"} {
		ep := endpoint(t, path)
		_, f, r := run(FilterOptions{Endpoint: ep, Stream: true}, whole(StreamError(ep.Family, ep.Kind, 503, "the engine stopped")))
		if ev, _ := f.FirstEvent(); !ev.IsError || r.Ending != EndRefused || r.ErrorMessage != "the engine stopped" {
			t.Errorf("%s: first event %+v, result %s", path, ev, show(r))
		}
	}
}
