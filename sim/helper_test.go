package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait of a test; nothing is expected to take near as long.
const patience = 30 * time.Second

// like the server that was recorded: SmolLM2 with 364 blocks of 128 tokens and a model length of 2048.
func recorded() Options {
	return Options{Model: "models/SmolLM2-135M-Instruct", ServedNames: []string{"smol"}, KVBlocks: 364, BlockSize: 128, MaxModelLen: 2048, Speed: 2000}
}

// lab is a simulated engine behind a real HTTP server.
type lab struct {
	*Server
	url    string
	client *http.Client
}

func start(t *testing.T, o Options) *lab {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	l := &lab{Server: s, url: h.URL, client: h.Client()}
	l.client.Timeout = patience
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		l.client.CloseIdleConnections()
		h.Close()
	})
	return l
}

// answer is a response as received.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (l *lab) do(t *testing.T, method, path, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, l.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := l.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, b}
}

func (l *lab) post(t *testing.T, path, body string) answer {
	t.Helper()
	return l.do(t, "POST", path, body)
}

// capture reads a recorded response; one without a status line is a body alone.
func capture(t *testing.T, name string) answer {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "vllm-0.32.0", "http", name))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(raw, []byte("HTTP/")) {
		return answer{body: raw}
	}
	head, body, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	a := answer{body: body, header: http.Header{}}
	for i, line := range strings.Split(string(head), "\r\n") {
		if i == 0 {
			if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &a.status); err != nil {
				t.Fatal(err)
			}
			continue
		}
		k, v, _ := strings.Cut(line, ": ")
		a.header.Set(k, v)
	}
	return a
}

// event is one server-sent event.
type sse struct{ name, data string }

func events(t *testing.T, body []byte) []sse {
	t.Helper()
	var out []sse
	var cur sse
	sc := bufio.NewScanner(bytes.NewReader(body))
	sc.Buffer(nil, 32<<20)
	for sc.Scan() {
		line := sc.Text()
		switch {
		case line == "" && cur != (sse{}):
			out = append(out, cur)
			cur = sse{}
		case strings.HasPrefix(line, "event: "):
			cur.name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			cur.data = line[len("data: "):]
		case line != "":
			t.Fatalf("a line that no event has: %q", line)
		}
	}
	if err := sc.Err(); err != nil || cur != (sse{}) {
		t.Fatalf("the stream ends in the middle of an event: %v %+v", err, cur)
	}
	return out
}

// kept are keys whose values are part of the shape.
var kept = map[string]bool{
	"object": true, "type": true, "role": true, "owned_by": true, "index": true, "output_index": true, "content_index": true,
	"sequence_number": true, "code": true, "param": true, "finish_reason": true, "stop_reason": true, "status": true,
}

// shape is a JSON value with its keys in order and its values masked; repeated equal elements of a list count once.
func shape(t *testing.T, raw []byte) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	s, err := shapeValue(dec, false)
	if err != nil {
		t.Fatalf("%v in %.300s", err, raw)
	}
	return s
}

func shapeValue(dec *json.Decoder, keep bool) (string, error) {
	tok, err := dec.Token()
	if err != nil {
		return "", err
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '{' {
			return shapeObject(dec)
		}
		return shapeList(dec)
	case nil:
		return "null", nil
	case string:
		if keep {
			return "'" + v + "'", nil
		}
		return "string", nil
	case bool:
		return "bool", nil
	case json.Number:
		if keep {
			return v.String(), nil
		}
		if strings.Contains(v.String(), ".") {
			return "float", nil
		}
		return "int", nil
	}
	return "", fmt.Errorf("unknown token %v", tok)
}

func shapeObject(dec *json.Decoder) (string, error) {
	var parts []string
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return "", err
		}
		key, _ := k.(string)
		v, err := shapeValue(dec, kept[key])
		if err != nil {
			return "", err
		}
		parts = append(parts, key+":"+v)
	}
	_, err := dec.Token()
	return "{" + strings.Join(parts, " ") + "}", err
}

func shapeList(dec *json.Decoder) (string, error) {
	var parts []string
	for dec.More() {
		v, err := shapeValue(dec, false)
		if err != nil {
			return "", err
		}
		if len(parts) == 0 || parts[len(parts)-1] != v {
			parts = append(parts, v)
		}
	}
	_, err := dec.Token()
	return "[" + strings.Join(parts, " ") + "]", err
}

// shapes is the shape of a whole answer: of its one JSON value, or of each event.
func shapes(t *testing.T, a answer) []string {
	t.Helper()
	if !bytes.HasPrefix(a.body, []byte("data:")) && !bytes.HasPrefix(a.body, []byte("event:")) {
		return []string{shape(t, a.body)}
	}
	var out []string
	for _, e := range events(t, a.body) {
		s := e.data
		if e.data != "[DONE]" {
			s = shape(t, []byte(e.data))
		}
		out = append(out, e.name+" "+s)
	}
	return out
}

// chat is a chat request of a prompt about as long as asked, in tokens.
func chat(prompt, limit int, more string) string {
	return fmt.Sprintf(`{"model":"smol","messages":[{"role":"user","content":%q}],"max_tokens":%d,"ignore_eos":true%s}`,
		strings.Repeat(" word", prompt), limit, more)
}

// until waits for a condition that other goroutines bring about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
		tick := time.NewTimer(time.Millisecond)
		<-tick.C
	}
}
