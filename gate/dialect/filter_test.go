package dialect

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sse joins events, each of which is the data of one event, into a stream.
func sse(events ...string) []byte {
	var b bytes.Buffer
	for _, e := range events {
		name := ""
		if n, data, ok := strings.Cut(e, "|"); ok && !strings.Contains(n, `"`) {
			name, e = n, data
		}
		b.Write(event(name, []byte(e)))
	}
	return b.Bytes()
}

const (
	role = `{"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	word = `{"model":"m","choices":[{"index":0,"delta":{"content":"word"},"finish_reason":null}]}`
	stop = `{"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	done = "[DONE]"

	anthropicWord = `{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}`
)

func TestEndings(t *testing.T) {
	const chat, messages, responses = "/v1/chat/completions", "/v1/messages", "/v1/responses"
	choice := func(i int, delta, finish string) string {
		return fmt.Sprintf(`{"choices":[{"index":%d,"delta":{%s},"finish_reason":%s}]}`, i, delta, finish)
	}
	tests := []struct {
		name, path string
		status     int
		stream     bool
		body       []byte
		want       string
	}{
		{"whole", chat, 200, true, sse(role, word, stop, done), `ending=whole finish="stop" events=1`},
		{"no terminal mark", chat, 200, true, sse(role, word, stop), `ending=engine_cut finish="stop" events=1`},
		{"no finish reason", chat, 200, true, sse(role, word, done), `ending=engine_cut finish="" events=1`},
		{"nothing at all", chat, 200, true, nil, `ending=engine_cut finish="" events=0`},
		{"cut inside an event", chat, 200, true, sse(role, word, stop)[:150], `ending=engine_cut finish="" events=0 prompt=- cached=- completion=- usage-unknown`},
		{"last event without a blank line", chat, 200, true, bytes.TrimRight(sse(role, word, stop, done), "\n"), `ending=whole finish="stop"`},
		{"abort", chat, 200, true, sse(word, choice(0, "", `"abort"`), done), `ending=engine_aborted finish="abort" events=1`},
		{"finish reason error", chat, 200, true, sse(word, choice(0, "", `"error"`), done), `ending=engine_error finish="error"`},
		{"two choices", chat, 200, true, sse(choice(0, `"content":"a"`, "null"), choice(1, `"content":"b"`, "null"), choice(1, "", `"stop"`), choice(0, "", `"length"`), done),
			`ending=whole finish="length" events=2`},
		{"one of two choices never ends", chat, 200, true, sse(choice(0, `"content":"a"`, "null"), choice(1, `"content":"b"`, "null"), choice(1, "", `"stop"`), done),
			`ending=engine_cut finish="stop" events=2`},
		{"one of two choices aborted", chat, 200, true, sse(choice(0, "", `"abort"`), choice(1, "", `"stop"`), done), `ending=engine_aborted`},

		{"queue full in the stream", chat, 200, true, sse(`{"error":{"message":"full","type":"Service Unavailable","code":503}}`, done),
			`ending=engine_refused finish="" events=0 prompt=- cached=- completion=-` + "\n" + `error 503 "full"`},
		{"queue full behind the role", chat, 200, true, sse(role, `{"error":{"message":"full","code":"503"}}`, done), `ending=engine_refused`},
		{"503 after output", chat, 200, true, sse(word, `{"error":{"message":"evicted","code":503}}`, done), `ending=engine_error`},
		{"error without a code", chat, 200, true, sse(`{"error":{"message":"boom"}}`, done), `ending=engine_error finish="" events=0 prompt=- cached=- completion=-` + "\n" + `error 0 "boom"`},
		{"error is a string", chat, 200, true, sse(`{"error":"Unauthorized"}`, done), `ending=engine_error`},
		{"error null is none", chat, 200, true, sse(`{"error":null,"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`, done), `ending=whole`},
		{"flat error of SGLang", chat, 200, true, sse(`{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}`, done),
			`ending=engine_invalid finish="" events=0 prompt=- cached=- completion=-` + "\n" + `error 400 "too long"`},
		{"bad request in the stream", chat, 200, true, sse(`{"error":{"message":"n","type":"BadRequestError"}}`, done), `ending=engine_invalid`},
		{"words about an error are none", chat, 200, true, sse(`{"choices":[{"index":0,"delta":{"content":"{\"error\":{\"code\":503}}"},"finish_reason":"stop"}]}`, done), `ending=whole finish="stop" events=1`},

		{"real 503", chat, 503, true, []byte(`{"object":"error","message":"The request queue is full.","type":"ServiceUnavailable","param":null,"code":503}`), `ending=engine_refused`},
		{"real 429", chat, 429, false, []byte(`{"error":{"message":"slow"}}`), `ending=engine_refused`},
		{"real 500, no JSON", chat, 500, true, []byte("Internal Server Error"), `ending=engine_error finish="" events=0 prompt=- cached=- completion=-` + "\n" + `error 500 ""`},
		{"FastAPI list of errors", chat, 422, false, []byte(`{"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":{"secret":1}}]}`),
			`ending=engine_invalid finish="" events=0 prompt=- cached=- completion=-` + "\n" + `error 422 "Field required"`},
		{"redirect", chat, 307, false, nil, `ending=engine_error`},

		{"whole body", chat, 200, false, []byte(`{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`),
			`ending=whole finish="stop" events=0 prompt=3 cached=- completion=4`},
		{"aborted body", chat, 200, false, []byte(`{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"abort"}]}`), `ending=engine_aborted`},
		{"cut body", chat, 200, false, []byte(`{"choices":[{"index":0,"message":{"content":"x"}`), `ending=engine_cut`},
		{"body that is no JSON", chat, 200, false, []byte("<html>gateway</html>"), `ending=engine_error`},
		{"JSON error in spite of stream", chat, 400, true, []byte(`{"error":{"message":"no","code":400}}`), `ending=engine_invalid`},
		{"empty body of a helper", "/tokenize", 200, false, nil, `ending=whole`},
		{"plain transcript", "/v1/audio/transcriptions", 200, false, []byte("some words"), `ending=whole`},
		{"list as a body", "/classify", 200, false, []byte(` [ {"a":1}, [2] ] `), `ending=whole`},

		{"message whole", messages, 200, true, sse(
			`message_start|{"type":"message_start","message":{"usage":{"input_tokens":7,"cache_read_input_tokens":224,"cache_creation_input_tokens":3,"output_tokens":1}}}`,
			`ping|{"type":"ping"}`, `content_block_delta|{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`,
			`message_delta|{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}`, `message_stop|{"type":"message_stop"}`),
			`ending=whole finish="tool_use" events=1 prompt=234 cached=224 completion=9`},
		{"message cut", messages, 200, true, sse(`{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}`), `ending=engine_cut finish="" events=1`},
		{"message overloaded", messages, 200, true, sse(`error|{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`),
			`ending=engine_refused finish="" events=0 prompt=- cached=- completion=-` + "\n" + `error 529 "busy"`},
		{"message error of vLLM", messages, 200, true, sse(`error|{"type":"error","error":{"type":"InternalServerError","message":"x"}}`), `ending=engine_error`},

		{"response incomplete is whole", responses, 200, true, sse(`response.output_text.delta|{"delta":"a","type":"response.output_text.delta"}`,
			`response.completed|{"type":"response.completed","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"usage":{"input_tokens":37,"input_tokens_details":{"cached_tokens":5},"output_tokens":4}}}`),
			`ending=whole finish="max_output_tokens" events=1 prompt=37 cached=5 completion=4`},
		{"response failed", responses, 200, true, sse(`response.failed|{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"boom"}}}`),
			`ending=engine_error finish="" events=0 prompt=- cached=- completion=-` + "\n" + `error 500 "boom"`},
		{"response failed without an error", responses, 200, true, sse(`{"delta":"a","type":"response.output_text.delta"}`,
			`response.failed|{"type":"response.failed","response":{"status":"failed","error":null}}`), `ending=engine_error`},
		{"response aborted", responses, 200, true, sse(`{"delta":"a","type":"response.output_text.delta"}`,
			`{"type":"response.incomplete","response":{"incomplete_details":{"reason":"abort"},"status":"incomplete"}}`), `ending=engine_aborted finish="abort"`},
		{"response incomplete for another reason", responses, 200, true, sse(`{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"}}}`),
			`ending=engine_aborted finish="content_filter"`},
		{"response incomplete, no reason given", responses, 200, true, sse(`{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":null}}`), `ending=whole finish="incomplete"`},
		{"response completed with a failed status", responses, 200, true, sse(`{"type":"response.completed","response":{"status":"failed"}}`), `ending=engine_error`},
		{"failed body", responses, 200, false, []byte(`{"object":"response","status":"failed","error":null,"output":[]}`), `ending=engine_error`},
		{"cancelled body", responses, 200, false, []byte(`{"object":"response","status":"cancelled","error":null,"output":[]}`), `ending=engine_aborted`},
		{"incomplete body", responses, 200, false, []byte(`{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"error":null}`), `ending=whole finish="max_output_tokens"`},
		{"incomplete body, aborted", responses, 200, false, []byte(`{"status":"incomplete","incomplete_details":{"reason":"abort"},"error":null}`), `ending=engine_aborted`},
		{"response error event", responses, 200, true, sse(`error|{"type":"error","code":"rate_limit_exceeded","message":"slow"}`), `ending=engine_refused`},
		{"response cut", responses, 200, true, sse(`{"delta":"a","type":"response.output_text.delta"}`), `ending=engine_cut finish="" events=1`},
		{"response of tool calls and reasoning", responses, 200, true, sse(`{"delta":"{}","type":"response.function_call_arguments.delta"}`, `{"delta":"hm","type":"response.reasoning_text.delta"}`,
			`{"type":"response.completed","response":{"status":"completed"}}`), `ending=whole finish="completed" events=2`},
	}
	for _, tt := range tests {
		_, _, r := run(FilterOptions{Endpoint: endpoint(t, tt.path), Stream: tt.stream, Status: tt.status}, whole(tt.body))
		if got := show(r); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s:\ngot  %swant %s", tt.name, got, tt.want)
		}
	}
}

