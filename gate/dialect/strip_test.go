package dialect

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStripUsage: the chunk with usage alone goes, and nothing else, whatever the line ends are.
func TestStripUsage(t *testing.T) {
	const usage = `{"model":"m","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6}}`
	const printed = `{"model":"m","choices":[],"usage":{"prompt_tokens":5},"system_fingerprint":"f\"\u00e9"}`
	stopPrinted := strings.TrimSuffix(stop, "}") + `,"system_fingerprint":"f\"\u00e9"}`
	second := func(delta, finish string) string {
		return `{"choices":[{"index":1,"delta":{` + delta + `},"finish_reason":` + finish + `}]}`
	}
	tests := []struct {
		name     string
		in, want []byte
	}{
		{"last chunk", sse(word, stop, usage, done), sse(word, stop, done)},
		{"usage before choices", sse(word, `{"usage":{"prompt_tokens":5},"choices":[]}`, done), sse(word, done)},
		{"no choices and no usage", sse(word, `{"choices":[],"prompt_filter_results":[{}]}`, done), sse(word, `{"choices":[],"prompt_filter_results":[{}]}`, done)},
		{"usage null", sse(`{"choices":[],"usage":null}`, done), sse(`{"choices":[],"usage":null}`, done)},
		{"usage beside a choice", sse(`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":5}}`, done),
			sse(`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":5}}`, done)},
		{"engine that counts along", sse(`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":5}}`, usage, done),
			sse(`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":5}}`, usage, done)},
		{"no choices member", sse(`{"usage":{"prompt_tokens":5}}`, done), sse(`{"usage":{"prompt_tokens":5}}`, done)},
		{"error with usage", sse(`{"choices":[],"usage":{"prompt_tokens":5},"error":{"message":"x"}}`), sse(`{"choices":[],"usage":{"prompt_tokens":5},"error":{"message":"x"}}`)},
		{"cut inside it", []byte("data: " + usage[:60]), []byte("data: " + usage[:60])},
		{"without a blank line at the end", append(sse(word), "data: "+usage...), sse(word)},
		{"fingerprint moves to where it would have been", sse(word, stop, printed, done), sse(word, stopPrinted, done)},
		{"fingerprint with white space", sse(strings.TrimSuffix(stop, "}")+" }", printed, done), sse(strings.TrimSuffix(stop, "}")+` ,"system_fingerprint":"f\"\u00e9"}`, done)},
		{"fingerprint that is there", sse(word, stopPrinted, printed, done), sse(word, stopPrinted, done)},
		{"fingerprint null", sse(word, stop, `{"choices":[],"usage":{},"system_fingerprint":null}`, done), sse(word, stop, done)},
		{"fingerprint far too long", sse(stop, `{"choices":[],"usage":{},"system_fingerprint":"`+strings.Repeat("x", 300)+`"}`, done), sse(stop, done)},
		{"fingerprint cut in two lines", []byte("data: " + stop + "\n\ndata: {\"choices\":[],\"usage\":{},\"system_fingerprint\":\"a\ndata: b\"}\n\n"), sse(stop)},
		{"fingerprint with a control character", sse(stop, `{"choices":[],"usage":{},"system_fingerprint":"`+"f\x01"+`"}`, done), sse(stop, done)},
		{"fingerprint with an escape that is none", sse(stop, `{"choices":[],"usage":{},"system_fingerprint":"f\q"}`, done), sse(stop, done)},
		{"fingerprint of a chunk that stays", sse(stop, `{"choices":[],"system_fingerprint":"f"}`, done), sse(stop, `{"choices":[],"system_fingerprint":"f"}`, done)},
		{"fingerprint behind a comment", append(append(sse(stop), ": ping\n\n"...), sse(printed, done)...), append(append(sse(stop), ": ping\n\n"...), sse(done)...)},
		{"fingerprint, of two choices the last to end", sse(word, second(`"content":"b"`, "null"), stop, second("", `"stop"`), printed, done),
			sse(word, second(`"content":"b"`, "null"), stop, strings.TrimSuffix(second("", `"stop"`), "}")+`,"system_fingerprint":"f\"\u00e9"}`, done)},
		{"fingerprint without a blank line at the end", append(sse(stop), "data: "+printed...), sse(stopPrinted)},
		{"cut behind the finish reason", sse(word, stop), sse(word, stop)},
		{"cut inside the chunk to drop", append(sse(stop), "data: "+printed[:40]...), append(sse(stop), "data: "+printed[:40]...)},
		{"comments stay", append([]byte(": a\n: b\n"), sse(usage, done)...), append([]byte(": a\n: b\n"), sse(done)...)},
		{"all lines of the event go", append([]byte("id: 7\n: b\n"), sse(usage, done)...), sse(done)},
		{"data on two lines", []byte("data: {\"choices\":[],\ndata:\"usage\":{\"prompt_tokens\":5}}\n\ndata: [DONE]\n\n"), sse(done)},
		{"byte order mark", append([]byte("\xef\xbb\xbf"), sse(usage, done)...), append([]byte("\xef\xbb\xbf"), sse(done)...)},
	}
	rng := rand.New(rand.NewPCG(3, 4))
	o := FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Stream: true, StripUsage: true}
	for _, tt := range tests {
		for _, end := range []string{"\n", "\r\n", "\r"} {
			in := bytes.ReplaceAll(tt.in, []byte("\n"), []byte(end))
			want := string(bytes.ReplaceAll(tt.want, []byte("\n"), []byte(end)))
			got, _, _ := run(o, whole(in))
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("%s, line end %q (-want +got):\n%s", tt.name, end, diff)
			}
			for range 30 {
				if got, _, _ := run(o, pieces(rng, in)); string(got) != want {
					t.Fatalf("%s, line end %q, in pieces: got %q, want %q", tt.name, end, got, want)
				}
			}
		}
	}
}

