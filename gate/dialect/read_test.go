package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"admitd/gate/reason"
)

// TestRead runs testdata/read: header lines, then the body, then what is understood of them.
func TestRead(t *testing.T) {
	datadriven.Walk(t, "testdata/read", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var where string
			d.ScanArgs(t, "path", &where)
			h, body := splitInput(d.Input)
			f, p := Read(endpoint(t, where), h, []byte(body))
			if p != nil {
				return fmt.Sprintf("%s %q: %s\n", p.Reason, p.Param, p.Message)
			}
			return showFacts(f)
		})
	})
}

var headerLine = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_-]*): (.*)$`)

func splitInput(in string) (http.Header, string) {
	h := http.Header{}
	for {
		line, rest, _ := strings.Cut(in, "\n")
		m := headerLine.FindStringSubmatch(line)
		if m == nil {
			return h, in
		}
		h.Add(m[1], m[2])
		in = rest
	}
}

// showFacts writes the facts that are not what they are for an empty request.
func showFacts(f Facts) string {
	var b strings.Builder
	fmt.Fprintf(&b, "model=%q", f.Model)
	if f.Stream {
		b.WriteString(" stream")
	}
	if f.IncludeUsage {
		b.WriteString(" include_usage")
	}
	if f.OutputCap != nil {
		fmt.Fprintf(&b, " cap=%d", *f.OutputCap)
	}
	if f.Sequences != 1 {
		fmt.Fprintf(&b, " sequences=%d", f.Sequences)
	}
	if f.Prompts != 1 {
		fmt.Fprintf(&b, " prompts=%d", f.Prompts)
	}
	if f.Truncates {
		b.WriteString(" truncates")
	}
	if f.Tools != 0 {
		fmt.Fprintf(&b, " tools=%d", f.Tools)
	}
	fmt.Fprintf(&b, "\ntext %s\n", showSize(f.Text))
	if f.LargestText != f.Text {
		fmt.Fprintf(&b, "largest %s\n", showSize(f.LargestText))
	}
	s := f.Session
	if s.ID != "" {
		fmt.Fprintf(&b, "session %q agent=%q parent=%q fanout=%d from %s\n", s.ID, s.Agent, s.Parent, s.Fanout, s.Source)
	}
	if f.Deadline+f.TTFT+f.TPOT != 0 || f.Class+f.Ticket != "" || f.Attempt+f.BadHints != 0 {
		fmt.Fprintf(&b, "hints deadline=%s ttft=%s tpot=%s class=%q attempt=%d ticket=%q bad=%d\n",
			f.Deadline, f.TTFT, f.TPOT, f.Class, f.Attempt, f.Ticket, f.BadHints)
	}
	return b.String()
}

func showSize(t TextSize) string {
	var parts []string
	for _, p := range []struct {
		name string
		n    int
	}{
		{"latin", t.Latin}, {"cjk", t.CJK}, {"other", t.Other}, {"code", t.Code}, {"schema", t.ToolSchema},
		{"messages", t.Messages}, {"ids", t.TokenIDs}, {"media", t.Media},
	} {
		if p.n != 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", p.name, p.n))
		}
	}
	return strings.Join(parts, " ")
}

// TestF30_DuplicateModel: a body with two models means two things to two readers, however the names are written.
func TestF30_DuplicateModel(t *testing.T) {
	ep := endpoint(t, "/v1/chat/completions")
	for _, body := range []string{
		`{"model":"a","messages":[{"role":"user"}],"model":"b"}`,
		`{"model":"a","messages":[{"role":"user"}],"model":"a"}`,
		`{"model":"a","messages":[{"role":"user"}],"mod\u0065l":"b"}`,
		`{"model":null,"messages":[{"role":"user"}],"model":"b"}`,
	} {
		_, p := Read(ep, nil, []byte(body))
		if p == nil || p.Reason != reason.BadRequest || p.Param != "model" || !strings.Contains(p.Message, "twice") {
			t.Errorf("%s: problem %+v, want one about a duplicate model", body, p)
		}
	}
	nested := `{"model":"a","messages":[{"role":"user","content":"x","model":"b","model":"c"}]}`
	if f, p := Read(ep, nil, []byte(nested)); p != nil || f.Model != "a" {
		t.Errorf("a nested model is not the request's: model %q, problem %+v", f.Model, p)
	}
}

// TestF18_ManyPromptsInOneCall: 2,000 strings are 2,000 prompts, and the largest is known apart.
func TestF18_ManyPromptsInOneCall(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`{"model":"m","n":8,"best_of":20,"prompt":[`)
	for i := range 2000 {
		if i > 0 {
			b.WriteByte(',')
		}
		n := 10
		if i == 1234 {
			n = 500
		}
		fmt.Fprintf(&b, "%q", strings.Repeat("a", n))
	}
	b.WriteString(`]}`)
	f, p := Read(endpoint(t, "/v1/completions"), nil, b.Bytes())
	if p != nil {
		t.Fatal(p.Message)
	}
	want := TextSize{Latin: 1999*10 + 500}
	if f.Prompts != 2000 || f.Sequences != 20 || f.Text != want || f.LargestText.Latin != 500 {
		t.Errorf("prompts %d sequences %d text %+v largest %+v", f.Prompts, f.Sequences, f.Text, f.LargestText)
	}
}

// TestF28_ProblemsQuoteNothing: whatever is wrong with a body, the message holds nothing of what stands in it.
func TestF28_ProblemsQuoteNothing(t *testing.T) {
	const secret = "sk-SECRETSECRET"
	for _, tt := range []struct{ path, body string }{
		{"/v1/chat/completions", secret},
		{"/v1/chat/completions", `"` + secret + `"`},
		{"/v1/chat/completions", `{"` + secret},
		{"/v1/chat/completions", `{"` + secret + `":` + secret + `}`},
		{"/v1/chat/completions", `{"model":{"` + secret + `":1}}`},
		{"/v1/chat/completions", `{"model":"` + strings.Repeat(secret, 100) + `"}`},
		{"/v1/chat/completions", `{"model":"m","stream":"` + secret + `"}`},
		{"/v1/chat/completions", `{"model":"m","stream_options":"` + secret + `","messages":[]}`},
		{"/v1/chat/completions", `{"model":"m","max_tokens":"` + secret + `"}`},
		{"/v1/chat/completions", `{"model":"m","n":"` + secret + `"}`},
		{"/v1/chat/completions", `{"model":"m","messages":"` + secret + `"}`},
		{"/v1/chat/completions", `{"model":"m","messages":["` + secret + `"]}`},
		{"/v1/chat/completions", `{"model":"m","messages":[{}],"tools":"` + secret + `"}`},
		{"/v1/completions", `{"model":"m","prompt":{"` + secret + `":1}}`},
		{"/v1/completions", `{"model":"m","prompt":[1,"` + secret + `"]}`},
		{"/v1/completions", `{"model":"m","prompt":"x","prompt_embeds":{"` + secret + `":1}}`},
		{"/v1/responses", `{"model":"m","input":[null,"` + secret + `"]}`},
		{"/v1/embeddings", `{"model":"m","input":[[1,"` + secret + `"]]}`},
		{"/detokenize", `{"tokens":"` + secret + `"}`},
		{"/v1/audio/speech", `{"model":"m","input":["` + secret + `"]}`},
	} {
		_, p := Read(endpoint(t, tt.path), http.Header{"Authorization": {"Bearer " + secret}}, []byte(tt.body))
		if p == nil {
			t.Errorf("%s: no problem", tt.body)
			continue
		}
		if text := fmt.Sprintf("%+v", *p); strings.Contains(text, "SECRET") {
			t.Errorf("%.60s: the problem quotes the body: %s", tt.body, text)
		}
	}
}

