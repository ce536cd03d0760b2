package gate

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"admitd/gate/dialect"
)

func TestF02_GiantEventLinesPassWhole(t *testing.T) {
	for _, size := range []int{65_537, 1_100_000, 8 << 20} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			giant := tokenEvent(strings.Repeat("x", size))
			want := tokenEvent("a") + giant + tokenEvent("b") + endEvents()
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { sse(w, want) }, nil)
			_, got := r.get("POST", chatPath, streamBody)
			if got != want {
				t.Fatalf("%d bytes came, %d were sent, or they differ", len(got), len(want))
			}
			o := r.outcome(1)
			if o.Ending != string(dialect.EndWhole) || o.CompletionTokens == nil || *o.CompletionTokens != 3 || o.Estimated {
				t.Errorf("outcome %+v: usage after the giant line was not read", o)
			}
		})
	}
}

// The giant line is the first event: the wait for the first event must not collect it all.
func TestF02_GiantFirstEventIsPassedOnBeforeItsEnd(t *testing.T) {
	rest := make(chan struct{})
	head := strings.TrimSuffix(tokenEvent(strings.Repeat("y", 300_000)), "\n\n")
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		sse(w, head)
		select {
		case <-rest:
			sse(w, "\n\n"+endEvents())
		case <-q.Context().Done():
		}
	}, nil)
	resp := r.do("POST", chatPath, streamBody)
	if _, err := io.ReadFull(resp.Body, make([]byte, len(head))); err != nil {
		t.Fatal(err)
	}
	close(rest)
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
}

func TestF04_EachEventIsFlushedAndHopsAreToldNotToBuffer(t *testing.T) {
	next := make(chan string)
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		for piece := range next {
			sse(w, piece)
		}
	}, nil)
	go func() { next <- tokenEvent("a") }()
	resp := r.do("POST", chatPath, streamBody)
	if got := resp.Header.Get("X-Accel-Buffering"); got != "no" {
		t.Errorf("X-Accel-Buffering %q", got)
	}
	if got := resp.Header.Get("Cache-Control"); got != "no-cache" {
		t.Errorf("Cache-Control %q", got)
	}
	if resp.Header.Get("X-Admitd-Decision") != "admit" || resp.Header.Get("X-Admitd-Request-Id") == "" {
		t.Errorf("headers %v", resp.Header)
	}
	readUntil(t, resp.Body, tokenEvent("a"))
	for _, text := range []string{"b", "c", "d"} {
		// The next event is sent only when the one before has arrived: a buffering relay would block here.
		next <- tokenEvent(text)
		readUntil(t, resp.Body, tokenEvent(text))
	}
	next <- endEvents()
	close(next)
	readUntil(t, resp.Body, doneMark)
}

func TestNonStreamHasNoStreamHeaders(t *testing.T) {
	r := newRig(t, answerJSON, nil)
	resp, body := r.get("POST", chatPath, chatBody)
	if resp.Header.Get("X-Accel-Buffering") != "" || body != wholeJSON || resp.ContentLength != int64(len(wholeJSON)) {
		t.Errorf("headers %v, body %q", resp.Header, body)
	}
}

// Both engines say that their queue is full as an error event inside a 200.
func TestInStreamQueueFullBecomesReal503(t *testing.T) {
	full := `data: {"error":{"message":"Engine queue is full","type":"ServiceUnavailable","param":null,"code":503}}` + "\n\n" + doneMark
	for _, tc := range []struct{ path, body, want string }{
		{chatPath, streamBody, `"code":"engine_full"`},
		{"/v1/completions", `{"model":"m","stream":true,"prompt":"hi"}`, `"code":"engine_full"`},
		{"/v1/messages", `{"model":"m","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`, `"type":"overloaded_error"`},
	} {
		t.Run(tc.path, func(t *testing.T) {
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
				if tc.path == "/v1/messages" {
					sse(w, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"queue full\",\"code\":503}}\n\n")
					return
				}
				sse(w, full)
			}, nil)
			resp, body := r.get("POST", tc.path, tc.body)
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" ||
				resp.Header.Get("X-Admitd-Reason") != "engine_full" || !strings.Contains(body, tc.want) {
				t.Errorf("status %d, headers %v, body %s", resp.StatusCode, resp.Header, body)
			}
			if ct := resp.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/json") {
				t.Errorf("content type %q", ct)
			}
			if !json.Valid([]byte(body)) {
				t.Errorf("body %q is no JSON", body)
			}
			r.outcome(1)
			r.idle()
		})
	}
}

