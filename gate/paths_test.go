package gate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"

	"admitd/gate/dialect"
	"admitd/gate/quota"
	"admitd/supervisor"
)

func TestF12_UpgradesAreRefusedCleanly(t *testing.T) {
	r := newRig(t, answerJSON, nil)
	for _, path := range []string{"/v1/realtime?model=m", chatPath} {
		resp, body := r.get("GET", path, "", "Connection", "Upgrade", "Upgrade", "websocket",
			"Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		if resp.StatusCode != http.StatusNotImplemented || resp.Header.Get("X-Admitd-Reason") != "upgrade_refused" || !json.Valid([]byte(body)) {
			t.Errorf("%s: status %d, headers %v, body %s", path, resp.StatusCode, resp.Header, body)
		}
	}
	// Some clients offer h2c with every request; a server may ignore that.
	if resp, _ := r.get("POST", chatPath, chatBody, "Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "AAMAAABk"); resp.StatusCode != http.StatusOK {
		t.Errorf("h2c offer: status %d", resp.StatusCode)
	}
	if n := r.engine.hits.Load(); n != 1 {
		t.Errorf("the engine saw %d requests", n)
	}
	r.outcome(1)
	r.idle()
}

func TestF12_EncodedSlashInModelID(t *testing.T) {
	r := newRig(t, answerJSON, func(s *setup) { s.aliases = []string{"org/a@v1:x"} })
	resp, body := r.get("GET", "/v1/models/org%2Fa@v1:x", "")
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"id":"org/a@v1:x"`) {
		t.Errorf("status %d, body %s", resp.StatusCode, body)
	}
	if resp, _ := r.get("GET", "/v1/models/org/a@v1:x", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("unescaped slash: status %d", resp.StatusCode)
	}
}

// raw sends a request line exactly as written and returns the answer.
func (r *rig) raw(method, target, body string) (int, http.Header, string) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: gate\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, target, len(body), body)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(all)
}

func TestF22_EveryPathHasOneClassAndNoSpellingMovesIt(t *testing.T) {
	r := newRig(t, answerJSON, nil)
	refused := map[string]string{
		"/v1/load_lora_adapter": "path_blocked", "/sleep": "path_blocked", "/metrics": "path_blocked",
		"/v1/../admin": "path_unknown", "//v1/chat/completions": "path_unknown", "/V1/Chat/Completions": "path_unknown",
		"/v1/chat/../chat/completions": "path_unknown", "/v1/chat%2Fcompletions": "path_unknown", "/v1/chat/completions/": "path_unknown",
		"/v1/%63hat/completions": "path_unknown", "/nothing": "path_unknown",
	}
	for path, want := range refused {
		status, h, body := r.raw("POST", path, chatBody)
		if status != 404 || h.Get("X-Admitd-Reason") != want || h.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: status %d, headers %v, body %s", path, status, h, body)
		}
	}
	if n := r.engine.hits.Load(); n != 0 {
		t.Fatalf("the engine saw %d of the refused paths", n)
	}
	open := map[string]string{
		"/tokenize": `{"model":"m","prompt":"x"}`, "/v1/score": `{"model":"m","text_1":"a","text_2":"b"}`,
		"/rerank": `{"model":"m","query":"a","documents":["b"]}`, "/pooling": `{"model":"m","input":"a"}`,
		"/v1/messages/count_tokens": `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
	}
	for path, body := range open {
		if status, h, got := r.raw("POST", path, body); status != 200 || h.Get("X-Admitd-Decision") != "admit" {
			t.Errorf("%s: status %d, headers %v, body %s", path, status, h, got)
		}
	}
	r.outcome(len(open))
	if d := r.pool.Admission.Dump(0); d.Admitted != 3 {
		t.Errorf("%d were priced, want score, rerank and pooling", d.Admitted)
	}
	r.idle()
}

func TestWrongMethodNamesTheRightOnes(t *testing.T) {
	r := newRig(t, answerJSON, nil)
	resp, _ := r.get("GET", chatPath, "")
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "POST" {
		t.Errorf("status %d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
	}
}

func TestOpenedPathReachesTheEngine(t *testing.T) {
	r := newRig(t, answerJSON, func(s *setup) {
		s.OpenPaths = []dialect.Opening{{Path: "/version", Class: dialect.Helper}}
	})
	if resp, _ := r.get("GET", "/version", ""); resp.StatusCode != http.StatusOK || r.engine.hits.Load() != 1 {
		t.Errorf("status %d, engine hits %d", resp.StatusCode, r.engine.hits.Load())
	}
}

func TestHelpersAreLimitedInNumber(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		in <- struct{}{}
		<-out
		answerJSON(w, q)
	}, func(s *setup) { s.Limits.HelperConcurrency = 1 })
	body := `{"model":"m","prompt":"x"}`
	done := make(chan int)
	go func() {
		resp, err := r.client.Post(r.url+"/tokenize", "application/json", strings.NewReader(body))
		if err != nil {
			done <- 0
			return
		}
		resp.Body.Close()
		done <- resp.StatusCode
	}()
	recv(t, "the helper at the engine", in)
	resp, _ := r.get("POST", "/tokenize", body)
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("X-Admitd-Reason") != "helper_rate" || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("status %d, headers %v", resp.StatusCode, resp.Header)
	}
	close(out)
	if status := recv(t, "the first answer", done); status != 200 {
		t.Errorf("status %d", status)
	}
	r.outcome(1)
	go func() { <-in }()
	if resp, _ := r.get("POST", "/tokenize", body); resp.StatusCode != http.StatusOK {
		t.Errorf("the place was not given back: status %d", resp.StatusCode)
	}
}