func TestBodiesThatAreNoJSON(t *testing.T) {
	for body, want := range map[string]string{
		"":                     "the body is empty at byte 0",
		"\xef\xbb\xbf{}":       "byte order mark",
		"{\x00\"\x00m\x00":     "not valid JSON",
		`{"model":"m"}{`:       "unexpected text after the JSON value at byte 13",
		"{\"model\":\"\xe9\"}": "invalid UTF-8 at byte 10",
	} {
		_, p := Read(endpoint(t, "/v1/chat/completions"), nil, []byte(body))
		if p == nil || p.Reason != reason.BadRequest || !strings.Contains(p.Message, want) {
			t.Errorf("%q: problem %+v, want one that says %q", body, p, want)
		}
	}
}

// checkDecoded holds the facts against what the engine will see: the body decoded by another reader, whose last member of
// a name counts.
func checkDecoded(t *testing.T, ep Endpoint, f Facts, body []byte) {
	t.Helper()
	m := decoded(string(body))
	if m == nil {
		t.Fatalf("%q is accepted and no JSON object", body)
	}
	number := func(name string) (float64, bool) {
		n, _ := m[name].(json.Number)
		v, err := n.Float64()
		return v, err == nil
	}
	if model, _ := m["model"].(string); model != f.Model {
		t.Fatalf("%q: model %q, decoded %q", body, f.Model, model)
	}
	if stream, _ := m["stream"].(bool); stream != f.Stream {
		t.Fatalf("%q: stream %v, decoded %v", body, f.Stream, stream)
	}
	o, _ := m["stream_options"].(map[string]any)
	if usage, _ := o["include_usage"].(bool); usage != f.IncludeUsage && (ep.Kind == KindChat || ep.Kind == KindCompletions) {
		t.Fatalf("%q: include_usage %v, decoded %v", body, f.IncludeUsage, usage)
	}
	for _, name := range capFields(ep.Kind) {
		if n, ok := number(name); ok && (f.OutputCap == nil || float64(*f.OutputCap) != n) {
			t.Fatalf("%q: output cap %v, decoded %s %v", body, f.OutputCap, name, n)
		}
	}
	if n, ok := number("n"); ok && ep.Generates() && ep.Kind != KindMessages && ep.Kind != KindResponses && float64(f.Sequences) < n {
		t.Fatalf("%q: %d sequences, decoded n %v", body, f.Sequences, n)
	}
	if background, _ := m["background"].(bool); background && ep.Kind == KindResponses {
		t.Fatalf("%q: a background response is accepted", body)
	}
}

