package dialect

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// endpoint returns the table's row of a path.
func endpoint(t testing.TB, path string) Endpoint {
	t.Helper()
	ep := Classify(http.MethodPost, path)
	if ep.Class == Unknown {
		t.Fatalf("%s is not in the table", path)
	}
	return ep
}

// capture reads a recorded response: its status, whether it is a stream, and its body. Recordings without a head
// are streams that began before the recording did.
func capture(t testing.TB, name string) (status int, stream bool, body []byte) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "vllm-0.32.0", name))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(raw, []byte("HTTP/")) {
		return 200, !bytes.HasPrefix(raw, []byte("{")), raw
	}
	head, body, ok := bytes.Cut(raw, []byte("\r\n\r\n"))
	if !ok {
		t.Fatalf("%s has no end of head", name)
	}
	if _, err := fmt.Sscanf(string(head), "HTTP/1.1 %d", &status); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return status, strings.Contains(string(head), "text/event-stream"), body
}

// captures lists the recorded responses.
func captures(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("testdata", "vllm-0.32.0"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".tsv" {
			names = append(names, e.Name())
		}
	}
	return names
}

// pathOf says which path a recording came from, by its name.
func pathOf(name string) string {
	switch {
	case strings.HasPrefix(name, "messages") || strings.Contains(name, "-messages"):
		return "/v1/messages"
	case strings.HasPrefix(name, "responses"):
		return "/v1/responses"
	case strings.HasPrefix(name, "completions"):
		return "/v1/completions"
	case strings.HasPrefix(name, "count-tokens"):
		return "/v1/messages/count_tokens"
	case strings.HasPrefix(name, "tokenize"):
		return "/tokenize"
	}
	return "/v1/chat/completions"
}

// run feeds body in the given pieces and returns all that came out.
func run(o FilterOptions, pieces [][]byte) (out []byte, f *Filter, r Result) {
	f = NewFilter(o)
	for _, p := range pieces {
		out = append(out, f.Feed(bytes.Clone(p))...)
	}
	rest, r := f.Close()
	return append(out, rest...), f, r
}

// whole is the whole body as one piece.
func whole(body []byte) [][]byte { return [][]byte{body} }

// pieces cuts a body at random places, often between single bytes.
func pieces(rng *rand.Rand, body []byte) [][]byte {
	var out [][]byte
	for len(body) > 0 {
		n := 1 + rng.IntN(4)
		if rng.IntN(4) == 0 {
			n = 1 + rng.IntN(len(body))
		}
		n = min(n, len(body))
		out = append(out, body[:n])
		body = body[n:]
	}
	return out
}

// show writes a result on a few lines, absent values as "-".
func show(r Result) string {
	n := func(p *int) string {
		if p == nil {
			return "-"
		}
		return strconv.Itoa(*p)
	}
	s := fmt.Sprintf("ending=%s finish=%q events=%d prompt=%s cached=%s completion=%s", r.Ending, r.FinishReason, r.OutputEvents,
		n(r.Usage.PromptTokens), n(r.Usage.CachedTokens), n(r.Usage.CompletionTokens))
	if r.UsageUnknown {
		s += " usage-unknown"
	}
	if r.ErrorCode != 0 || r.ErrorMessage != "" {
		s += fmt.Sprintf("\nerror %d %q", r.ErrorCode, r.ErrorMessage)
	}
	return s + "\n"
}
