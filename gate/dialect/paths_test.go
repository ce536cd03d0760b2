package dialect

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClassify(t *testing.T) {
	tests := []struct {
		path   string
		class  Class
		kind   Kind
		family Family
	}{
		{"/v1/chat/completions", Inference, KindChat, OpenAI},
		{"/v1/completions", Inference, KindCompletions, OpenAI},
		{"/v1/responses", Inference, KindResponses, OpenAI},
		{"/v1/messages", Inference, KindMessages, Anthropic},
		{"/v1/embeddings", Inference, KindEmbeddings, OpenAI},
		{"/v1/rerank", Inference, KindRerank, OpenAI},
		{"/rerank", Inference, KindRerank, OpenAI},
		{"/v1/score", Inference, KindScore, OpenAI},
		{"/score", Inference, KindScore, OpenAI},
		{"/pooling", Inference, KindPooling, OpenAI},
		{"/classify", Inference, KindClassify, OpenAI},
		{"/v1/audio/transcriptions", Inference, KindAudio, OpenAI},
		{"/v1/audio/translations", Inference, KindAudio, OpenAI},
		{"/tokenize", Helper, KindTokenize, OpenAI},
		{"/detokenize", Helper, KindDetokenize, OpenAI},
		{"/v1/messages/count_tokens", Helper, KindCountTokens, Anthropic},
		{"/v1/models", Own, KindModels, OpenAI},
		{"/v1/models/smol", Own, KindModels, OpenAI},
		{"/v1/models/org%2Fname@v1:2", Own, KindModels, OpenAI},
		{"/health", Own, KindHealth, OpenAI},
		{"/v1/admit", Own, KindAdmit, OpenAI},
		{"/metrics", Blocked, KindOther, OpenAI},
		{"/sleep", Blocked, KindOther, OpenAI},
		{"/v1/responses/resp_1", Blocked, KindOther, OpenAI},
		{"/v1/responses/resp_1/cancel", Blocked, KindOther, OpenAI},
		{"/v1/messages/render", Blocked, KindMessages, Anthropic},
		{"/api/chat", Blocked, KindOther, OpenAI},
		{"/api/show/deep", Blocked, KindOther, OpenAI},
		{"/v1/nothing", Unknown, "", OpenAI},
		{"/v1/messages/nothing", Unknown, "", Anthropic},
	}
	for _, tt := range tests {
		got := Classify(http.MethodPost, tt.path)
		if got.Class != tt.class || got.Kind != tt.kind || got.Family != tt.family {
			t.Errorf("%s: got %s %q %s, want %s %q %s", tt.path, got.Class, got.Kind, got.Family, tt.class, tt.kind, tt.family)
		}
	}
}

// TestF22_PathsOutsideTheTable: no spelling of a path gets it into the class of another one.
func TestF22_PathsOutsideTheTable(t *testing.T) {
	for _, path := range []string{
		"", "v1/chat/completions", "//v1/chat/completions", "/v1//chat/completions", "/v1/chat/completions/",
		"/v1/../admin", "/v1/../v1/chat/completions", "/./v1/chat/completions", "/V1/Chat/Completions",
		"/v1/%63hat/completions", "/v1%2Fchat%2Fcompletions", "/%2e%2e/v1/chat/completions",
		"/v1/chat/completions%00", "/v1/chat/completions;x=1", "/v1/chat/completions?x", "/v1\\chat\\completions",
		"/v1/models/", "/v1/models/a/b", "/v1/models/..", "/v1/models/.", "/v1/models/%2e%2E", "/v1/models/.%2e",
		"/api/", "/api", "/api/../v1/chat/completions", "/api//x", "/api/%2e%2e/x", "/v1/responses/", "/v1/responses/../x",
		"/v1/responses/a/b", "/v1/responses/a/cancel/", "/tokenize/", "/{id}", "/v1/models/%2e",
	} {
		if got := Classify(http.MethodPost, path); got.Class != Unknown || got.Path != "" {
			t.Errorf("%q: got class %s, path %q; want unknown", path, got.Class, got.Path)
		}
	}
}

// TestF22_EveryRouteOfARealEngineHasAClass goes through the list that vLLM 0.32 prints at its start.
func TestF22_EveryRouteOfARealEngineHasAClass(t *testing.T) {
	raw, err := os.ReadFile("testdata/vllm-0.32.0/routes.tsv")
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		path, _, _ := strings.Cut(line, "\t")
		path = regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(path, "abc")
		ep := Classify(http.MethodPost, path)
		switch ep.Class {
		case Unknown:
			t.Errorf("%s is a route of the engine but not in the table", path)
		case Inference, Helper:
			open[path] = true
		}
	}
	want := map[string]bool{
		"/tokenize": true, "/detokenize": true, "/v1/chat/completions": true, "/v1/responses": true,
		"/v1/completions": true, "/v1/messages": true, "/v1/messages/count_tokens": true,
	}
	if diff := cmp.Diff(want, open); diff != "" {
		t.Errorf("routes of the engine that callers can reach (-want +got):\n%s", diff)
	}
}

func TestTableIsConsistent(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Table() {
		if seen[e.Path] {
			t.Errorf("%s is listed twice", e.Path)
		}
		seen[e.Path] = true
		if e.Kind == "" || e.Family == "" || len(e.Methods) == 0 {
			t.Errorf("%s lacks a kind, a family or methods: %+v", e.Path, e)
		}
		if e.Class == Unknown {
			t.Errorf("%s is listed as unknown", e.Path)
		}
	}
	Table()[0].Path = "changed"
	if Table()[0].Path == "changed" {
		t.Error("a caller can change the built-in table")
	}
}

func TestOpening(t *testing.T) {
	p, err := NewPaths(Opening{"/v1/responses/{id}", Helper}, Opening{"/generate", Inference})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Classify("GET", "/v1/responses/r1"); got.Class != Helper {
		t.Errorf("an opened pattern is still %s", got.Class)
	}
	if got := p.Classify("POST", "/generate"); got.Class != Inference {
		t.Errorf("an opened path is still %s", got.Class)
	}
	if got := Classify("POST", "/generate"); got.Class != Blocked {
		t.Errorf("opening a path in one table changed the built-in one: %s", got.Class)
	}
	for _, o := range []Opening{{"/nowhere", Helper}, {"/v1/chat/completions", Helper}, {"/sleep", Own}, {"/sleep", ""}} {
		if _, err := NewPaths(o); err == nil || !strings.Contains(err.Error(), o.Path) {
			t.Errorf("opening %q as %q: error %v, want one that names the path", o.Path, o.Class, err)
		}
	}
}

func TestAllows(t *testing.T) {
	tests := []struct {
		path, method string
		want         bool
	}{
		{"/v1/chat/completions", "POST", true}, {"/v1/chat/completions", "GET", false}, {"/v1/chat/completions", "post", false},
		{"/v1/models", "GET", true}, {"/v1/models", "HEAD", true}, {"/v1/models", "POST", false},
	}
	for _, tt := range tests {
		if got := Classify(tt.method, tt.path).Allows(tt.method); got != tt.want {
			t.Errorf("%s %s: allowed %v, want %v", tt.method, tt.path, got, tt.want)
		}
	}
}
