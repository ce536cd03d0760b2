package sim

import (
	"net/http"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const question = `"messages":[{"role":"user","content":"What is the capital of France?"}]`

// TestAnswersHaveTheShapeOfTheRecordedOnes sends what was sent when the recordings were made and compares status,
// header names, events, keys, their order and types.
func TestAnswersHaveTheShapeOfTheRecordedOnes(t *testing.T) {
	details := func(o *Options) {
		o.PromptTokensDetails, o.RequestIDHeaders, o.BlockSize, o.KVBlocks = true, true, 32, 60
		o.MaxModelLen = 640
	}
	forced := func(o *Options) { details(o); o.ForceIncludeUsage = true }
	for _, tc := range []struct {
		name, method, path, body string
		opt                      func(*Options)
	}{
		{"chat.http", "POST", "/v1/chat/completions", `{"model":"smol",` + question + `,"max_tokens":2000}`, nil},
		{"chat-stream-nousage.http", "POST", "/v1/chat/completions", `{"model":"smol",` + question + `,"max_tokens":4,"ignore_eos":true,"stream":true}`, nil},
		{"chat-stream-usage.http", "POST", "/v1/chat/completions", `{"model":"smol",` + question + `,"max_tokens":6,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`, nil},
		{"chat-stream-continuous.http", "POST", "/v1/chat/completions", `{"model":"smol",` + question + `,"max_tokens":3,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`, nil},
		{"chat-stream-forced-usage.http", "POST", "/v1/chat/completions", `{"model":"smol",` + question + `,"max_tokens":3,"ignore_eos":true,"stream":true}`, forced},
		{"chat-cached-1.http", "POST", "/v1/chat/completions", chat(222, 4, ""), details},
		{"completions-stream.http", "POST", "/v1/completions", `{"model":"smol","prompt":"Behind","max_tokens":4,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`, nil},
		{"messages.http", "POST", "/v1/messages", `{"model":"smol",` + question + `,"max_tokens":8,"ignore_eos":true}`, nil},
		{"messages-stream.http", "POST", "/v1/messages", `{"model":"smol",` + question + `,"max_tokens":8,"ignore_eos":true,"stream":true}`, nil},
		{"messages-cached.json", "POST", "/v1/messages", `{"model":"smol",` + question + `,"max_tokens":4,"ignore_eos":true}`, details},
		{"responses.http", "POST", "/v1/responses", `{"model":"smol","input":"What is the capital of France?","max_output_tokens":8,"ignore_eos":true}`, nil},
		{"responses-stream.http", "POST", "/v1/responses", `{"model":"smol","input":"What is the capital of France?","max_output_tokens":4,"ignore_eos":true,"stream":true}`, nil},
		{"models.http", "GET", "/v1/models", "", nil},
		{"version.http", "GET", "/version", "", nil},
		{"load.http", "GET", "/load", "", nil},
		{"tokenize.http", "POST", "/tokenize", `{"model":"smol","prompt":"The capital of France is Paris."}`, nil},
		{"count-tokens.http", "POST", "/v1/messages/count_tokens", `{"model":"smol",` + question + `}`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := recorded()
			if tc.opt != nil {
				tc.opt(&o)
			}
			got := start(t, o).do(t, tc.method, tc.path, tc.body)
			want := capture(t, tc.name)
			if diff := cmp.Diff(shapes(t, want), shapes(t, got)); diff != "" {
				t.Errorf("shape differs (-recorded +simulated):\n%s", diff)
			}
			if want.status != 0 {
				compareHead(t, want, got)
			}
		})
	}
}

func compareHead(t *testing.T, want, got answer) {
	t.Helper()
	names := func(a answer) []string {
		var out []string
		for k := range a.header {
			// How a body is framed is not in a parsed header.
			if k != "Transfer-Encoding" {
				out = append(out, k)
			}
		}
		sort.Strings(out)
		return out
	}
	if diff := cmp.Diff(names(want), names(got)); diff != "" {
		t.Errorf("header names differ (-recorded +simulated):\n%s", diff)
	}
	for _, k := range []string{"Content-Type", "Server", "Vary", "Allow"} {
		if want.header.Get(k) != got.header.Get(k) {
			t.Errorf("%s is %q, recorded was %q", k, got.header.Get(k), want.header.Get(k))
		}
	}
	if want.status != got.status {
		t.Errorf("status %d, recorded was %d", got.status, want.status)
	}
}

// Two choices of one stream interleave; which of them comes first is not decided.
func TestTwoChoicesInterleave(t *testing.T) {
	l := start(t, recorded())
	got := l.post(t, "/v1/chat/completions", `{"model":"smol",`+question+`,"n":2,"max_tokens":3,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`)
	want := shapes(t, capture(t, "chat-n2.http"))
	have := shapes(t, got)
	if diff := cmp.Diff(want[:2], have[:2]); diff != "" {
		t.Errorf("role chunks differ:\n%s", diff)
	}
	sort.Strings(want)
	sort.Strings(have)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("chunks differ (-recorded +simulated):\n%s", diff)
	}
}