// TestEmptyErrorBesideContentIsNone: some engines write out an error field that they do not use. What says anything, in
// whatever form, is an error.
func TestEmptyErrorBesideContentIsNone(t *testing.T) {
	const rest = `"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`
	for empty, want := range map[string]Ending{
		`""`: EndWhole, `null`: EndWhole, `{}`: EndWhole, ` { } `: EndWhole, `[]`: EndWhole, `[{}]`: EndWhole,
		`"boom"`: EndError, `{"message":"boom"}`: EndError, `{"unheard_of":1}`: EndError, `["boom"]`: EndError, `[{"message":"boom"}]`: EndError,
	} {
		for _, body := range []string{`{"error":` + empty + `,` + rest, strings.TrimSuffix(rest, "}") + `,"error":` + empty + `}`} {
			if body[0] != '{' {
				body = "{" + body
			}
			_, f, r := run(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Stream: true}, whole(sse(body, done)))
			if ev, seen := f.FirstEvent(); r.Ending != want || !seen || ev.IsError != (want != EndWhole) {
				t.Errorf("%s: ending %s, first event %+v; want %s", body, r.Ending, ev, want)
			}
		}
	}
	// Alone under an error status it is still the error that the status says.
	if _, _, r := run(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Status: 500}, whole([]byte(`{"error":{}}`))); r.Ending != EndError {
		t.Errorf("an empty error under status 500 ends %s", r.Ending)
	}
}

