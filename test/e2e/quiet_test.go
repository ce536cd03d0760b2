package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"admitd/test/harness"
)

// An engine that sends bytes beyond its answer: net/http says so on the standard logger, and quotes them.
func TestAnswerTextBeyondAnAnswerIsNotLogged(t *testing.T) {
	t.Parallel()
	const canary = "CANARYANSWER"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go overlong(c, canary)
		}
	}()
	a := harness.Start(t, harness.Options{Binary: binary, Args: []string{"--engine", "external", "--engine-url", "http://" + l.Addr().String(),
		"--model", model, "--policy", harness.WriteFile(t, "policy.yaml", "policy: admit-all\n")}})
	a.WaitReady(readyWithin)
	for range 5 {
		if ans := harness.Post(harness.Timeout(t, time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "Hello", 4, false)); ans.Status != http.StatusOK {
			t.Fatalf("%d %v %s", ans.Status, ans.Err, ans.Body)
		}
	}
	a.Stop()
	if strings.Contains(a.Output(), canary) {
		t.Errorf("answer text in admitd's output:\n%s", a.Output())
	}
}

// overlong answers every request on a connection with a JSON body and then more.
func overlong(c net.Conn, more string) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		body := `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`
		if strings.HasSuffix(req.URL.Path, "/models") {
			body = `{"object":"list","data":[{"id":"` + model + `","object":"model","max_model_len":4096}]}`
		}
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s%s", len(body), body, more)
	}
}

// OPTIONS * is net/http's own answer unless it is switched off: 200 to anybody.
func TestOptionsStarIsRefused(t *testing.T) {
	t.Parallel()
	a := start(t, "")
	a.WaitReady(readyWithin)
	c, err := net.Dial("tcp", strings.TrimPrefix(a.Gate, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "OPTIONS * HTTP/1.1\r\nHost: gate\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusNotFound || resp.Header.Get("X-Admitd-Reason") != "path_unknown" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}
