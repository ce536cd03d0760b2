package sim

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"admitd/sim/model"
)

// stream opens a streaming request and returns its reader; the test's end or cancel closes it.
func (l *lab) stream(t *testing.T, body string) (resp *http.Response, lines *bufio.Reader, cancel func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err = l.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); resp.Body.Close() })
	return resp, bufio.NewReader(resp.Body), stop
}

func (l *lab) stats(t *testing.T) model.Stats {
	t.Helper()
	st, err := l.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestF24_ClientLeavesFreesTheSlot: a client that goes away, streaming or not, frees its slot at once, and is counted
// nowhere, as measured.
func TestClientLeavesFreesTheSlot(t *testing.T) {
	o := recorded()
	o.Speed = 1
	l := start(t, o)
	_, lines, cancel := l.stream(t, chat(20, 1500, `,"stream":true`))
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel()
	until(t, "the stream's slot", func() bool { st := l.stats(t); return st.Cancelled == 1 && st.Used == 0 })

	ctx, stop := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/chat/completions", strings.NewReader(chat(20, 1500, "")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	var wg sync.WaitGroup
	wg.Go(func() {
		if resp, err := l.client.Do(req); err == nil {
			resp.Body.Close()
			t.Error("a cancelled request was answered")
		}
	})
	until(t, "the request to run", func() bool { return l.stats(t).Running == 1 })
	stop()
	wg.Wait()
	until(t, "the plain request's slot", func() bool { st := l.stats(t); return st.Cancelled == 2 && st.Running == 0 })
	got := parse(t, l.scrapeText(t)).values
	if n := got[`vllm:request_success_total{engine="0",finished_reason="abort",model_name="smol"}`]; n != 0 {
		t.Errorf("a client that left was counted as abort %v times", n)
	}
}

// TestF23_QueueFullInsideA200: with the engine's own limit of three, 17 of a burst of 20 streams are refused inside a
// 200 although slots are free; a caller that does not stream gets a real 503.
func TestQueueFullInsideA200(t *testing.T) {
	o := recorded()
	o.Speed, o.MaxNumSeqs, o.MaxQueuedReqs = 1, 8, 3
	l := start(t, o)
	var mu sync.Mutex
	refused, served := 0, 0
	var wg sync.WaitGroup
	for range 20 {
		resp, lines, cancel := l.stream(t, chat(20, 1800, `,"stream":true`))
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("status %d", resp.StatusCode)
		}
		wg.Go(func() {
			first, _ := lines.ReadString('\n')
			mu.Lock()
			defer mu.Unlock()
			if strings.HasPrefix(first, `data: {"error": {"message": `) && strings.Contains(first, `"code": 503}}`) {
				refused++
			} else {
				served++
			}
			if refused == 17 {
				cancel()
			}
		})
	}
	wg.Wait()
	if refused != 17 || served != 3 {
		t.Errorf("%d refused and %d served, measured was 17 and 3", refused, served)
	}
}

func TestQueueFullWithoutStreamingIsA503(t *testing.T) {
	o := recorded()
	o.Speed, o.MaxQueuedReqs = 1, 1
	l := start(t, o)
	_, lines, _ := l.stream(t, chat(20, 1800, `,"stream":true`))
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	a := l.post(t, "/v1/chat/completions", chat(5, 5, ""))
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "" {
		t.Errorf("status %d, Retry-After %q: want 503 without", a.status, a.header.Get("Retry-After"))
	}
	values := parse(t, l.scrapeText(t)).values
	if n := values[`vllm:admission_rejections_total{model_name="smol",reason="max_num_queued_reqs"}`]; n != 1 {
		t.Errorf("admission_rejections_total is %v, want 1", n)
	}
}

