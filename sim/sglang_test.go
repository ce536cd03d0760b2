package sim

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func sglang() Options {
	o := recorded()
	o.Dialect = SGLang
	return o
}

func TestSGLangStream(t *testing.T) {
	l := start(t, sglang())
	a := l.post(t, "/v1/chat/completions", chat(5, 2, `,"rid":"abc","stream":true,"stream_options":{"include_usage":true}`))
	const head = "id:string object:'chat.completion.chunk' created:int model:string choices:["
	const delta = "{index:0 delta:{role:%s content:%s reasoning_content:null tool_calls:null} logprobs:null finish_reason:%s matched_stop:null}] usage:null}"
	fill := func(role, content, reason string) string {
		return " {" + head + strings.NewReplacer("role:%s", "role:"+role, "content:%s", "content:"+content, "reason:%s", "reason:"+reason).Replace(delta)
	}
	want := []string{
		fill("'assistant'", "string", "null"), fill("null", "string", "null"), fill("null", "string", "null"), fill("null", "null", "'length'"),
		" {" + head + "] usage:{prompt_tokens:int total_tokens:int completion_tokens:int prompt_tokens_details:null reasoning_tokens:int}}", " [DONE]",
	}
	got := shapes(t, a)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !strings.Contains(string(a.body), `"id":"abc"`) {
		t.Error("the id is not the caller's rid")
	}
}

// Error bodies are flat outside streams and wrapped inside; a full queue is a real 503 or an error inside a 200.
func TestSGLangErrorsAreFlatOutsideStreamsAndWrappedInside(t *testing.T) {
	o := sglang()
	o.Faults = []string{"in-band-503"}
	l := start(t, o)
	a := l.post(t, "/v1/chat/completions", chat(5, 2, ""))
	if want := "{object:'error' message:string type:'SERVICE_UNAVAILABLE' param:null code:503}"; shape(t, a.body) != want || a.status != 503 {
		t.Errorf("plain: %d %s", a.status, a.body)
	}
	a = l.post(t, "/v1/chat/completions", chat(5, 2, `,"stream":true`))
	got := shapes(t, a)
	if want := " {error:{message:string type:'SERVICE_UNAVAILABLE' param:null code:503}}"; a.status != 200 || len(got) != 2 || got[0] != want {
		t.Errorf("stream: %d %s", a.status, a.body)
	}
	if a := l.post(t, "/v1/chat/completions", `{"messages":`); a.status != 400 || !strings.HasPrefix(string(a.body), `{"object":"error"`) {
		t.Errorf("malformed: %d %s", a.status, a.body)
	}
}

func TestSGLangQueueLimitCountsWaitingAlone(t *testing.T) {
	o := sglang()
	o.Speed, o.MaxNumSeqs, o.MaxQueuedReqs = 1, 1, 1
	l := start(t, o)
	l.stream(t, chat(5, 1500, `,"stream":true`)) // returns with the first token: it runs
	done := make(chan int, 1)
	go func() {
		resp, err := l.client.Post(l.url+"/v1/chat/completions", "application/json", strings.NewReader(chat(5, 3, `,"rid":"second"`)))
		if err != nil {
			done <- 0
			return
		}
		resp.Body.Close()
		done <- resp.StatusCode
	}()
	until(t, "one to wait", func() bool { st := l.stats(t); return st.Waiting+st.Arriving == 1 })
	if a := l.post(t, "/v1/chat/completions", chat(5, 3, "")); a.status != 503 {
		t.Errorf("the third got %d", a.status)
	}
	if a := l.post(t, "/abort_request", `{"rid":"sec"}`); a.status != 200 {
		t.Errorf("abort: %d", a.status)
	}
	if got := <-done; got != 200 {
		t.Errorf("the aborted request got %d, want a 200 with finish reason abort", got)
	}
}