// TestFirstOutput: a role alone is no output; content, reasoning, tool calls and completion text are.
func TestFirstOutput(t *testing.T) {
	delta := func(s string) string { return `{"choices":[{"index":0,"delta":{` + s + `}}]}` }
	tests := []struct {
		path, data string
		want       bool
	}{
		{"/v1/chat/completions", role, false},
		{"/v1/chat/completions", delta(`"content":null,"tool_calls":[],"reasoning_content":""`), false},
		{"/v1/chat/completions", `{"choices":[],"usage":{"completion_tokens":0}}`, false},
		{"/v1/chat/completions", delta(`"content":"a"`), true},
		{"/v1/chat/completions", delta(`"content":" "`), true},
		{"/v1/chat/completions", delta(`"reasoning_content":"a"`), true},
		{"/v1/chat/completions", delta(`"reasoning":"a"`), true},
		{"/v1/chat/completions", delta(`"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]`), true},
		{"/v1/chat/completions", delta(`"function_call":{"name":"f"}`), true},
		{"/v1/completions", `{"choices":[{"index":0,"text":""}]}`, false},
		{"/v1/completions", `{"choices":[{"index":0,"text":"a"}]}`, true},
		{"/v1/messages", `{"type":"message_start","message":{"content":[]}}`, false},
		{"/v1/messages", `{"type":"content_block_start","content_block":{"type":"text","text":""}}`, false},
		{"/v1/messages", `{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}`, true},
		{"/v1/messages", `{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"a"}}`, true},
		{"/v1/messages", `{"delta":{"type":"text_delta","text":"a"},"type":"message_other"}`, false},
		{"/v1/responses", `{"type":"response.output_item.added","item":{"content":[]}}`, false},
		{"/v1/responses", `{"delta":"a","type":"response.output_text.delta"}`, true},
		{"/v1/responses", `{"delta":"","type":"response.output_text.delta"}`, false},
	}
	for _, tt := range tests {
		f := NewFilter(FilterOptions{Endpoint: endpoint(t, tt.path), Stream: true})
		f.Feed(sse(tt.data))
		if f.First() != tt.want || (f.OutputEvents() == 1) != tt.want {
			t.Errorf("%s %s: first %v after %d output events, want %v", tt.path, tt.data, f.First(), f.OutputEvents(), tt.want)
		}
	}
}

