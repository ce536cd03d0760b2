//go:build vllm

package vllm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"admitd/test/harness"
	"admitd/ui/api"
)

// TestRealEngine starts one vLLM and walks through what a caller and an operator do with it. The steps share the
// engine, because each start costs the better part of a minute.
func TestRealEngine(t *testing.T) {
	a := start(t, "policy: admit-all\n", "--max-num-seqs", strconv.Itoa(slots))
	a.WaitReady(readyWithin)
	t.Run("phases are shown while it loads", func(t *testing.T) { phasesShown(t, a) })
	t.Run("every dialect answers, streamed and not", func(t *testing.T) { dialects(t, a) })
	t.Run("bytes are what the engine sends", func(t *testing.T) { byteIdentity(t, a) })
	t.Run("a caller who leaves frees the engine", func(t *testing.T) { cancellation(t, a) })
	t.Run("reloads under load leave streams and pid alone", func(t *testing.T) { reloadUnderLoad(t, a) })
	t.Run("40 calls in 2 s under queue-depth 2", func(t *testing.T) { burst(t, a) })
	t.Run("bad requests are told in the caller's dialect", func(t *testing.T) { badRequests(t, a) })
}

func phasesShown(t *testing.T, a *harness.Admitd) {
	for _, want := range []string{"phase engine_init", "phase weights", "ready: " + model + " on http://", "dashboard: http://"} {
		a.Until(10*time.Second, "saying "+want, func() bool { return strings.Contains(a.Output(), want) })
	}
	st := a.Status().Pools[0].Engine
	if st.KVCapacityTokens == 0 || st.Slots != slots || st.MaxModelLen != 2048 || !strings.HasPrefix(st.Version, "0.") {
		t.Errorf("engine facts: capacity %d, slots %d, context %d, version %q", st.KVCapacityTokens, st.Slots, st.MaxModelLen, st.Version)
	}
}

// requests are one call of every dialect; greedy, so that two answers are alike.
func requests(stream bool) map[string]map[string]any {
	ask := []map[string]string{{"role": "user", "content": "What is the capital of France?"}}
	return map[string]map[string]any{
		"/v1/chat/completions": {"model": model, "messages": ask, "max_tokens": 12, "temperature": 0, "stream": stream},
		"/v1/completions":      {"model": model, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0, "stream": stream},
		"/v1/messages":         {"model": model, "messages": ask, "max_tokens": 12, "temperature": 0, "stream": stream},
		"/v1/responses":        {"model": model, "input": "What is the capital of France?", "max_output_tokens": 12, "temperature": 0, "stream": stream},
	}
}

func dialects(t *testing.T, a *harness.Admitd) {
	for _, stream := range []bool{false, true} {
		for path, body := range requests(stream) {
			ans := harness.Post(harness.Timeout(t, time.Minute), a.Gate+path, body)
			if ans.Err != nil || ans.Status != http.StatusOK {
				t.Errorf("%s stream %v: %d %v %s", path, stream, ans.Status, ans.Err, ans.Body)
				continue
			}
			if ans.Header.Get("X-Admitd-Decision") != "admit" || ans.Header.Get("X-Admitd-Request-Id") == "" {
				t.Errorf("%s: headers %v", path, ans.Header)
			}
			if got := ans.Header.Get("Content-Type"); stream != strings.HasPrefix(got, "text/event-stream") {
				t.Errorf("%s stream %v has content type %q", path, stream, got)
			}
			if !strings.Contains(ans.Body, "Paris") && !strings.Contains(strings.Join(pieces(ans.Body), ""), "Paris") {
				t.Errorf("%s stream %v does not answer the question:\n%s", path, stream, ans.Body)
			}
		}
	}
	settled(t, a)
}

var pieceRE = regexp.MustCompile(`"(?:content|text|delta)":"((?:[^"\\]|\\.)*)"`)

func pieces(body string) []string {
	var out []string
	for _, m := range pieceRE.FindAllStringSubmatch(body, -1) {
		out = append(out, m[1])
	}
	return out
}

// settled waits until the books say that nothing is in flight.
func settled(t *testing.T, a *harness.Admitd) {
	t.Helper()
	a.Until(30*time.Second, "settled", func() bool {
		l := a.Status().Pools[0].Ledger
		return l.InFlight == 0 && l.Held == 0 && l.ReservedTokens == 0 && l.Admitted == l.Settled
	})
}

