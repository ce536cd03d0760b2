package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"admitd/test/harness"
)

// answer is what a caller saw of one request. Those that saw no header saw nothing that can be compared.
type answer struct {
	id, verdict string
	status      int
	// whole is true for an answer that ended as it should, with usage that says so many completion tokens.
	whole  bool
	tokens int
}

// crowd is one caller after the other.
type crowd struct{ answers []answer }

// call sends requests until the time is up; each caller may be patient, slow, hasty or confused.
func (c *crowd) call(ctx context.Context, a *harness.Admitd, rng *rand.Rand) {
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for ctx.Err() == nil {
		mine, cancel := context.WithCancel(context.WithoutCancel(ctx))
		if rng.IntN(4) == 0 {
			hasty := time.AfterFunc(time.Duration(rng.IntN(300))*time.Millisecond, cancel)
			c.one(ctx, mine, client, a.Gate, rng)
			hasty.Stop()
		} else {
			c.one(ctx, mine, client, a.Gate, rng)
		}
		cancel()
	}
}

// one sends a request under its own context; chaos ends with the chaos, and with it all slowness.
func (c *crowd) one(chaos, ctx context.Context, client *http.Client, gate string, rng *rand.Rand) {
	stream := rng.IntN(3) > 0
	body := harness.Chat(model, strings.Repeat("word ", 1+rng.IntN(200)), 1+rng.IntN(60), stream)
	if stream {
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return
	}
	path := "/v1/chat/completions"
	switch rng.IntN(30) {
	case 0:
		text = text[:len(text)/2]
	case 1:
		path = "/v1/nothing"
	case 2:
		text = bytes.Replace(text, []byte(model), []byte("no-such-model"), 1)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, gate+path, bytes.NewReader(text))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	seen := answer{id: resp.Header.Get("X-Admitd-Request-Id"), verdict: resp.Header.Get("X-Admitd-Decision"), status: resp.StatusCode}
	if seen.id == "" {
		return
	}
	from := io.Reader(resp.Body)
	switch rng.IntN(6) {
	case 0:
		// Leaves in the middle.
		from = io.LimitReader(from, int64(rng.IntN(2000)))
	case 1:
		from = &slowReader{ctx: chaos, from: from}
	}
	if stream && resp.StatusCode == http.StatusOK {
		seen.tokens, seen.whole = readStream(from)
	} else {
		seen.tokens, seen.whole = readSingle(from)
	}
	c.answers = append(c.answers, seen)
	if resp.StatusCode != http.StatusOK {
		wait(chaos, time.Duration(rng.IntN(60))*time.Millisecond)
	}
}

// slowReader takes little at a time, with a pause before each.
type slowReader struct {
	ctx  context.Context
	from io.Reader
}

// Read implements io.Reader.
func (s *slowReader) Read(p []byte) (int, error) {
	wait(s.ctx, 5*time.Millisecond)
	return s.from.Read(p[:min(len(p), 512)])
}

type usage struct {
	Usage *struct {
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
}

// finished reports whether a choice ended by itself: an engine that aborts says so there.
func (u usage) finished() bool {
	return len(u.Choices) > 0 && u.Choices[0].FinishReason != nil && *u.Choices[0].FinishReason != "abort"
}

func readSingle(from io.Reader) (tokens int, whole bool) {
	text, err := io.ReadAll(from)
	var u usage
	if err != nil || json.Unmarshal(text, &u) != nil || u.Usage == nil || !u.finished() {
		return 0, false
	}
	return u.Usage.CompletionTokens, true
}

func readStream(from io.Reader) (tokens int, whole bool) {
	lines := bufio.NewReader(from)
	ended, failed, said := false, false, false
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return tokens, ended && said && !failed
		}
		data, isData := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		var u usage
		switch {
		case !isData:
		case data == "[DONE]":
			return tokens, ended && said && !failed
		case json.Unmarshal([]byte(data), &u) != nil || len(u.Error) > 0:
			failed = true
		default:
			ended = ended || u.finished()
			if u.Usage != nil {
				tokens, said = u.Usage.CompletionTokens, true
			}
		}
	}
}