// TestDeepOutput: nesting beyond what is followed costs nothing and hides nothing that comes behind it.
func TestDeepOutput(t *testing.T) {
	deep := strings.Repeat(`[{"a":`, 500) + "1" + strings.Repeat("}]", 500)
	_, _, r := run(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Stream: true}, whole(sse(
		`{"choices":[{"index":0,"delta":{"tool_calls":`+deep+`,"content":"a"},"finish_reason":"stop"}],"usage":{"completion_tokens":7}}`, done)))
	if got, want := show(r), `ending=whole finish="stop" events=1 prompt=- cached=- completion=7`+"\n"; got != want {
		t.Errorf("got %swant %s", got, want)
	}
}

func TestFirstEvent(t *testing.T) {
	f := NewFilter(FilterOptions{Endpoint: endpoint(t, "/v1/messages"), Stream: true})
	f.Feed([]byte(": comment\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overl"))
	if ev, ok := f.FirstEvent(); ok {
		t.Errorf("a comment, a ping and half an event count as the first event: %+v", ev)
	}
	f.Feed([]byte("oaded_error\",\"message\":\"busy\"}}\n\n"))
	if ev, ok := f.FirstEvent(); !ok || ev != (FirstEvent{true, StatusOverloaded, "busy"}) {
		t.Errorf("first event %+v %v", ev, ok)
	}
	f = NewFilter(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Stream: true})
	f.Feed(sse(role, `{"error":{"message":"late","code":500}}`))
	if ev, ok := f.FirstEvent(); !ok || ev.IsError {
		t.Errorf("a later error changed the first event: %+v %v", ev, ok)
	}
}

// TestF02_GiantLines: lines of 65,537 bytes, 1.1 MiB and 8 MiB are forwarded whole and at once, usage behind them
// is read, and the filter holds no more memory for them.
func TestF02_GiantLines(t *testing.T) {
	for _, size := range []int{65537, 1100 << 10, 8 << 20} {
		giant := `{"model":"m","choices":[{"index":0,"delta":{"content":"` + strings.Repeat(`\n\"é`, size/7) + `"},"finish_reason":null}]}`
		body := sse(role, giant, stop, `{"model":"m","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6}}`, done)
		for _, o := range []FilterOptions{{}, {StripUsage: true}, {StripUsage: true, RewriteModel: "caller's"}} {
			o.Endpoint, o.Stream = endpoint(t, "/v1/chat/completions"), true
			f := NewFilter(o)
			in, out, behind := 0, 0, 0
			for p := range chunksOf(body, 32<<10) {
				in += len(p)
				out += len(f.Feed(p))
				behind = max(behind, in-out)
			}
			if o.StripUsage && cap(f.ed.carry) > 2*maxHeld || !o.StripUsage && behind > 0 || behind > maxHeld {
				t.Errorf("%d bytes, %+v: the relay fell %d bytes behind", size, o, behind)
			}
			_, r := f.Close()
			if want := `ending=whole finish="stop" events=1 prompt=5 cached=- completion=6` + "\n"; show(r) != want {
				t.Errorf("%d bytes: got %swant %s", size, show(r), want)
			}
		}
	}
}