// TestStripHoldsNothingElse: an event with output is forwarded as soon as it shows that it stays, whole or not.
func TestStripHoldsNothingElse(t *testing.T) {
	f := NewFilter(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Stream: true, StripUsage: true})
	const start = `data: {"model":"m","choices":[{"index":0,`
	if got := f.Feed([]byte(start)); string(got) != start {
		t.Errorf("forwarded %q of an event that holds a choice", got)
	}
	if got := f.Feed([]byte(`"delta":{"content":"a"}}]}` + "\n\ndata: {\"choices\":[],")); string(got) != `"delta":{"content":"a"}}]}`+"\n\n" {
		t.Errorf("forwarded %q", got)
	}
	if got := f.Feed([]byte(": no JSON" + strings.Repeat("x", 2*maxHeld))); len(got) <= 2*maxHeld {
		t.Errorf("%d bytes forwarded of what is far too long for usage alone", len(got))
	}
}

// TestStripHoldsTheLastBracketOnly: the answer is out, with its finish reason, before the next chunk comes; one of two
// choices that ends is not even held for its last byte.
func TestStripHoldsTheLastBracketOnly(t *testing.T) {
	f := NewFilter(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Stream: true, StripUsage: true})
	want := strings.TrimSuffix(string(sse(stop)), "}\n\n")
	if got := f.Feed(sse(stop)); string(got) != want {
		t.Errorf("forwarded %q, want %q", got, want)
	}
	if got := f.Feed([]byte("data: {\"choices\":[{")); string(got) != "}\n\ndata: {\"choices\":[{" {
		t.Errorf("forwarded %q once the next chunk is known to stay", got)
	}
	f = NewFilter(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Stream: true, StripUsage: true})
	f.Feed(sse(word, `{"choices":[{"index":1,"delta":{"content":"b"}}]}`))
	if got := f.Feed(sse(stop)); string(got) != string(sse(stop)) {
		t.Errorf("forwarded %q while another choice goes on", got)
	}
}

