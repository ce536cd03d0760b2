package dialect

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// agentBody is a chat request of about 1 MB as coding agents send them: many turns, tool calls, files in escapes.
func agentBody() []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":"m","stream":true,"max_tokens":4096,"tools":[`)
	for i := range 60 {
		fmt.Fprintf(&b, `{"type":"function","function":{"name":"tool_%d","description":%q,"parameters":{"type":"object","properties":{"path":{"type":"string"}}}}},`, i, strings.Repeat("does a thing ", 30))
	}
	b.Truncate(b.Len() - 1)
	b.WriteString(`],"messages":[{"role":"system","content":"You are an agent."},{"role":"user","content":"Fix it."}`)
	for i := 0; b.Len() < 1<<20; i++ {
		fmt.Fprintf(&b, `,{"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"read","arguments":"{\"path\":\"a.go\"}"}}]},{"role":"tool","tool_call_id":"c%d","content":%s}`,
			i, i, quote(strings.Repeat("func main() {\n\tfmt.Println(\"hello, 世界\")\n}\n", 100)))
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

func BenchmarkRead1MB(b *testing.B) {
	body, ep := agentBody(), Classify("POST", "/v1/chat/completions")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, p := Read(ep, nil, body); p != nil {
			b.Fatal(p.Message)
		}
	}
}

func BenchmarkSplice1MB(b *testing.B) {
	body, ep := agentBody(), Classify("POST", "/v1/chat/completions")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Splice(ep, body, Edits{IncludeUsage: true, DropPriority: true}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFilterPerEvent(b *testing.B) {
	_, _, body := capture(b, "chat-stream-usage.http")
	word := append(body[:bytes.Index(body, []byte("\n\n"))], "\n\n"...)
	for _, o := range []FilterOptions{{}, {StripUsage: true}, {StripUsage: true, RewriteModel: "alias"}} {
		b.Run(fmt.Sprintf("strip=%v,rewrite=%v", o.StripUsage, o.RewriteModel != ""), func(b *testing.B) {
			o.Endpoint, o.Stream = Classify("POST", "/v1/chat/completions"), true
			f := NewFilter(o)
			b.SetBytes(int64(len(word)))
			b.ReportAllocs()
			for b.Loop() {
				f.Feed(word)
			}
		})
	}
}

func BenchmarkClassify(b *testing.B) {
	for b.Loop() {
		if Classify("POST", "/v1/chat/completions").Class != Inference {
			b.Fatal("wrong class")
		}
	}
}

// TestFilterAllocatesNothingPerEvent: a stream costs no garbage for each token.
func TestFilterAllocatesNothingPerEvent(t *testing.T) {
	f := NewFilter(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Stream: true, StripUsage: true, RewriteModel: "alias"})
	event := sse(word)
	f.Feed(event)
	if n := testing.AllocsPerRun(100, func() { f.Feed(event) }); n > 0 {
		t.Errorf("%v allocations for each event", n)
	}
}