func TestRefusalsAreTheRecordedOnes(t *testing.T) {
	const path = "/v1/chat/completions"
	long := `"messages":[{"role":"user","content":"` + strings.Repeat(" word", 3000) + `"}]`
	for _, tc := range []struct {
		name, method, path, body string
		header                   []string
	}{
		{"err-404.http", "GET", "/nope", "", nil},
		{"err-405.http", "GET", path, "", nil},
		{"err-embeddings.http", "POST", "/v1/embeddings", `{"model":"smol","input":"x"}`, nil},
		{"err-model-unknown.http", "POST", path, `{"model":"nope",` + question + `}`, nil},
		{"err-messages-model.http", "POST", "/v1/messages", `{"model":"nope",` + question + `,"max_tokens":3}`, nil},
		{"err-missing-messages.http", "POST", path, `{"model":"smol"}`, nil},
		{"err-messages-malformed.http", "POST", "/v1/messages", `{"model":"smol"}`, nil},
		{"err-malformed-json.http", "POST", path, `{"model":"smol","messages":[`, nil},
		{"no-content-type.http", "POST", path, `{"model":"smol",` + question + `}`, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{"err-wrong-type.http", "POST", path, `{"model":"smol",` + question + `,"max_tokens":"many"}`, nil},
		{"err-max-tokens-zero.http", "POST", path, `{"model":"smol",` + question + `,"max_tokens":0}`, nil},
		{"err-negative.http", "POST", path, `{"model":"smol",` + question + `,"max_tokens":-1}`, nil},
		{"err-max-tokens-huge.http", "POST", path, `{"model":"smol",` + question + `,"max_tokens":999999}`, nil},
		{"err-n-with-temp0.http", "POST", path, `{"model":"smol",` + question + `,"n":2,"temperature":0}`, nil},
		{"err-tools.http", "POST", path, `{"model":"smol",` + question + `,"tools":[{"type":"function","function":{"name":"f"}}]}`, nil},
		{"err-context-too-long.http", "POST", path, `{"model":"smol",` + long + `}`, nil},
		{"err-context-too-long-stream.http", "POST", path, `{"model":"smol",` + long + `,"stream":true}`, nil},
		{"err-messages-too-long.http", "POST", "/v1/messages", `{"model":"smol",` + long + `,"max_tokens":3}`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := start(t, recorded()).do(t, tc.method, tc.path, tc.body, tc.header...)
			want := capture(t, tc.name)
			if diff := cmp.Diff(string(want.body), string(got.body)); diff != "" {
				t.Errorf("body differs (-recorded +simulated):\n%s", diff)
			}
			compareHead(t, want, got)
		})
	}
}

// The key guards the versioned API alone; the rest of the engine stays open.
func TestTheKeyGuardsTheVersionedAPIAlone(t *testing.T) {
	o := recorded()
	o.APIKey, o.RequestIDHeaders = "sesame", true
	l := start(t, o)
	for _, tc := range []struct{ name, path string }{{"err-401.http", "/v1/chat/completions"}, {"err-401-messages.http", "/v1/messages"}} {
		got := l.post(t, tc.path, `{"model":"smol",`+question+`,"max_tokens":3}`)
		want := capture(t, tc.name)
		if string(got.body) != string(want.body) {
			t.Errorf("%s: body %s", tc.path, got.body)
		}
		compareHead(t, want, got)
	}
	for _, path := range []string{"/health", "/metrics", "/version", "/load"} {
		if a := l.do(t, "GET", path, ""); a.status != http.StatusOK {
			t.Errorf("%s needs the key: %d", path, a.status)
		}
	}
	if a := l.post(t, "/tokenize", `{"prompt":"open"}`); a.status != http.StatusOK {
		t.Errorf("/tokenize needs the key: %d", a.status)
	}
	if a := l.do(t, "GET", "/v1/models", "", "Authorization", "Bearer sesame"); a.status != http.StatusOK {
		t.Errorf("the key does not open: %d", a.status)
	}
}

// What a healthy engine answers has no body and no content type.
func TestHealth(t *testing.T) {
	l := start(t, recorded())
	got, want := l.do(t, "GET", "/health", ""), capture(t, "health.http")
	compareHead(t, want, got)
	if len(got.body) != 0 {
		t.Errorf("a body: %q", got.body)
	}
	if a := l.do(t, "POST", "/ping", ""); a.status != http.StatusOK {
		t.Errorf("/ping: %d", a.status)
	}
}