func TestF28_NoSecretInAnyOutput(t *testing.T) {
	heard := &syncBuffer{}
	r := newRig(t, func(_ http.ResponseWriter, q *http.Request) {
		for name, values := range q.Header {
			fmt.Fprintln(heard, name, values)
		}
		panic(http.ErrAbortHandler)
	}, func(s *setup) { s.Keys = oneKey(t, nil) })
	r.gate.o.NewID = func() string { return "req-x" }
	var outputs []string
	say := func(method, target, body string, header ...string) {
		resp, got := r.get(method, target, body, header...)
		var h strings.Builder
		_ = resp.Header.Write(&h)
		outputs = append(outputs, h.String()+got)
	}
	enc := url.QueryEscape(goodSecret[:5]) + "%5A" + goodSecret[9:]
	body := `{"model":"m","user":"` + goodSecret + `","messages":[{"role":"user","content":"` + goodSecret + `"}]}`
	for _, h := range [][2]string{{"Authorization", "Bearer " + goodSecret}, {"X-Api-Key", goodSecret}, {"Api-Key", goodSecret},
		{"Authorization", "Basic " + goodSecret}, {"Authorization", goodSecret}, {"Authorization", "Bearer " + goodSecret + "x"}} {
		say("POST", chatPath, body, h[0], h[1])
		say("GET", "/v1/models", "", h[0], h[1])
		say("POST", chatPath, `{"model":"`+goodSecret+`","messages":[]}`, h[0], h[1])
		say("POST", chatPath, `{"model":"m","messages":"`+goodSecret+`"`, h[0], h[1])
		say("POST", chatPath, `{"model":"m","max_tokens":"`+goodSecret+`","messages":[]}`, h[0], h[1])
		say("POST", "/v1/admit", body, h[0], h[1])
		say("POST", chatPath, body, h[0], h[1], "X-Admitd-Session", goodSecret, "X-Admitd-Ticket", goodSecret)
	}
	for _, q := range []string{"?key=" + goodSecret, "?api_key=" + goodSecret, "?api-key=" + goodSecret, "?access_token=" + goodSecret, "?k%65y=" + enc} {
		say("POST", chatPath+q, body)
		say("POST", "/"+goodSecret+q, body)
	}
	say("GET", "/"+goodSecret, "")
	say("GET", "/v1/models/"+goodSecret, "", "X-Api-Key", goodSecret)
	r.engine.set(func(s *supervisor.Status) { s.State = supervisor.Failed })
	say("POST", chatPath, body, "X-Api-Key", goodSecret)
	outputs = append(outputs, r.logs.String(), r.scrape(), heard.String())
	all, _, _ := r.pool.Journal.Read(0, 0)
	for _, e := range all {
		line, _ := json.Marshal(e)
		outputs = append(outputs, string(line))
	}
	if len(all) < 30 || heard.String() == "" {
		t.Fatalf("only %d records and the headers %q: the cases did not run", len(all), heard)
	}
	for _, o := range outputs {
		for _, part := range []string{goodSecret, enc, goodSecret[8:]} {
			if strings.Contains(o, part) {
				t.Errorf("the secret is in %q", o)
			}
		}
	}
}

// scrape returns the metrics page.
func (r *rig) scrape() string {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			r.t.Fatal(err)
		}
	}
	return b.String()
}

func TestKeysAreAskedForBeforeAnythingElse(t *testing.T) {
	r := newRig(t, answerJSON, func(s *setup) {
		s.Keys = oneKey(t, func(k *quota.Key) { k.Expires = time.Now().Add(-time.Minute) })
	})
	for secret, want := range map[string]string{"": "key_missing", "sk-other": "key_invalid", goodSecret: "key_expired"} {
		header := []string{}
		if secret != "" {
			header = []string{"X-Api-Key", secret}
		}
		resp, body := r.get("POST", chatPath, "no JSON", header...)
		if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("X-Admitd-Reason") != want || !strings.Contains(body, want) {
			t.Errorf("%s: status %d, body %s", want, resp.StatusCode, body)
		}
	}
	if resp, _ := r.get("GET", "/health", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("health asks for a key: %d", resp.StatusCode)
	}
}
