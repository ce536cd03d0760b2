package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// FreePort returns a loopback address that was free a moment ago.
func FreePort(t testing.TB) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Answer is one response, read whole.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	Err    error
}

// client has no time limit of its own: a healthy stream may take long; contexts bound the tests.
func client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
}

func get(url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return client().Do(req)
}

// Post sends JSON and reads the answer to its end.
func Post(ctx context.Context, url string, body any, header ...string) Answer {
	resp, err := Open(ctx, url, body, header...)
	if err != nil {
		return Answer{Err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(b), Err: err}
}

// Open sends JSON and returns as soon as the header is there. header is name, value, name, value ...
func Open(ctx context.Context, url string, body any, header ...string) (*http.Response, error) {
	var text string
	if s, ok := body.(string); ok {
		text = s
	} else {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return client().Do(req)
}

// Chat is a chat completion request with so many output tokens.
func Chat(model, text string, maxTokens int, stream bool) map[string]any {
	return map[string]any{
		"model": model, "max_tokens": maxTokens, "stream": stream,
		"messages": []map[string]string{{"role": "user", "content": text}},
	}
}

// FirstData reads a stream up to its first data line that carries output, and returns the rest as a reader.
func FirstData(t testing.TB, resp *http.Response) *bufio.Reader {
	t.Helper()
	r := bufio.NewReader(resp.Body)
	var seen strings.Builder
	for {
		line, err := r.ReadString('\n')
		seen.WriteString(line)
		if err != nil {
			t.Fatalf("the answer, status %d, ended before its first output: %v\n%s", resp.StatusCode, err, seen.String())
		}
		if strings.Contains(line, `"content":"`) && !strings.Contains(line, `"content":""`) {
			return r
		}
	}
}

// Timeout is a context for one step of a test.
func Timeout(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