// FuzzRead: no body makes it panic, the facts are sane, and what it accepts can be edited.
func FuzzRead(f *testing.F) {
	for _, ep := range Table() {
		if ep.Class == Inference {
			f.Add(ep.Path, []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"h\u00e9"}]}],"prompt":[[1,2]],"input":"x","max_tokens":3}`))
		}
	}
	f.Add("/v1/chat/completions", []byte(`{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true,"include_usage":false},"n":2,"\u006e":3}`))
	f.Add("/v1/responses", []byte(`{"model":"m","input":"x","background":false,"max_output_tokens":1.6e1,"stream":null}`))
	f.Add("/rerank", []byte(`{"model":"m","query":"q","documents":["a",{"text":"b"}]}`))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		ep := Classify("POST", path)
		if ep.Class == Unknown || ep.Multipart {
			return
		}
		facts, p := Read(ep, nil, body)
		if p != nil {
			if p.Message == "" || p.Reason == "" {
				t.Fatalf("empty problem for %q", body)
			}
			return
		}
		if facts.Sequences < 1 || facts.Prompts < 1 || facts.OutputCap != nil && *facts.OutputCap < 1 {
			t.Fatalf("impossible facts %+v", facts)
		}
		x := facts.Text
		if n := x.Latin + x.CJK + x.Other + x.Code + x.ToolSchema; ep.Kind != KindScore && ep.Kind != KindRerank && n > 2*len(body)+64 {
			t.Fatalf("%d bytes of text in a body of %d", n, len(body))
		}
		if ep.Kind != KindModels && ep.Kind != KindHealth { // these read no body
			if len(bytes.TrimSpace(body)) > 0 { // the engine's own pages are asked for without one
				checkDecoded(t, ep, facts, body)
			}
			if _, err := Splice(ep, body, Edits{Model: &facts.Model, IncludeUsage: true, DropPriority: true}); err != nil {
				t.Fatalf("a body that Read accepts cannot be edited: %v", err)
			}
		}
	})
}