// byteIdentity puts a recording hop and a second admitd behind the first: what the hop saw come from the real
// engine's answer must be what the caller of the second one gets, to the byte.
func byteIdentity(t *testing.T, a *harness.Admitd) {
	hop := newHop(t, a.Gate)
	b := harness.Start(t, harness.Options{Binary: binary, Args: []string{"--engine", "external", "--engine-url", hop.url,
		"--model", model, "--policy", harness.WriteFile(t, "policy.yaml", "policy: admit-all\n")}})
	b.WaitReady(time.Minute)
	for _, stream := range []bool{false, true} {
		for path, body := range requests(stream) {
			if o, ok := body["stream_options"]; ok {
				t.Fatalf("unexpected %v", o)
			}
			ans := harness.Post(harness.Timeout(t, time.Minute), b.Gate+path, body)
			if ans.Err != nil || ans.Status != http.StatusOK {
				t.Errorf("%s: %d %v", path, ans.Status, ans.Err)
				continue
			}
			sent := hop.last(path)
			if stream && (path == "/v1/chat/completions" || path == "/v1/completions") {
				// The gate asked for usage on its own account; the caller gets what the engine would have sent unasked.
				sent = asIfUnasked(t, sent)
			}
			if ans.Body != sent {
				t.Errorf("%s stream %v: the caller got\n%q\nthe engine sent\n%q", path, stream, ans.Body, sent)
			}
		}
	}
}

var usageEvent = regexp.MustCompile(`(?m)^data: \{[^\n]*"choices":\[\],[^\n]*"usage":\{[^\n]*\}\n\n`)

var fingerprint = regexp.MustCompile(`,"system_fingerprint":"[^"]*"`)

// asIfUnasked takes out the usage event and puts its fingerprint where a real vLLM has it when nobody asks for usage: at
// the end of the last chunk.
func asIfUnasked(t *testing.T, s string) string {
	t.Helper()
	usage := usageEvent.FindString(s)
	s = strings.Replace(s, usage, "", 1)
	end := strings.LastIndex(s, "}\n\ndata: [DONE]")
	if usage == "" || end < 0 {
		t.Fatalf("no usage event or no end in %q", s)
	}
	return s[:end] + fingerprint.FindString(usage) + s[end:]
}

func cancellation(t *testing.T, a *harness.Admitd) {
	for _, stream := range []bool{true, false} {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan harness.Answer, 1)
		go func() {
			done <- harness.Post(ctx, a.Gate+"/v1/chat/completions", harness.Chat(model, "Count from one to one thousand.", 1500, stream))
		}()
		a.Until(30*time.Second, "running at the engine", func() bool { return engineRunning(a) == 1 })
		cancel()
		<-done
		a.Until(20*time.Second, "idle after the caller left", func() bool { return engineRunning(a) == 0 })
	}
	settled(t, a)
}

func engineRunning(a *harness.Admitd) float64 {
	for _, s := range a.Status().Pools[0].Signals {
		if s.Name == "running" && s.Value != nil && s.State != "stale" {
			return *s.Value
		}
	}
	return -1
}

func reloadUnderLoad(t *testing.T, a *harness.Admitd) {
	pid := a.Status().Pools[0].Engine.PID
	const streams, tokens = 4, 200
	var wg sync.WaitGroup
	answers := make([]harness.Answer, streams)
	for i := range streams {
		wg.Go(func() {
			body := harness.Chat(model, fmt.Sprintf("Tell story number %d.", i), tokens, true)
			body["ignore_eos"] = true
			answers[i] = harness.Post(context.Background(), a.Gate+"/v1/chat/completions", body)
		})
	}
	a.Until(30*time.Second, "streaming", func() bool { return a.Status().Pools[0].Ledger.InFlight == streams })
	for i := range 20 {
		status, body := a.PutPolicy(fmt.Sprintf("policy: concurrency\nparams: {max_in_flight: %d}\n", 64+i), "")
		if status != http.StatusOK {
			t.Fatalf("reload %d: %d %s", i, status, body)
		}
	}
	wg.Wait()
	for i, ans := range answers {
		if n := strings.Count(ans.Body, `"delta":{"content":`); ans.Status != http.StatusOK || !strings.HasSuffix(ans.Body, "data: [DONE]\n\n") || n == 0 {
			t.Errorf("stream %d did not survive the reloads: %d, %d events, %v", i, ans.Status, n, ans.Err)
		}
		if !strings.Contains(ans.Body, `"finish_reason":"length"`) {
			t.Errorf("stream %d was cut before its cap", i)
		}
	}
	if now := a.Status().Pools[0].Engine.PID; now != pid {
		t.Errorf("engine pid went from %d to %d over policy reloads", pid, now)
	}
	settled(t, a)
}

