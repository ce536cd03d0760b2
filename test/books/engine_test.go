package books

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"admitd/supervisor"
)

// play is what the engine does with one request.
type play int

const (
	playWhole play = iota
	playCut
	playErrorEvent
	playFullEvent
	playFullStatus
	playServerError
	playHang
	playHangAfterToken
	playUnreachable
	playGarbage
	plays
)

// engine is an engine in memory: what it does is named by the request's user field, and it counts what it says.
type engine struct {
	// saidTokens are the completion tokens of whole answers by request number.
	saidTokens []atomic.Int32
	calls      atomic.Int64
	open       atomic.Int64
}

func (e *engine) Status() supervisor.Status {
	return supervisor.Status{State: supervisor.Ready, Model: "m", MaxModelLen: 4096}
}
func (e *engine) Transport() http.RoundTripper                          { return e }
func (e *engine) Logs(uint64, int) (lines []supervisor.Line, lost bool) { return nil, false }
func (e *engine) Changed() <-chan struct{}                              { return nil }
func (e *engine) Pids() []int                                           { return nil }

type asked struct {
	Stream bool   `json:"stream"`
	User   string `json:"user"`
}

// RoundTrip implements http.RoundTripper.
func (e *engine) RoundTrip(q *http.Request) (*http.Response, error) {
	e.calls.Add(1)
	var a asked
	body, err := io.ReadAll(q.Body)
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	var number, what, tokens int
	if err == nil {
		_, err = fmt.Sscanf(a.User, "%d-%d-%d", &number, &what, &tokens)
	}
	if err != nil {
		return nil, err
	}
	_ = q.Body.Close()
	switch play(what) {
	case playUnreachable:
		return nil, errors.New("connection refused")
	case playFullStatus:
		return answer(http.StatusServiceUnavailable, "application/json", reader(`{"error":{"message":"full"}}`)), nil
	case playServerError:
		return answer(http.StatusInternalServerError, "application/json", reader(`{"error":{"message":"broken"}}`)), nil
	case playGarbage:
		return answer(http.StatusOK, "text/html", reader("<html>not an answer")), nil
	}
	if !a.Stream {
		return e.single(q.Context(), number, play(what), tokens), nil
	}
	return answer(http.StatusOK, "text/event-stream", e.stream(q.Context(), number, play(what), tokens)), nil
}

func answer(status int, kind string, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: body, ContentLength: -1,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
}

func reader(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }

// single is an answer that is not streamed.
func (e *engine) single(ctx context.Context, number int, what play, tokens int) *http.Response {
	text := fmt.Sprintf(`{"object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"x"},`+
		`"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":%d,"total_tokens":%d}}`, tokens, tokens+9)
	b := e.body(ctx)
	switch what {
	case playHang, playHangAfterToken:
		b.pieces, b.hang = []string{text[:20]}, true
	case playCut, playErrorEvent, playFullEvent:
		b.pieces, b.err = []string{text[:len(text)/2]}, io.ErrUnexpectedEOF
	default:
		b.pieces = []string{text}
		e.saidTokens[number].Store(int32(tokens))
	}
	return answer(http.StatusOK, "application/json", b)
}

func token() string {
	return `data: {"object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}` + "\n\n"
}

func (e *engine) stream(ctx context.Context, number int, what play, tokens int) io.ReadCloser {
	b := e.body(ctx)
	for range tokens {
		b.pieces = append(b.pieces, token())
	}
	switch what {
	case playHang:
		b.pieces, b.hang = nil, true
	case playHangAfterToken:
		b.hang = true
	case playCut:
		b.err = io.ErrUnexpectedEOF
	case playErrorEvent:
		b.pieces = append(b.pieces, `data: {"error":{"message":"the engine died","code":500}}`+"\n\n", "data: [DONE]\n\n")
	case playFullEvent:
		b.pieces = []string{`data: {"error":{"message":"full","code":503}}` + "\n\n", "data: [DONE]\n\n"}
	default:
		b.pieces = append(b.pieces,
			`data: {"object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n"+
				fmt.Sprintf(`data: {"object":"chat.completion.chunk","model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":%d,"total_tokens":%d}}`, tokens, tokens+9)+
				"\n\ndata: [DONE]\n\n")
		e.saidTokens[number].Store(int32(tokens))
	}
	return b
}

// body gives its pieces, one a read, and then its error, the end, or nothing until the request is cancelled.
type body struct {
	engine *engine
	ctx    context.Context
	pieces []string
	rest   bytes.Buffer
	hang   bool
	err    error
	closed bool
}

func (e *engine) body(ctx context.Context) *body {
	e.open.Add(1)
	return &body{engine: e, ctx: ctx}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.rest.Len() == 0 && len(b.pieces) > 0 {
		b.rest.WriteString(b.pieces[0])
		b.pieces = b.pieces[1:]
	}
	switch {
	case b.rest.Len() > 0:
		return b.rest.Read(p)
	case b.hang:
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	case b.err != nil:
		return 0, b.err
	}
	return 0, io.EOF
}

// Close implements io.Closer.
func (b *body) Close() error {
	if !b.closed {
		b.closed = true
		b.engine.open.Add(-1)
	}
	return nil
}
