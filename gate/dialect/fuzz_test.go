package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// What headers and body say about time, class and identity is bounded and printable, and said twice it means the same.
func FuzzHints(f *testing.F) {
	f.Add("1500", "30.5", "2", "batch", "ticket", "s-1", "p", "4", `{"metadata":{"user_id":"user_a_account_b_session_c"}}`)
	f.Add("1e400", "NaN", "-1", "a b", "\xff", "\x00", "é", "65537", `{"vllm_xargs":{"agentic_context":"{\"session_id\":7}"}}`)
	f.Add("0x1p-3", "Inf", "+2", "", "", "", "", "", `{"agent_hint":{"session_id":" a "},"prompt_cache_key":1e3}`)
	f.Fuzz(func(t *testing.T, deadline, timeout, retry, class, ticket, session, parent, fanout, body string) {
		h := http.Header{}
		for name, v := range map[string]string{"X-Admitd-Deadline-Ms": deadline, "X-Stainless-Timeout": timeout, "X-Slo-Ttft-Ms": timeout,
			"X-Stainless-Retry-Count": retry, "X-Admitd-Class": class, "X-Admitd-Ticket": ticket, "X-Admitd-Session": session,
			"X-Admitd-Parent": parent, "X-Admitd-Fanout": fanout, "Session-Id": parent} {
			if v != "" {
				h.Set(name, v)
			}
		}
		var got [2]Facts
		for i := range got {
			got[i].Endpoint = Classify("POST", "/v1/messages")
			readHints(&got[i], h)
			top, p := readFields([]byte(body))
			if p != nil {
				top = nil
			}
			got[i].Session = sessionOf(&got[i], h, top)
			for name, v := range h {
				h[name] = append(v, v[0])
			}
		}
		x := got[0]
		if !reflect.DeepEqual(x, got[1]) {
			t.Fatalf("said once %+v, twice %+v", x, got[1])
		}
		for _, d := range []time.Duration{x.Deadline, x.TTFT, x.TPOT} {
			if d < 0 || d > maxDeadline {
				t.Fatalf("time %v", d)
			}
		}
		if x.Attempt < 0 || x.Attempt > maxAttempt || x.Session.Fanout < 0 || x.Session.Fanout > maxFanout || len(x.Class) > 64 || len(x.Ticket) > maxTicket {
			t.Fatalf("out of bounds: %+v", x)
		}
		for _, s := range []string{x.Class, x.Ticket, x.Session.ID, x.Session.Agent, x.Session.Parent} {
			if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) || len(s) > maxTicket {
				t.Fatalf("%q in %+v", s, x)
			}
		}
		if (x.Session.ID == "") != (x.Session.Source == "") {
			t.Fatalf("session %+v", x.Session)
		}
	})
}

func TestAKeyBrokenUpByBadBytesStaysHidden(t *testing.T) {
	for _, s := range []string{"key sk-\xffabcdefgh is wrong", "key sk\xff-abcdefgh", "Bea\xffrer abcdefgh", "inp\xfeut='abcdefgh'", "Bearer bearer abcdefgh"} {
		if got := scrub(s); strings.Contains(got, "abcdefgh") {
			t.Errorf("%q became %q", s, got)
		}
	}
}