// Aborting by rid matches prefixes, as the real scheduler does.
func TestSGLangAbortMatchesPrefixes(t *testing.T) {
	o := sglang()
	o.Speed = 1
	l := start(t, o)
	_, one, _ := l.stream(t, chat(5, 1500, `,"stream":true,"rid":"job-1"`))
	_, two, _ := l.stream(t, chat(5, 1500, `,"stream":true,"rid":"job-10"`))
	l.post(t, "/abort_request", `{"rid":"job-1"}`)
	for name, r := range map[string]io.Reader{"job-1": one, "job-10": two} {
		rest, err := io.ReadAll(r)
		if err != nil || !strings.Contains(string(rest), `"finish_reason":"abort"`) || last(t, rest) != doneText {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a := l.post(t, "/abort_request", `{}`); a.status != 400 {
		t.Errorf("an empty rid: %d", a.status)
	}
}

// Health asks for a token: at least a second, twenty and a 503 when none comes.
func TestSGLangHealthGenerates(t *testing.T) {
	for _, tc := range []struct {
		faults []string
		status int
		took   time.Duration
	}{{nil, 200, time.Second}, {[]string{"stall"}, 503, 20 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			o := sglang()
			o.Speed, o.Faults = 1, tc.faults
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			began := time.Now()
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/health", nil))
			if took := time.Since(began); w.Code != tc.status || took != tc.took {
				t.Errorf("%v: %d after %v, want %d after %v", tc.faults, w.Code, took, tc.status, tc.took)
			}
			if st, err := s.Stats(); err != nil || st.Running+st.Waiting+st.Arriving != 0 {
				t.Errorf("the probe is still in the engine: %+v %v", st, err)
			}
		})
	}
}

func TestSGLangOperations(t *testing.T) {
	o := sglang()
	o.APIKey = "sesame"
	l := start(t, o)
	open := []string{"/health", "/metrics"}
	for _, path := range open {
		if a := l.do(t, "GET", path, ""); a.status != http.StatusOK {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	for path, want := range map[string]string{
		"/v1/models":   "{object:'list' data:[{id:string object:'model' created:int owned_by:'sglang' root:string parent:null max_model_len:int}]}",
		"/server_info": "{model_path:string served_model_name:string max_total_num_tokens:int max_running_requests:int page_size:int context_length:int chunked_prefill_size:int version:string simulated:bool}",
		"/model_info":  "{model_path:string tokenizer_path:string is_generation:bool}",
	} {
		if a := l.do(t, "GET", path, ""); a.status != http.StatusUnauthorized {
			t.Errorf("%s without the key: %d", path, a.status)
		}
		if a := l.do(t, "GET", path, "", "Authorization", "Bearer sesame"); shape(t, a.body) != want {
			t.Errorf("%s: %s", path, shape(t, a.body))
		}
	}
	a := l.do(t, "GET", "/v1/loads?include=core", "", "Authorization", "Bearer sesame")
	var loads struct {
		Loads []struct {
			Capacity int `json:"max_total_num_tokens"`
		}
	}
	if err := json.Unmarshal(a.body, &loads); err != nil || len(loads.Loads) != 1 || loads.Loads[0].Capacity != 46592 {
		t.Errorf("loads: %v %s", err, a.body)
	}
	if a := l.do(t, "GET", "/v1/loads?format=prometheus", "", "Authorization", "Bearer sesame"); !strings.Contains(string(a.body), `sglang_num_running_reqs{dp_rank="0"} 0.0`) {
		t.Errorf("loads as metrics: %s", a.body)
	}
	if a := l.do(t, "POST", "/flush_cache", "", "Authorization", "Bearer sesame"); a.status != 200 {
		t.Errorf("flush: %d", a.status)
	}
}

// TestF8_SGLangGaugesAreStale: the gauges keep an old value between refreshes and after everybody left; /v1/loads does not.
func TestSGLangGaugesAreStale(t *testing.T) {
	const series = `sglang:num_running_reqs{engine_type="unified",model_name="smol",moe_ep_rank="0",pp_rank="0",tp_rank="0"}`
	o := sglang()
	o.Speed = 1
	l := start(t, o)
	_, _, leave := l.stream(t, chat(5, 1500, `,"stream":true`))
	values := func() map[string]float64 { return parse(t, l.scrapeText(t)).values }
	if v := values(); v[series] != 1 {
		t.Fatalf("running %v", v[series])
	}
	leave()
	until(t, "the slot", func() bool { return l.stats(t).Running == 0 })
	v := values()
	if v[series] != 1 {
		t.Errorf("running is %v at once: the real gauge lags", v[series])
	}
	if occupancy := v[strings.Replace(series, "num_running_reqs", "fwd_occupancy", 1)]; !math.IsNaN(occupancy) {
		t.Errorf("fwd_occupancy is %v, want NaN", occupancy)
	}
	if a := l.do(t, "GET", "/v1/loads", ""); !strings.Contains(string(a.body), `"num_running_reqs":0`) {
		t.Errorf("loads: %s", a.body)
	}
}