func chunksOf(b []byte, n int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(n, len(b))
			if !yield(bytes.Clone(b[:n])) {
				return
			}
			b = b[n:]
		}
	}
}

// TestF02_GiantBody: the answer to 2,000 embeddings is read in passing, with usage at its end and the model
// behind the numbers.
func TestF02_GiantBody(t *testing.T) {
	body := []byte(`{"object":"list","data":[` + strings.Repeat(`{"embedding":[0.1,-2e-3]},`, 200000) + `{}],"model":"served","usage":{"prompt_tokens":77,"total_tokens":77}}`)
	f := NewFilter(FilterOptions{Endpoint: endpoint(t, "/v1/embeddings"), RewriteModel: "alias"})
	var out []byte
	for p := range chunksOf(body, 10_000) {
		out = append(out, f.Feed(p)...)
	}
	rest, r := f.Close()
	out = append(out, rest...)
	if want := bytes.Replace(body, []byte(`"served"`), []byte(`"alias"`), 1); !bytes.Equal(out, want) {
		t.Error("the body changed in more than its model")
	}
	if got := show(r); got != "ending=whole finish=\"\" events=0 prompt=77 cached=- completion=-\n" {
		t.Error(got)
	}
}

// TestF14_RunningUsage: counts that run along are never added up, null is not zero, and a cut stream settles at
// the last value.
func TestF14_RunningUsage(t *testing.T) {
	running := func(n int) string {
		return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":{"prompt_tokens":10,"total_tokens":%d,"completion_tokens":%d}}`, 10+n, n)
	}
	null := `{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":null}`
	tests := []struct {
		name, path string
		body       []byte
		want       string
	}{
		{"cumulative", "/v1/chat/completions", sse(running(1), running(2), running(3), stop, done), "prompt=10 cached=- completion=3"},
		{"cumulative, cut", "/v1/chat/completions", sse(running(1), running(2)), "prompt=10 cached=- completion=2"},
		{"null until the end", "/v1/chat/completions", sse(null, null, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2}}`, done), "prompt=10 cached=- completion=2"},
		{"null behind a value", "/v1/chat/completions", sse(running(4), null, `{"choices":[],"usage":{"prompt_tokens":null,"completion_tokens":5}}`), "prompt=10 cached=- completion=5"},
		{"null only", "/v1/chat/completions", sse(null, stop, done), "prompt=- cached=- completion=-"},
		{"numbers that are none", "/v1/chat/completions", sse(`{"choices":[],"usage":{"prompt_tokens":-1,"completion_tokens":1.5}}`), "prompt=- cached=- completion=-"},
		{"zeros at the start", "/v1/messages", sse(`{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":37,"cache_read_input_tokens":null,"output_tokens":8}}`), "prompt=37 cached=- completion=8"},
		{"a message that ends behind its start has produced what was counted, not 0", "/v1/messages",
			sse(`message_start|{"type":"message_start","message":{"usage":{"input_tokens":37,"output_tokens":0}}}`, anthropicWord, anthropicWord),
			"events=2 prompt=37 cached=- completion=-"},
		{"nor the placeholder 1 that others send", "/v1/messages",
			sse(`message_start|{"message":{"usage":{"input_tokens":37,"output_tokens":1}}}`, anthropicWord), "events=1 prompt=37 cached=- completion=-"},
		{"a whole body of the same dialect has its count", "/v1/messages",
			[]byte(`{"type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":37,"output_tokens":3}}`), "prompt=37 cached=- completion=3"},
	}
	for _, tt := range tests {
		_, _, r := run(FilterOptions{Endpoint: endpoint(t, tt.path), Stream: true}, whole(tt.body))
		if got := show(r); !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %swant %s", tt.name, got, tt.want)
		}
	}
}