// Without a stream engines use the status itself, but give no Retry-After, and SGLang's body is flat.
func TestEnginesOwn503GetsARetryAfterInTheCallersShape(t *testing.T) {
	for _, status := range []int{http.StatusServiceUnavailable, 529} {
		r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"object":"error","message":"The request queue is full.","type":"ServiceUnavailable","code":503}`))
		}, nil)
		resp, body := r.get("POST", chatPath, chatBody)
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" ||
			resp.Header.Get("X-Admitd-Reason") != "engine_full" || !strings.Contains(body, `{"error":{"message":`) {
			t.Errorf("%d: status %d, headers %v, body %s", status, resp.StatusCode, resp.Header, body)
		}
		if o := r.outcome(1); o.Ending != string(dialect.EndRefused) {
			t.Errorf("%d: ending %s", status, o.Ending)
		}
		r.idle()
	}
}

func TestOtherFirstEventErrorKeepsItsStatus(t *testing.T) {
	for code, want := range map[int]int{400: 400, 404: 404, 500: 500, 0: 500} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			field := ""
			if code != 0 {
				field = `,"code":` + strconv.Itoa(code)
			}
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
				sse(w, `data: {"error":{"message":"no such thing","type":"X"`+field+"}}\n\n"+doneMark)
			}, nil)
			resp, body := r.get("POST", chatPath, streamBody)
			if resp.StatusCode != want || !strings.Contains(body, "no such thing") {
				t.Errorf("status %d, want %d; body %s", resp.StatusCode, want, body)
			}
			if o := r.outcome(1); o.Ending != string(dialect.EndError) && o.Ending != string(dialect.EndInvalid) {
				t.Errorf("ending %s", o.Ending)
			}
		})
	}
}

// An error after the first event can only be told inside the stream, in the engine's own bytes.
func TestLaterStreamErrorPassesUnchanged(t *testing.T) {
	want := tokenEvent("a") + `data: {"error":{"message":"EngineCore encountered an issue","code":500}}` + "\n\n" + doneMark
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { sse(w, want) }, nil)
	resp, got := r.get("POST", chatPath, streamBody)
	if resp.StatusCode != http.StatusOK || got != want {
		t.Errorf("status %d, body %q", resp.StatusCode, got)
	}
	if o := r.outcome(1); o.Ending != string(dialect.EndError) || o.SLOMet {
		t.Errorf("outcome %+v", o)
	}
}

func TestEngineCutMidStreamIsToldInTheStream(t *testing.T) {
	cases := map[string]struct {
		path, body, first, mark string
		clean                   bool
	}{
		"connection lost": {chatPath, streamBody, tokenEvent("a"), doneMark, false},
		"inside an event": {chatPath, streamBody, tokenEvent("a") + `data: {"id":"x","cho`, doneMark, false},
		"no mark":         {chatPath, streamBody, tokenEvent("a"), doneMark, true},
		"anthropic": {"/v1/messages", `{"model":"m","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`,
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n",
			"event: error\n", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
				sse(w, tc.first)
				if !tc.clean {
					panic(http.ErrAbortHandler)
				}
			}, nil)
			resp, got := r.get("POST", tc.path, tc.body)
			if resp.StatusCode != http.StatusOK || !strings.HasPrefix(got, tc.first) || len(got) == len(tc.first) {
				t.Fatalf("status %d, body %q", resp.StatusCode, got)
			}
			told := got[len(tc.first):]
			if !strings.Contains(told, "error") || !strings.Contains(told, tc.mark) {
				t.Errorf("the cut was told as %q", told)
			}
			if name == "inside an event" && !strings.HasPrefix(told, "\n\n") {
				t.Errorf("the error became part of the broken event: %q", told)
			}
			if o := r.outcome(1); o.Ending != string(dialect.EndCut) || o.SLOMet {
				t.Errorf("outcome %+v", o)
			}
			r.idle()
		})
	}
}

func TestCutNonStreamBodyDoesNotLookWhole(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(wholeJSON)))
		_, _ = io.WriteString(w, wholeJSON[:40])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, nil)
	if resp, err := r.client.Post(r.url+chatPath, "application/json", strings.NewReader(chatBody)); err == nil {
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil {
			t.Errorf("a cut body ended like a whole one: %q", got)
		}
	}
	if o := r.outcome(1); o.Ending != string(dialect.EndCut) {
		t.Errorf("outcome %+v", o)
	}
	r.idle()
}

func TestEngineGoneBeforeAnyByteIs503AndNotSentTwice(t *testing.T) {
	for _, body := range []string{chatBody, streamBody} {
		r := newRig(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil)
		resp, got := r.get("POST", chatPath, body, "Idempotency-Key", "stainless-retry-1")
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("X-Admitd-Reason") != "engine_down" || resp.Header.Get("Retry-After") == "" {
			t.Errorf("status %d, headers %v, body %s", resp.StatusCode, resp.Header, got)
		}
		if n := r.engine.hits.Load(); n != 1 {
			t.Errorf("the engine saw the request %d times", n)
		}
		if o := r.outcome(1); o.Ending != string(dialect.EndError) || o.Status != 503 {
			t.Errorf("outcome %+v", o)
		}
		r.idle()
	}
}

// A reused connection that dies after the request was written proves nothing: the engine may have started.
func TestReusedConnectionThatDiesIsNotTriedAgain(t *testing.T) {
	die := false
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		if die {
			panic(http.ErrAbortHandler)
		}
		answerJSON(w, q)
	}, nil)
	if resp, _ := r.get("POST", chatPath, chatBody); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	r.outcome(1)
	die = true
	resp, _ := r.get("POST", chatPath, chatBody, "Idempotency-Key", "stainless-retry-2")
	if resp.StatusCode != http.StatusServiceUnavailable || r.engine.hits.Load() != 2 {
		t.Errorf("status %d, engine hits %d, want 503 and 2", resp.StatusCode, r.engine.hits.Load())
	}
}

func TestUsageIsAskedForAndStripped(t *testing.T) {
	got := make(chan string, 1)
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		got <- string(b)
		answerStream(w, q)
	}, nil)
	_, body := r.get("POST", chatPath, `{"model":"m","stream":true,"priority":-5,"messages":[{"role":"user","content":"hi"}]}`)
	sent := recv(t, "request", got)
	if !strings.Contains(sent, "include_usage") || strings.Contains(sent, "priority") {
		t.Errorf("engine got %s", sent)
	}
	if strings.Contains(body, "usage") || !strings.HasSuffix(body, doneMark) || !strings.HasPrefix(body, tokenEvent("a")+tokenEvent("b")) {
		t.Errorf("caller got %q", body)
	}
	if o := r.outcome(1); o.CompletionTokens == nil || *o.CompletionTokens != 3 || o.Estimated || !o.SLOMet {
		t.Errorf("outcome %+v", o)
	}
}