// What is kept of an engine's message is short and valid text, without anything that looks like a key.
func FuzzScrub(f *testing.F) {
	f.Add("Incorrect API key provided: ", "sk-proj-abcdef123456", ". Find it at")
	f.Add("1 validation error: input_value='", "x", "', input_type=str")
	f.Add("Bearer ", "eyJhbGciOiJIUzI1NiJ9.e30", "\xff")
	f.Fuzz(func(t *testing.T, before, key, after string) {
		got := scrub(before + " sk-" + key + " " + after)
		if len(got) > maxErrorMessage || !utf8.ValidString(got) {
			t.Fatalf("%q", got)
		}
		if credentials.MatchString(got) || echoes.MatchString(got) {
			t.Fatalf("%q still holds what looks like a key or an echo", got)
		}
		plain := strings.ContainsFunc(key, func(r rune) bool { return r > 'z' || !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if len(key) >= 8 && !plain && !strings.Contains(before+" "+after, key) && strings.Contains(got, key) {
			t.Fatalf("%q shows the key %q", got, key)
		}
	})
}

// A path is let through only as the table spells it; nothing that a later hop could fold into another path matches.
func FuzzClassify(f *testing.F) {
	for _, s := range []string{"/v1/chat/completions", "/v1//chat/completions", "/v1/models/a%2Fb", "/v1/models/..", "/api/%2e%2e/v1", "/V1/models", "/v1/files/a/./b", "/v1/responses/x/cancel", ""} {
		f.Add(s)
	}
	table := Table()
	f.Fuzz(func(t *testing.T, path string) {
		ep := Classify(http.MethodPost, path)
		if ep.Class == Unknown {
			if ep.Path != "" {
				t.Fatalf("%q is unknown and %s", path, ep.Path)
			}
			for _, row := range table {
				if row.Path == path {
					t.Fatalf("%q stands in the table", path)
				}
			}
			return
		}
		if !strings.ContainsAny(ep.Path, "{*") {
			if ep.Path != path {
				t.Fatalf("%q was taken for %s", path, ep.Path)
			}
			return
		}
		lower := "/" + strings.ReplaceAll(strings.ToLower(strings.Trim(path, "/")), "%2e", ".") + "/"
		if ep.Class == Inference || ep.Class == Helper || strings.Contains(path, "//") || strings.Contains(lower, "/../") || strings.Contains(lower, "/./") {
			t.Fatalf("%q was taken for %s (%s)", path, ep.Path, ep.Class)
		}
	})
}

// events is a second reading of an event stream (WHATWG HTML, section 9.2.6): the data of each event that has any. Other
// than there, one that the end of the stream cuts off counts, as clients of these engines take it.
func events(body string) (all []string) {
	body = strings.TrimPrefix(body, "\ufeff")
	body = strings.ReplaceAll(strings.ReplaceAll(body, "\r\n", "\n"), "\r", "\n")
	var data []string
	for line := range strings.SplitSeq(body+"\n\n", "\n") {
		name, v, _ := strings.Cut(line, ":")
		switch {
		case line == "" && len(data) > 0:
			all, data = append(all, strings.Join(data, "\n")), nil
		case name == "data":
			data = append(data, strings.TrimPrefix(v, " "))
		}
	}
	return all
}

// decoded is an object of any numbers, however large; nil for what is none.
func decoded(data string) (m map[string]any) {
	if !json.Valid([]byte(data)) {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(data))
	d.UseNumber()
	if d.Decode(&m) != nil {
		return nil
	}
	return m
}

// usageOnly is a second reading of a chunk that only tells usage.
func usageOnly(data string) bool {
	m := decoded(data)
	choices, _ := m["choices"].([]any)
	return choices != nil && len(choices) == 0 && m["usage"] != nil
}

// Events that are dropped are chunks of usage alone, the others come through in order with the same content but for the
// model's name, and what is read of the stream is what a plain reading finds.
func FuzzStream(f *testing.F) {
	for _, name := range captures(f) {
		if status, stream, body := capture(f, name); stream && status == http.StatusOK && strings.HasPrefix(name, "chat") {
			f.Add(body[:min(len(body), 4096)])
		}
	}
	f.Add([]byte(": ping\r\rdata:{\"model\":\"m\",\ndata:\"choices\":[]\n\ndata: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n"))
	ep := Classify(http.MethodPost, "/v1/chat/completions")
	f.Fuzz(func(t *testing.T, body []byte) {
		in := events(string(body))
		out, _, r := run(FilterOptions{Endpoint: ep, Stream: true, StripUsage: true, RewriteModel: "other"}, whole(body))
		// A stream is only read when it looks like one from its first byte on.
		if first := bytes.TrimLeft(body, " \t\r\n"); len(first) == 0 || first[0] == '{' || first[0] == '[' {
			return
		}
		got := events(string(out))
		i := 0
		for _, data := range in {
			if i < len(got) && sameButModel(data, got[i]) {
				i++
			} else if json.Valid([]byte(data)) && utf8.ValidString(data) && !usageOnly(data) {
				// The filter goes by brackets and quotes where nothing matters to it; what is no JSON may be either.
				t.Fatalf("%q became %q: event %q is gone", body, out, data)
			}
		}
		if i != len(got) {
			t.Fatalf("%q became %q: %d events of %d came", body, out, len(got), len(in))
		}
		if want, plain := promptTokens(in); plain && fmt.Sprint(deref(r.Usage.PromptTokens)) != fmt.Sprint(want) {
			t.Fatalf("%q: %v prompt tokens, decoded %v", body, deref(r.Usage.PromptTokens), want)
		}
		if r.Ending == EndWhole && !strings.Contains(strings.Join(in, "\x00")+"\x00", "[DONE]\x00") {
			t.Fatalf("%q ends whole without its mark", body)
		}
	})
}

// promptTokens is a second reading of usage: the last count that an event's usage tells, nil when none does. plain is false
// where readers may well differ: members that stand twice or are written with escapes, and what is no JSON.
func promptTokens(events []string) (n any, plain bool) {
	for _, data := range events {
		m := decoded(data)
		if m == nil && data != doneMark || strings.Contains(data, `\`) || strings.Count(data, `"usage"`) > 1 ||
			strings.Count(data, `"prompt_tokens"`)+strings.Count(data, `"input_tokens"`) > 1 {
			return nil, false
		}
		usage, _ := m["usage"].(map[string]any)
		for _, name := range []string{"prompt_tokens", "input_tokens"} {
			said, _ := usage[name].(json.Number)
			if v, err := strconv.ParseUint(said.String(), 10, 64); err == nil && v <= 1<<31 {
				n = v
			}
		}
	}
	return n, true
}

func deref(p *int) any {
	if p == nil {
		return nil
	}
	return *p
}

// An answer that is no stream is passed on with the model's name changed and nothing else, and its usage is what another
// reader finds.
func FuzzWholeAnswer(f *testing.F) {
	for _, name := range captures(f) {
		if _, stream, body := capture(f, name); !stream {
			f.Add(pathOf(name), body[:min(len(body), 4096)])
		}
	}
	f.Add("/v1/embeddings", []byte(`{"model" : "a","data":[{"model":"b"}],"usage":{"prompt_tokens":7,"total_tokens":7}}`))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		ep := Classify(http.MethodPost, path)
		out, _, r := run(FilterOptions{Endpoint: ep, RewriteModel: "other"}, whole(body))
		in := decoded(string(body))
		if in == nil {
			return
		}
		if !sameButModel(string(body), string(out)) {
			t.Fatalf("%q became %q", body, out)
		}
		if _, named := in["model"].(string); named && decoded(string(out))["model"] != "other" && bytes.Count(body, []byte("model")) == 1 {
			t.Fatalf("%q became %q: the model keeps its name", body, out)
		}
		if want, plain := promptTokens([]string{string(body)}); plain && ep.Kind == KindChat && fmt.Sprint(deref(r.Usage.PromptTokens)) != fmt.Sprint(want) {
			t.Fatalf("%q: %v prompt tokens, decoded %v", body, deref(r.Usage.PromptTokens), want)
		}
	})
}

// sameButModel compares two events' data: as JSON without the model's name and fingerprint, or byte for byte.
func sameButModel(a, b string) bool {
	x, y := decoded(a), decoded(b)
	if x == nil || y == nil {
		return a == b || !json.Valid([]byte(a))
	}
	for _, name := range []string{"model", "system_fingerprint"} {
		delete(x, name)
		delete(y, name)
	}
	return reflect.DeepEqual(x, y)
}
