package dialect

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplice(t *testing.T) {
	model := func(s string) Edits { return Edits{Model: &s} }
	limit := func(n int) Edits { return Edits{OutputCap: &n} }
	usage, drop := Edits{IncludeUsage: true}, Edits{DropPriority: true}
	const chat, completions, messages, responses, embeddings = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/embeddings"
	tests := []struct {
		name, path string
		e          Edits
		in, want   string
	}{
		{"model", chat, model("b"), `{ "model" :  "a" , "x":1}`, `{ "model" :  "b" , "x":1}`},
		{"model needs quoting", chat, model("a\"b\n"), `{"model":"a"}`, `{"model":"a\"b\n"}`},
		{"model absent", chat, model("b"), ` {"x":1}`, ` {"model":"b","x":1}`},
		{"model absent, empty object", chat, model("b"), `{ }`, `{"model":"b" }`},
		{"nested models stay", chat, model("b"), `{"model":"a","m":{"model":"a","model":"c"}}`, `{"model":"b","m":{"model":"a","model":"c"}}`},
		{"escaped name of a member", chat, model("b"), `{"mod\u0065l":"a"}`, `{"mod\u0065l":"b"}`},
		{"escapes, order and white space stay", chat, model("b"), "{\n\t\"z\": \"\\u00e9\\/\",\r\n\"model\":\"a\",\"a\":1.0e+2}\n",
			"{\n\t\"z\": \"\\u00e9\\/\",\r\n\"model\":\"b\",\"a\":1.0e+2}\n"},

		{"usage absent", chat, usage, `{"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`},
		{"usage in options", chat, usage, `{"stream":true,"stream_options":{ "x":1 }}`, `{"stream":true,"stream_options":{"include_usage":true, "x":1 }}`},
		{"usage in empty options", completions, usage, `{"stream":true,"stream_options":{}}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		{"usage false", chat, usage, `{"stream":true,"stream_options":{"include_usage": false}}`, `{"stream":true,"stream_options":{"include_usage": true}}`},
		{"usage null", chat, usage, `{"stream":true,"stream_options":{"include_usage":null}}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		{"options null", chat, usage, `{"stream":true,"stream_options":null}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		{"running usage without usage at the end is left to the caller", chat, usage, `{"stream":true,"stream_options":{"continuous_usage_stats":true}}`, `{"stream":true,"stream_options":{"continuous_usage_stats":true}}`},
		{"the same, said twice", completions, usage, `{"stream":true,"stream_options":{"continuous_usage_stats":true,"include_usage":false}}`, `{"stream":true,"stream_options":{"continuous_usage_stats":true,"include_usage":false}}`},
		{"no running usage", chat, usage, `{"stream":true,"stream_options":{"continuous_usage_stats":false}}`, `{"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":false}}`},
		{"no stream", chat, usage, `{"stream":false}`, `{"stream":false}`},
		{"other dialects have no such field", messages, usage, `{"stream":true}`, `{"stream":true}`},

		{"cap set", chat, limit(7), `{"max_tokens":100}`, `{"max_tokens":7}`},
		{"cap set in the field that was used", chat, limit(7), `{"max_tokens":null,"max_completion_tokens":100}`, `{"max_tokens":null,"max_completion_tokens":7}`},
		{"both caps set", chat, limit(7), `{"max_tokens":9,"max_completion_tokens":9}`, `{"max_tokens":7,"max_completion_tokens":7}`},
		{"cap null", chat, limit(7), `{"max_tokens":null}`, `{"max_tokens":7}`},
		{"cap absent", chat, limit(7), `{"a":1}`, `{"max_tokens":7,"a":1}`},
		{"cap of completions", completions, limit(7), `{"max_completion_tokens":9}`, `{"max_tokens":7,"max_completion_tokens":9}`},
		{"cap of responses", responses, limit(7), `{"max_output_tokens":9}`, `{"max_output_tokens":7}`},
		{"cap of messages", messages, limit(7), `{"max_tokens":9}`, `{"max_tokens":7}`},
		{"no output, no cap", embeddings, limit(7), `{"a":1}`, `{"a":1}`},

		{"priority first", chat, drop, `{ "priority" : 1 , "a":2}`, `{ "a":2}`},
		{"priority in the middle", chat, drop, `{"a":1, "priority":{"x":[1]} ,"b":2}`, `{"a":1, "b":2}`},
		{"priority last", chat, drop, `{"a":1 , "priority":1 }`, `{"a":1 }`},
		{"priority alone", chat, drop, `{ "priority":1 }`, `{  }`},
		{"priority twice at the end", chat, drop, `{"a":1,"priority":1,"priority":2}`, `{"a":1}`},
		{"nested priority stays", chat, drop, `{"a":{"priority":1}}`, `{"a":{"priority":1}}`},
		{"rid inserted", chat, Edits{RequestID: "ab"}, `{"a":1}`, `{"rid":"ab","a":1}`},
		{"a caller's rid replaced, twice", chat, Edits{RequestID: "ab"}, `{"rid":"x","rid":["y"]}`, `{"rid":"ab","rid":"ab"}`},
		{"priority alone, model inserted", chat, Edits{Model: new("b"), DropPriority: true}, `{"priority":1}`, `{"model":"b"}`},
		{"priority first, model inserted", chat, Edits{Model: new("b"), DropPriority: true}, `{"priority":1,"a":1}`, `{"model":"b","a":1}`},
	}
	for _, tt := range tests {
		got, err := Splice(endpoint(t, tt.path), []byte(tt.in), tt.e)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(tt.want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestSpliceRefuses(t *testing.T) {
	for _, in := range []string{``, `{`, `[1]`, `"x"`, `{"stream":true,"stream_options":5}`} {
		if out, err := Splice(endpoint(t, "/v1/chat/completions"), []byte(in), Edits{IncludeUsage: true}); !errors.Is(err, ErrNotSpliceable) {
			t.Errorf("%s: got %s, %v; want ErrNotSpliceable", in, out, err)
		}
	}
}

// TestSpliceWithoutChangeKeepsTheSlice: an edit that changes nothing costs no copy.
func TestSpliceWithoutChangeKeepsTheSlice(t *testing.T) {
	body := []byte(`{"model":"a","stream":true,"stream_options":{"include_usage":true},"max_tokens":5}`)
	for _, e := range []Edits{{}, {Model: new("a"), IncludeUsage: true, OutputCap: new(5), DropPriority: true}} {
		got, err := Splice(endpoint(t, "/v1/chat/completions"), body, e)
		if err != nil || &got[0] != &body[0] || len(got) != len(body) {
			t.Errorf("%+v: got another slice (%v)", e, err)
		}
	}
}

// FuzzSplice: splicing and then decoding gives what decoding and then editing gives.
func FuzzSplice(f *testing.F) {
	for _, s := range []string{
		`{"model":"a","priority":1,"stream":true,"max_tokens":5}`, `{}`, ` { "priority":1 , "priority" : 2 } `,
		`{"stream":true,"stream_options":{"include_usage":false,"x":[1,{"y":"\u00e9"}]},"max_completion_tokens":null}`,
		`{"a":1,"priority":null,"b":2,"model":7,"stream_options":null,"stream":true}`,
	} {
		f.Add([]byte(s), "b", 3, true, true)
	}
	ep := Classify(http.MethodPost, "/v1/chat/completions")
	f.Fuzz(func(t *testing.T, body []byte, model string, limit int, usage, drop bool) {
		var want map[string]any
		if checkJSON(body) != nil || json.Unmarshal(body, &want) != nil || want == nil {
			return
		}
		model = strings.ToValidUTF8(model, "")
		got, err := Splice(ep, body, Edits{Model: &model, OutputCap: &limit, IncludeUsage: usage, DropPriority: drop})
		if err != nil {
			if !usage || !strings.Contains(err.Error(), "stream_options") {
				t.Fatalf("%s: %v", body, err)
			}
			return
		}
		editDecoded(body, want, model, limit, usage, drop)
		var have map[string]any
		if err := json.Unmarshal(got, &have); err != nil {
			t.Fatalf("%s became %s: %v", body, got, err)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Fatalf("%s became %s (-want +got):\n%s", body, got, diff)
		}
	})
}

// editDecoded does to the decoded body what Splice does to its bytes.
func editDecoded(body []byte, m map[string]any, model string, limit int, usage, drop bool) {
	m["model"] = model
	if drop {
		delete(m, "priority")
	}
	// Which cap fields were used cannot be told from the map alone when one stands there twice.
	used := false
	for _, name := range capFields(KindChat) {
		for member := range rootOf(body).members() {
			if member.key.is(name) && !member.val.isNull() {
				m[name], used = float64(limit), true
			}
		}
	}
	if !used {
		m["max_tokens"] = float64(limit)
	}
	if stream, ok := m["stream"].(bool); !usage || !ok || !stream {
		return
	}
	if o, ok := m["stream_options"].(map[string]any); ok {
		o["include_usage"] = true
		return
	}
	m["stream_options"] = map[string]any{"include_usage": true}
}

// TestF32_Multipart: the model may stand behind the file, the boundary may be odd, and the file's bytes may look
// like anything.
func TestF32_Multipart(t *testing.T) {
	const boundary = `-odd'()+_,./:=? mark`
	file := bytes.Repeat([]byte("\r\n--not the mark\x00\"model\"\r\n\r\n"), 1000)
	form := func(parts ...string) []byte {
		var b bytes.Buffer
		for _, p := range parts {
			b.WriteString("--" + boundary + "\r\n" + p + "\r\n")
		}
		b.WriteString("--" + boundary + "--\r\n")
		return b.Bytes()
	}
	field := func(name, val string) string {
		return "Content-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + val
	}
	audio := "Content-Disposition: form-data; name=\"file\"; filename=\"model\"\r\nContent-Type: audio/wav\r\n\r\n" + string(file)
	tests := []struct {
		name    string
		body    []byte
		model   string
		stream  bool
		problem string
	}{
		{"model behind the file", form(audio, field("stream", "true"), field("model", "whisper")), "whisper", true, ""},
		{"model before the file", form(field("model", "whisper"), field("prompt", "words"), audio), "whisper", false, ""},
		{"same model twice", form(field("model", "a"), audio, field("model", "a")), "a", false, ""},
		{"two models", form(field("model", "a"), audio, field("model", "b")), "", false, "twice"},
		{"no model", form(audio), "", false, "missing"},
		{"empty model", form(audio, field("model", " ")), "", false, "empty"},
		{"long model", form(audio, field("model", strings.Repeat("a", 2000))), "", false, "longer than"},
		{"model is a file", form(strings.Replace(audio, `name="file"`, `name="model"`, 1)), "", false, "is a file"},
		{"model under an extended name", form("Content-Disposition: form-data; name*=UTF-8''model\r\n\r\na", audio), "", false, "extended"},
		{"bad stream", form(field("model", "a"), field("stream", "maybe")), "", false, "true or false"},
		{"cut off", form(field("model", "a"), audio)[:500], "", false, "malformed"},
	}
	h := http.Header{"Content-Type": {`multipart/form-data; boundary="` + boundary + `"`}, "X-Session-Id": {"s"}}
	ep := endpoint(t, "/v1/audio/transcriptions")
	for _, tt := range tests {
		f, p := Read(ep, h, tt.body)
		if tt.problem != "" {
			if p == nil || !strings.Contains(p.Message, tt.problem) {
				t.Errorf("%s: problem %+v, want one that says %q", tt.name, p, tt.problem)
			}
			continue
		}
		if p != nil || f.Model != tt.model || f.Stream != tt.stream || f.Session.ID != "s" || f.Text.Media != 1 || f.BodyBytes != len(tt.body) {
			t.Errorf("%s: %+v, problem %+v", tt.name, f, p)
			continue
		}
		same, err := Splice(ep, tt.body, Edits{IncludeUsage: true, DropPriority: true, OutputCap: new(5)})
		if err != nil || !bytes.Equal(same, tt.body) {
			t.Errorf("%s: edits that a form does not have changed it (%v)", tt.name, err)
		}
		edited, err := Splice(ep, tt.body, Edits{Model: new("another-name")})
		want := bytes.ReplaceAll(tt.body, []byte("name=\"model\"\r\n\r\n"+tt.model), []byte("name=\"model\"\r\n\r\nanother-name"))
		if err != nil || !bytes.Equal(edited, want) {
			t.Errorf("%s: model not replaced as it should be (%v)", tt.name, err)
		}
	}
}

// FuzzForm: no form makes it panic, and the model that is written into one is the model that is read from it.
func FuzzForm(f *testing.F) {
	f.Add([]byte("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n--b--\r\n"))
	f.Add([]byte("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--b\r\nContent-Disposition: form-data; name=model\r\n\r\n\r\n--b--"))
	h := http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}
	ep := Classify(http.MethodPost, "/v1/audio/transcriptions")
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, p := Read(ep, h, body); p != nil {
			return
		}
		edited, err := Splice(ep, body, Edits{Model: new("another")})
		if err != nil {
			return // forms that only a lenient reader takes are left alone
		}
		if got, p := Read(ep, h, edited); p != nil || got.Model != "another" {
			t.Fatalf("%q became %q: model %q, problem %+v", body, edited, got.Model, p)
		}
	})
}