// burst is 40 calls in 2 s against 4 slots: every refusal is one that an SDK understands, the engine's queue stays
// short, and the journal, the metrics and the decision feed count the same.
func burst(t *testing.T, a *harness.Admitd) {
	if status, body := a.PutPolicy("policy: queue-depth\nparams: {max_waiting: 2}\nhold: {max_wait: 0s, max_requests: 0}\n", ""); status != http.StatusOK {
		t.Fatalf("policy: %d %s", status, body)
	}
	before := a.Metric("admitd_decisions_total", "")
	first := newestSeq(a)
	stop := make(chan struct{})
	peak := watchWaiting(a, stop)
	var wg sync.WaitGroup
	answers := make([]harness.Answer, 40)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := range answers {
		<-tick.C
		wg.Go(func() {
			answers[i] = harness.Post(context.Background(), a.Gate+"/v1/chat/completions", harness.Chat(model, fmt.Sprintf("Tell story number %d.", i), 60, i%2 == 0))
		})
	}
	wg.Wait()
	close(stop)
	admitted, refused := 0, 0
	for i, ans := range answers {
		switch ans.Status {
		case http.StatusOK:
			admitted++
		case http.StatusServiceUnavailable, 529:
			refused++
			checkRefusal(t, ans)
		default:
			t.Errorf("call %d: status %d %v %s", i, ans.Status, ans.Err, ans.Body)
		}
	}
	t.Logf("admitted %d, refused %d, peak waiting at the engine %.0f", admitted, refused, <-peak)
	if admitted < slots || refused == 0 || admitted+refused != 40 {
		t.Errorf("admitted %d, refused %d of 40", admitted, refused)
	}
	settled(t, a)
	if got := a.Metric("admitd_decisions_total", "") - before; got != 40 {
		t.Errorf("metrics count %v decisions, want 40", got)
	}
	var d api.Decisions
	a.Get("/api/v1/decisions?limit=1000&after="+strconv.FormatUint(first, 10), &d)
	byVerdict := map[string]int{}
	for _, it := range d.Items {
		byVerdict[it.Decision.Verdict]++
	}
	if len(d.Items) != 40 || byVerdict["admit"] != admitted {
		t.Errorf("the journal has %d decisions: %v; callers saw %d admitted", len(d.Items), byVerdict, admitted)
	}
}

func checkRefusal(t *testing.T, ans harness.Answer) {
	t.Helper()
	after, err := strconv.Atoi(ans.Header.Get("Retry-After"))
	if err != nil || after < 1 || after > 60 {
		t.Errorf("refusal with Retry-After %q", ans.Header.Get("Retry-After"))
	}
	var body struct {
		Error struct{ Message, Type string }
	}
	if err := json.Unmarshal([]byte(ans.Body), &body); err != nil || body.Error.Message == "" || ans.Header.Get("X-Admitd-Reason") == "" {
		t.Errorf("refusal body %q, reason %q", ans.Body, ans.Header.Get("X-Admitd-Reason"))
	}
}

func newestSeq(a *harness.Admitd) uint64 {
	var d api.Decisions
	a.Get("/api/v1/decisions?limit=1", &d)
	return d.Next
}

// watchWaiting reports the longest queue that the engine itself admitted to, beyond what the policy allows.
func watchWaiting(a *harness.Admitd, stop <-chan struct{}) <-chan float64 {
	out := make(chan float64, 1)
	go func() {
		peak := 0.0
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				out <- peak
				return
			case <-tick.C:
				for _, s := range a.Status().Pools[0].Signals {
					if s.Name == "waiting" && s.Value != nil {
						peak = max(peak, *s.Value)
					}
				}
			}
		}
	}()
	return out
}

func badRequests(t *testing.T, a *harness.Admitd) {
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/chat/completions", `{"model":"smol","messages":`, 400, `"error":{"message"`},
		{"/v1/chat/completions", `{"model":"nope","messages":[{"role":"user","content":"x"}]}`, 404, `"error":{"message"`},
		{"/v1/messages", `{"model":"smol","max_tokens":"many","messages":[{"role":"user","content":"x"}]}`, 400, `{"type":"error","error":{"type":"invalid_request_error"`},
		{"/sleep", `{}`, 404, "path_blocked"},
		{"/v1/nothing", `{}`, 404, "path_unknown"},
	} {
		ans := harness.Post(harness.Timeout(t, 30*time.Second), a.Gate+c.path, c.body)
		if ans.Status != c.status || !strings.Contains(ans.Body+ans.Header.Get("X-Admitd-Reason"), c.want) {
			t.Errorf("%s %s: %d %s %s", c.path, c.body, ans.Status, ans.Header.Get("X-Admitd-Reason"), ans.Body)
		}
	}
}

// hop passes everything on and remembers the bytes of the last answer by path.
type hop struct {
	url string
	mu  sync.Mutex
	got map[string]string
}

func (h *hop) last(path string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.got[path]
}

func (h *hop) record(path string, body io.Reader, w http.ResponseWriter) {
	var all strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := body.Read(buf)
		all.Write(buf[:n])
		_, _ = w.Write(buf[:n])
		_ = http.NewResponseController(w).Flush()
		if err != nil {
			break
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got[path] = all.String()
}
