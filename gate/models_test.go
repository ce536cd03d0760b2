package gate

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"admitd/gate/admission"
	"admitd/gate/quota"
	"admitd/supervisor"
)

func TestF30_NamesLeadToOnePoolOrNowhere(t *testing.T) {
	var sent string
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		sent = string(b)
		if strings.Contains(sent, `"stream":true`) {
			sse(w, strings.ReplaceAll(wholeStream(), `"model":"m"`, `"model":"served/name"`))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.ReplaceAll(wholeJSON, `"model":"m"`, `"model":"served/name"`))
	}, func(s *setup) { s.aliases, s.engine = []string{"fast", "org/a@v1"}, "served/name" })
	for _, name := range []string{"m", "fast", "org/a@v1"} {
		for _, stream := range []string{"", `"stream":true,"stream_options":{"include_usage":true},`} {
			resp, got := r.get("POST", chatPath, `{`+stream+`"model":"`+name+`","messages":[{"role":"user","content":"hi"}]}`)
			if resp.StatusCode != http.StatusOK || !strings.Contains(sent, `"model":"served/name"`) || strings.Contains(got, "served/name") ||
				!strings.Contains(got, `"model":"`+name+`"`) {
				t.Errorf("%s: status %d, engine got %s, caller got %s", name, resp.StatusCode, sent, got)
			}
		}
	}
	hits := r.engine.hits.Load()
	for body, want := range map[string]int{
		`{"model":"M","messages":[{"role":"user","content":"hi"}]}`:             404,
		`{"model":"served/name","messages":[{"role":"user","content":"hi"}]}`:   404,
		`{"model":"gpt-4","messages":[{"role":"user","content":"hi"}]}`:         404,
		`{"messages":[{"role":"user","content":"hi"}]}`:                         400,
		`{"model":"m","model":"x","messages":[{"role":"user","content":"hi"}]}`: 400,
	} {
		resp, got := r.get("POST", chatPath, body)
		if resp.StatusCode != want || strings.Contains(got, "fast") || strings.Contains(got, "served/") {
			t.Errorf("%s: status %d, want %d; body %s", body, resp.StatusCode, want, got)
		}
	}
	if n := r.engine.hits.Load(); n != hits {
		t.Errorf("the engine saw %d requests for names that are not served", n-hits)
	}
}

func TestF30_EngineNameStaysWhenConfigured(t *testing.T) {
	r := newRig(t, answerJSON, func(s *setup) { s.aliases, s.ModelNameInResponse = []string{"fast"}, ModelEngine })
	if _, got := r.get("POST", chatPath, `{"model":"fast","messages":[{"role":"user","content":"hi"}]}`); got != wholeJSON {
		t.Errorf("body %s", got)
	}
}

// Two pools, one key that may use one of them, under an alias.
func TestSeveralPoolsAndWhatAKeyMayUse(t *testing.T) {
	second := newEngine(t, answerJSON)
	second.set(func(s *supervisor.Status) { s.MaxModelLen = 0 })
	other := newPool(t, "big", second, admitAll, nil)
	other.Aliases = []string{"best"}
	r := newRig(t, answerJSON, func(s *setup) {
		s.Pools = []*Pool{other}
		s.Keys = oneKey(t, func(k *quota.Key) { k.Models = []string{"best"} })
	})
	key := []string{"Authorization", "Bearer " + goodSecret}
	_, list := r.get("GET", "/v1/models", "", key...)
	var got struct {
		Object string
		Data   []struct {
			ID, Object  string
			MaxModelLen *int `json:"max_model_len"`
		}
	}
	if err := json.Unmarshal([]byte(list), &got); err != nil || got.Object != "list" || len(got.Data) != 2 || got.Data[0].ID != "big" || got.Data[1].ID != "best" {
		t.Errorf("list %s", list)
	}
	if got.Data[0].MaxModelLen != nil {
		t.Errorf("a context length that is not known was told: %s", list)
	}
	if resp, _ := r.get("GET", "/v1/models/m", "", key...); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a model that the key may not use: status %d", resp.StatusCode)
	}
	if resp, _ := r.get("POST", chatPath, chatBody, key...); resp.StatusCode != http.StatusForbidden {
		t.Errorf("forbidden model: status %d", resp.StatusCode)
	}
	big := strings.Replace(chatBody, `"m"`, `"big"`, 1)
	if resp, _ := r.get("POST", chatPath, big, key...); resp.StatusCode != http.StatusOK || second.hits.Load() != 1 || r.engine.hits.Load() != 0 {
		t.Errorf("status %d, hits %d and %d", resp.StatusCode, r.engine.hits.Load(), second.hits.Load())
	}
	second.set(func(s *supervisor.Status) { s.State = supervisor.Loading })
	if resp, _ := r.get("POST", chatPath, big, key...); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("with its engine loading: status %d", resp.StatusCode)
	}
	if resp, _ := r.get("GET", "/health", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("health with one pool of two: status %d", resp.StatusCode)
	}
}

func TestHealthTellsTheState(t *testing.T) {
	r := newRig(t, answerJSON, nil)
	if resp, body := r.get("GET", "/health", ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"m":"ready"`) {
		t.Errorf("status %d, body %s", resp.StatusCode, body)
	}
	r.engine.set(func(s *supervisor.Status) { s.State = supervisor.Loading })
	resp, body := r.get("GET", "/health", "")
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, `"m":"loading"`) || resp.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, headers %v, body %s", resp.StatusCode, resp.Header, body)
	}
}

func TestDryQuestion(t *testing.T) {
	r := newRig(t, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }, func(s *setup) {
		s.policy = "policy: concurrency\nparams:\n  max_in_flight: 1\nhold:\n  max_wait: 0s\n"
	})
	ask := func(path, body string) (a dryAnswer) {
		t.Helper()
		resp, got := r.get("POST", path, body)
		if err := json.Unmarshal([]byte(got), &a); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("status %d, body %s", resp.StatusCode, got)
		}
		return a
	}
	if a := ask("/v1/admit", chatBody); a.Decision != "admit" || !strings.HasPrefix(a.Policy, "concurrency@") || a.RetryAfterMS != nil {
		t.Errorf("idle: %+v", a)
	}
	abandon, _, _ := r.send(chatBody)
	r.decision(1)
	if a := ask("/v1/admit", chatBody); a.Decision != "defer" || a.Reason != "slots_full" || a.RetryAfterMS == nil || *a.RetryAfterMS < 1000 || a.Status != 503 {
		t.Errorf("busy: %+v", a)
	}
	if a := ask("/v1/admit?path=/v1/completions", `{"model":"nope","prompt":"x"}`); a.Decision != "reject" || a.Reason != "model_unknown" {
		t.Errorf("unknown model: %+v", a)
	}
	if resp, _ := r.get("POST", "/v1/admit?path=/sleep", chatBody); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("blocked path: status %d", resp.StatusCode)
	}
	r.engine.set(func(s *supervisor.Status) { s.State = supervisor.Loading })
	if a := ask("/v1/admit", chatBody); a.Decision != "defer" || a.Reason != "engine_loading" {
		t.Errorf("loading: %+v", a)
	}
	if d := r.pool.Admission.Dump(admission.Totals); d.Arrivals != 1 || d.InFlight != 1 {
		t.Errorf("a dry question changed the books: %+v", d)
	}
	abandon()
	r.outcome(1)
}