// TestStripIsForChatOnly: other dialects send their usage inside events that callers expect.
func TestStripIsForChatOnly(t *testing.T) {
	_, _, body := capture(t, "responses-stream.http")
	f := NewFilter(FilterOptions{Endpoint: endpoint(t, "/v1/responses"), Stream: true, StripUsage: true})
	if got := f.Feed(body); &got[0] != &body[0] || len(got) != len(body) {
		t.Error("a stream of the responses dialect was touched")
	}
}

// TestLineForms: comments, ids, missing spaces and several data lines are read as the standard says.
func TestLineForms(t *testing.T) {
	const data = `{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`
	for _, in := range []string{
		"data:" + data + "\n\ndata:[DONE]\n\n",
		": hello\nretry: 3\nid: 1\nevent: x\ndata: " + data + "\n\n\n\ndata: [DONE]\n\n",
		"data: {\"choices\":\ndata: [{\"index\":0,\ndata:  \"delta\":{\"content\":\"a\"},\ndata\ndata: \"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
		"unknown-field-name: x\ndata: " + data + "\n\ndata: [DONE]",
		"\n\ndata: " + data + "\n\ndata: [DONE]\n",
	} {
		for _, end := range []string{"\n", "\r\n", "\r"} {
			_, _, r := run(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Stream: true}, whole([]byte(strings.ReplaceAll(in, "\n", end))))
			if r.Ending != EndWhole || r.OutputEvents != 1 || r.UsageUnknown {
				t.Errorf("%q: %s", in, show(r))
			}
		}
	}
}

// FuzzFilter: no response makes it panic, output and result do not depend on the chunks, and without edits the
// output is the input.
func FuzzFilter(f *testing.F) {
	for _, name := range captures(f) {
		status, stream, body := capture(f, name)
		f.Add(pathOf(name), body[:min(len(body), 4096)], stream, status, uint64(1))
	}
	f.Add("/v1/chat/completions", []byte("data: {\"choices\":[],\"usage\":{}}\r\r\ndata: x\r\n"), true, 200, uint64(2))
	f.Add("/v1/chat/completions", []byte(`{"model":"\\\"","choices":[[{"a":"\\`), false, 200, uint64(3))
	f.Fuzz(func(t *testing.T, path string, body []byte, stream bool, status int, seed uint64) {
		ep := Classify("POST", path)
		rng := rand.New(rand.NewPCG(seed, 1))
		for _, o := range []FilterOptions{{}, {StripUsage: true}, {RewriteModel: "x"}, {StripUsage: true, RewriteModel: "y"}} {
			o.Endpoint, o.Stream, o.Status = ep, stream, status
			want, _, wantResult := run(o, whole(body))
			if !o.StripUsage && o.RewriteModel == "" && !bytes.Equal(want, body) {
				t.Fatalf("%q became %q", body, want)
			}
			got, _, gotResult := run(o, pieces(rng, body))
			if !bytes.Equal(got, want) {
				t.Fatalf("%+v %q: in pieces %q, whole %q", o, body, got, want)
			}
			if diff := cmp.Diff(wantResult, gotResult); diff != "" {
				t.Fatalf("%+v %q: result depends on pieces:\n%s", o, body, diff)
			}
		}
	})
}

// What an engine puts into the list of choices is passed on, whatever it is: only an empty list is usage alone.
func TestChunkWithChoicesThatAreNoObjectsIsNotTakenForUsage(t *testing.T) {
	for _, choices := range []string{"7", `"x"`, "null", "[]", "{}", "true, 1"} {
		in := `data: {"choices":[` + choices + `],"usage":{"prompt_tokens":1,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n"
		out, _, _ := run(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Stream: true, StripUsage: true}, whole([]byte(in)))
		if string(out) != in {
			t.Errorf("%q became %q", in, out)
		}
	}
}