type usageOf struct {
	Choices []struct {
		Message      struct{ Content string }
		FinishReason string `json:"finish_reason"`
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached  int `json:"cached_tokens"`
			Created int `json:"created_cache_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

func (l *lab) chat(t *testing.T, body string) usageOf {
	t.Helper()
	a := l.post(t, "/v1/chat/completions", body)
	var u usageOf
	if err := json.Unmarshal(a.body, &u); err != nil || len(u.Choices) == 0 {
		t.Fatalf("status %d, %v: %s", a.status, err, a.body)
	}
	return u
}

// The recorded engine had 224 of 231 tokens cached the second time, in blocks of 32.
func TestUsageTellsWhatWasCached(t *testing.T) {
	o := recorded()
	o.KVBlocks, o.BlockSize, o.MaxModelLen, o.PromptTokensDetails = 60, 32, 640, true
	l := start(t, o)
	first, second := l.chat(t, chat(220, 4, "")), l.chat(t, chat(220, 4, ""))
	full := first.Usage.Prompt / 32 * 32
	if full != 224 || first.Usage.Details.Cached != 0 || first.Usage.Details.Created != full {
		t.Errorf("first: %+v", first.Usage)
	}
	if second.Usage.Details.Cached != full || second.Usage.Details.Created != 0 {
		t.Errorf("second: %+v", second.Usage)
	}
	a := l.post(t, "/v1/messages", chat(220, 4, ""))
	want := fmt.Sprintf(`"usage":{"input_tokens":%d,"output_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":%d}`, first.Usage.Prompt-full, full)
	if !strings.Contains(string(a.body), want) {
		t.Errorf("Anthropic usage: %s, want %s", a.body, want)
	}
}

// The next turn of a conversation finds the KV of the last one, the answer's included.
func TestTheNextTurnFindsTheLastOne(t *testing.T) {
	o := recorded()
	o.BlockSize, o.KVBlocks, o.PromptTokensDetails = 16, 400, true
	l := start(t, o)
	ask := func(messages string) usageOf {
		return l.chat(t, `{"model":"smol","max_tokens":100,"ignore_eos":true,"messages":[`+messages+`]}`)
	}
	first := ask(`{"role":"user","content":"Tell me about water and oil."}`)
	text, err := json.Marshal(first.Choices[0].Message.Content)
	if err != nil {
		t.Fatal(err)
	}
	second := ask(`{"role":"user","content":"Tell me about water and oil."},{"role":"assistant","content":` + string(text) + `},{"role":"user","content":"More."}`)
	if want := (first.Usage.Prompt + 99) / 16 * 16; second.Usage.Details.Cached != want {
		t.Errorf("%d tokens cached, want %d of %d + 100", second.Usage.Details.Cached, want, first.Usage.Prompt)
	}
}

func TestTheSamePromptGetsTheSameAnswer(t *testing.T) {
	body := `{"model":"smol",` + question + `}`
	a, b := start(t, recorded()), start(t, recorded())
	o := recorded()
	o.Seed = 7
	c := start(t, o)
	first, same, other := a.chat(t, body), b.chat(t, body), c.chat(t, body)
	if x, y := first.Choices[0], same.Choices[0]; x != y || x.FinishReason != "stop" || first.Usage.Completion < 2 {
		t.Errorf("two engines of one seed: %+v and %+v", first, same)
	}
	if first.Choices[0].Message.Content == other.Choices[0].Message.Content {
		t.Error("another seed gave the same answer")
	}
}

// Real time follows the model: the answer takes what the model says, divided by the speed, and an idle engine sleeps
// (the bubble would never come to rest otherwise).
func TestRealTimeFollowsTheModel(t *testing.T) {
	for _, speed := range []float64{1, 10} {
		synctest.Test(t, func(t *testing.T) {
			o := recorded()
			o.Speed = speed
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			body := chat(100, 50, "")
			req := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			began := time.Now()
			s.ServeHTTP(w, req)
			took := time.Since(began)
			if w.Code != http.StatusOK {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			var u usageOf
			if err := json.Unmarshal(w.Body.Bytes(), &u); err != nil {
				t.Fatal(err)
			}
			want := time.Duration(float64(lastStep(t, u.Usage.Prompt, s)) / speed)
			if diff := took - want; diff < 0 || diff > time.Millisecond {
				t.Errorf("speed %g: took %v, the model says %v", speed, took, want)
			}
			synctest.Wait()
		})
	}
}

// lastStep is the time at which the model finishes a request of that prompt and 50 tokens.
func lastStep(t *testing.T, prompt int, s *Server) time.Duration {
	t.Helper()
	e, err := model.New(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Submit(0, model.Request{ID: 1, PromptTokens: prompt, MaxTokens: 50}); err != nil {
		t.Fatal(err)
	}
	at := time.Duration(0)
	for {
		next, ok := e.Next()
		if !ok {
			return at
		}
		at = next
		e.Advance(at)
	}
}

// vLLM sends its headers before there is a token, SGLang with the first one.
func TestWhenHeadersLeave(t *testing.T) {
	for dialect, early := range map[string]bool{VLLM: true, SGLang: false} {
		synctest.Test(t, func(t *testing.T) {
			o := recorded()
			o.Dialect, o.Speed, o.Faults = dialect, 1, []string{"stall"}
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ctx, cancel := context.WithCancel(t.Context())
			req := httptest.NewRequestWithContext(ctx, "POST", "/v1/chat/completions", strings.NewReader(chat(5, 5, `,"stream":true`)))
			req.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			var wg sync.WaitGroup
			wg.Go(func() { s.ServeHTTP(w, req) })
			synctest.Wait()
			if sent := w.Flushed; sent != early {
				t.Errorf("%s: headers sent before the first token: %v", dialect, sent)
			}
			cancel()
			wg.Wait()
		})
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	for _, tc := range []struct {
		o    Options
		want string
	}{
		{Options{Dialect: "tgi"}, `simulated engine: unknown dialect "tgi": choose vllm or sglang`},
		{Options{Speed: -1}, "simulated engine: speed is -1: it must be between 0.001 and 100000"},
		{Options{Profile: "x"}, `simulated engine: unknown profile "x": choose one of `},
		{Options{Faults: []string{"x"}}, "simulated engine: unknown fault \"x\": `admitd sim --faults` lists them"},
		{Options{KVBlocks: 10, MaxModelLen: 4096}, "simulated engine: max model length is 4096 tokens, the KV cache holds 144: lower --max-model-len or raise --kv-blocks"},
		{Options{LoadTime: -1}, "simulated engine: load time and shutdown timeout cannot be negative"},
	} {
		s, err := New(tc.o)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %s", tc.o, err, tc.want)
		}
	}
}

func TestEmbeddingsAndDetokenize(t *testing.T) {
	o := recorded()
	o.Embeddings = true
	l := start(t, o)
	got := shape(t, l.post(t, "/v1/embeddings", `{"model":"smol","input":["a cat","a dog"]}`).body)
	want := "{id:string object:'list' created:int model:string data:[{index:0 object:'embedding' embedding:[float]} {index:1 object:'embedding' embedding:[float]}] " +
		"usage:{prompt_tokens:int total_tokens:int completion_tokens:int prompt_tokens_details:null completion_tokens_details:null}}"
	if got != want {
		t.Errorf("embeddings:\n%s\nwant\n%s", got, want)
	}
	if got := shape(t, l.post(t, "/detokenize", `{"tokens":[5,6,7]}`).body); got != "{prompt:string}" {
		t.Errorf("detokenize: %s", got)
	}
}
