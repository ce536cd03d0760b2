package gate

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"admitd/signals"
)

// named is what a fake SGLang was asked: the names of requests, and those it was told to end.
type named struct {
	rid   chan any
	ended chan string
}

func (n *named) handle(w http.ResponseWriter, r *http.Request) {
	var body struct {
		RID    any  `json:"rid"`
		Stream bool `json:"stream"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.URL.Path == "/abort_request" {
		name, _ := body.RID.(string)
		n.ended <- name
		return
	}
	n.rid <- body.RID
	if !body.Stream {
		answerJSON(w, r)
		return
	}
	sse(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n")
	<-r.Context().Done()
}

func newNamed(t *testing.T, engine string) (*rig, *named) {
	n := &named{rid: make(chan any, 9), ended: make(chan string, 9)}
	r := newRig(t, n.handle, nil)
	r.pool.Admission.Observe(signals.NewSnapshot(signals.Snapshot{Seq: 1, At: time.Now(), Engine: engine}))
	return r, n
}

// TestRequestsAtSGLangHaveANameOfOurs: as long as all others, whatever the caller called it; of several sequences, none.
func TestRequestsAtSGLangHaveANameOfOurs(t *testing.T) {
	for _, c := range []struct {
		name, engine, path, body string
		named                    bool
	}{
		{"chat", "sglang", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, true},
		{"a caller's own name", "sglang", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}],"rid":"a"}`, true},
		{"completions", "sglang", "/v1/completions", `{"model":"m","prompt":"x"}`, true},
		{"several prompts", "sglang", "/v1/completions", `{"model":"m","prompt":["x","y"]}`, false},
		{"several answers", "sglang", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}],"n":2}`, false},
		{"embeddings", "sglang", "/v1/embeddings", `{"model":"m","input":"x"}`, false},
		{"vLLM", "vllm", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, false},
		{"not known yet", "", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, n := newNamed(t, c.engine)
			r.get("POST", c.path, c.body)
			rid, _ := recv(t, "asked", n.rid).(string)
			if got := len(rid) == 32; got != c.named || !c.named && rid != "" {
				t.Errorf("rid %q", rid)
			}
		})
	}
}

// TestCallerThatLeavesEndsItsRequestByName, and nobody else's; an answer that was whole needs no ending.
func TestCallerThatLeavesEndsItsRequestByName(t *testing.T) {
	r, n := newNamed(t, "sglang")
	r.get("POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}]}`)
	recv(t, "asked", n.rid)
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	name := recv(t, "asked", n.rid)
	leave()
	_, _ = io.Copy(io.Discard, resp.Body) // it was cut
	_ = resp.Body.Close()
	if got := recv(t, "ended", n.ended); got != name {
		t.Errorf("ended %q, asked %q", got, name)
	}
	r.outcome(2)
	r.idle()
	if len(n.ended) != 0 {
		t.Errorf("ended %q as well", <-n.ended)
	}
}