func TestRunningCompletionTokens(t *testing.T) {
	f := NewFilter(FilterOptions{Endpoint: endpoint(t, "/v1/messages"), Stream: true})
	f.Feed(sse(`{"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":1}}}`))
	if n, ok := f.RunningCompletionTokens(); ok {
		t.Errorf("message_start's placeholder counts as running usage: %d", n)
	}
	f.Feed(sse(`{"type":"message_delta","delta":{},"usage":{"output_tokens":9}}`))
	if n, ok := f.RunningCompletionTokens(); !ok || n != 9 {
		t.Errorf("got %d %v, want 9", n, ok)
	}
}

// TestF28_ErrorsAreScrubbed: engines repeat the caller's input in their messages; it goes no further.
func TestF28_ErrorsAreScrubbed(t *testing.T) {
	for _, message := range []string{
		`1 validation error:\n  {'type': 'string_type', 'loc': 'body.messages', 'msg': 'Input should be a list', 'input': 'SECRET', 'ctx': {}}`,
		`1 validation error for Request\nmessages\n  Input should be a list [type=list_type, input_value='SECRET', input_type=str]`,
		`{\"msg\":\"bad\",\"input\":\"SECRET\"}`,
		`key sk-SECRETSECRET is not allowed`, `Authorization: Bearer SECRET`,
	} {
		body := []byte(`{"error":{"message":"` + message + `","code":400}}`)
		_, f, r := run(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Status: 400}, whole(body))
		ev, _ := f.FirstEvent()
		if text := fmt.Sprintf("%+v %+v", r, ev); strings.Contains(text, "SECRET") || r.ErrorMessage == "" {
			t.Errorf("%s became %q", message, r.ErrorMessage)
		}
	}
	long := []byte(`{"error":{"message":"` + strings.Repeat("é", 5000) + `","code":400}}`)
	_, _, r := run(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Status: 400}, whole(long))
	if want := strings.Repeat("é", maxErrorMessage/2); r.ErrorMessage != want {
		t.Errorf("long message: %d bytes, want %d", len(r.ErrorMessage), len(want))
	}
}

// TestRewriteModel: the model is replaced where the dialect puts it, and nowhere else.
func TestRewriteModel(t *testing.T) {
	tests := []struct{ path, in, want string }{
		{"/v1/chat/completions", `{"model" : "a","choices":[{"model":"a","delta":{"content":"\"model\":\"a\""}}]}`,
			`{"model" : "B","choices":[{"model":"a","delta":{"content":"\"model\":\"a\""}}]}`},
		{"/v1/chat/completions", `{"model":null}`, `{"model":null}`},
		{"/v1/chat/completions", `{"model":{"model":"a"}}`, `{"model":{"model":"a"}}`},
		{"/v1/messages", `{"type":"message_start","message":{"id":"x","model":"a"}}`, `{"type":"message_start","message":{"id":"x","model":"B"}}`},
		{"/v1/responses", `{"response":{"model":"a\"\\"},"type":"response.created"}`, `{"response":{"model":"B"},"type":"response.created"}`},
		{"/v1/responses", `{"item":{"model":"a"}}`, `{"item":{"model":"a"}}`},
	}
	for _, tt := range tests {
		ep := endpoint(t, tt.path)
		got, _, _ := run(FilterOptions{Endpoint: ep, Stream: true, RewriteModel: "B"}, whole(sse(tt.in)))
		if diff := cmp.Diff(string(sse(tt.want)), string(got)); diff != "" {
			t.Errorf("stream of %s (-want +got):\n%s", tt.path, diff)
		}
		got, _, _ = run(FilterOptions{Endpoint: ep, RewriteModel: "B"}, whole([]byte(tt.in)))
		if diff := cmp.Diff(tt.want, string(got)); diff != "" {
			t.Errorf("body of %s (-want +got):\n%s", tt.path, diff)
		}
	}
}
