package dialect

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
)

// TestCaptures holds what is read from every recorded response of a real engine.
func TestCaptures(t *testing.T) {
	done := map[string]bool{}
	datadriven.RunTest(t, "testdata/captures.txt", func(t *testing.T, d *datadriven.TestData) string {
		var name string
		d.ScanArgs(t, "file", &name)
		done[name] = true
		status, stream, body := capture(t, name)
		_, f, r := run(FilterOptions{Endpoint: endpoint(t, pathOf(name)), Stream: stream, Status: status}, whole(body))
		out := show(r)
		if n, ok := f.RunningCompletionTokens(); ok {
			out += fmt.Sprintf("running=%d\n", n)
		}
		if ev, ok := f.FirstEvent(); ok && ev.IsError {
			out += fmt.Sprintf("first event is error %d\n", ev.Code)
		}
		return out
	})
	for _, name := range captures(t) {
		if !done[name] {
			t.Errorf("testdata/captures.txt does not cover %s", name)
		}
	}
}

// TestCapturesInAnyChunks: neither what is forwarded nor what is read depends on how the bytes arrive, and where
// nothing is to be changed the bytes are the engine's.
func TestCapturesInAnyChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range captures(t) {
		status, stream, body := capture(t, name)
		ep := endpoint(t, pathOf(name))
		for _, o := range []FilterOptions{
			{Endpoint: ep, Stream: stream, Status: status},
			{Endpoint: ep, Stream: stream, Status: status, StripUsage: true},
			{Endpoint: ep, Stream: stream, Status: status, RewriteModel: `a "quoted" name`},
			{Endpoint: ep, Stream: stream, Status: status, StripUsage: true, RewriteModel: "x"},
		} {
			want, _, wantResult := run(o, whole(body))
			if !o.StripUsage && o.RewriteModel == "" && !bytes.Equal(want, body) {
				t.Errorf("%s: the bytes changed although nothing is to be changed", name)
			}
			for range 20 {
				got, _, gotResult := run(o, pieces(rng, body))
				if !bytes.Equal(got, want) {
					t.Fatalf("%s %+v: output depends on chunks:\n%s", name, o, cmp.Diff(string(want), string(got)))
				}
				if diff := cmp.Diff(wantResult, gotResult); diff != "" {
					t.Fatalf("%s %+v: result depends on chunks:\n%s", name, o, diff)
				}
			}
		}
	}
}

// TestFeedReturnsTheSameSlice: without an edit the relay forwards the very bytes that it read.
func TestFeedReturnsTheSameSlice(t *testing.T) {
	f := NewFilter(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Stream: true})
	p := []byte("data: {\"choices\":[]}\n\ndata: [DO")
	if got := f.Feed(p); &got[0] != &p[0] || len(got) != len(p) {
		t.Error("Feed returned another slice than it was given")
	}
	if rest, _ := f.Close(); len(rest) != 0 {
		t.Errorf("Close returned %q although nothing was held back", rest)
	}
}

// TestStripGivesWhatTheCallerWouldHaveSeen compares the stripped stream with one of the same engine that was
// never asked for usage: apart from ids, times and words the same lines.
func TestStripGivesWhatTheCallerWouldHaveSeen(t *testing.T) {
	_, _, body := capture(t, "chat-stream-usage.http")
	got, _, r := run(FilterOptions{Endpoint: endpoint(t, "/v1/chat/completions"), Stream: true, StripUsage: true}, whole(body))
	usage := bytes.Index(body, []byte(`data: {"id":"chatcmpl-ac420c43e6cac145","object":"chat.completion.chunk","created":1796043521,"model":"smol","choices":[],`))
	end := usage + bytes.Index(body[usage:], []byte("\n\n")) + 2
	want := append(bytes.Clone(body[:usage]), body[end:]...)
	// The engine's fingerprint is where it was in the stream without usage: in the chunk with the finish reason.
	const finish, stamp = `"finish_reason":"length","stop_reason":null,"token_ids":null}]`, `,"system_fingerprint":"vllm-0.32.0-ea1a76f8"`
	want = bytes.Replace(want, []byte(finish), []byte(finish+stamp), 1)
	if _, _, asked := capture(t, "chat-stream-nousage.http"); !bytes.Contains(asked, []byte(finish+stamp+"}\n\ndata: [DONE]")) {
		t.Fatal("the engine puts its fingerprint elsewhere")
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("stripped stream (-want +got):\n%s", diff)
	}
	if r.Usage.CompletionTokens == nil || *r.Usage.CompletionTokens != 6 {
		t.Errorf("usage of the stripped chunk was not read: %s", show(r))
	}
}
