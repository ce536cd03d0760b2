package filter

import (
	"errors"
	"strings"
	"testing"

	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/signals"
	"admitd/ui/api"
)

// refused is a deferred retry; served an admitted request that met its SLO; open one that still runs.
func samples() (refused, served, open *api.DecisionItem) {
	refused = &api.DecisionItem{Decision: journal.Decision{
		ID: "r-1", Tenant: "Acme Inc", Class: "interactive", Session: "ab12cd", Attempt: 1, PromptTokens: 5000,
		OutputTokens: 200, Verdict: reason.VerdictDefer, Reason: reason.KVPressure, Status: 503, RetryAfterMS: 2500,
		Signals: []journal.SignalView{{Name: signals.KVUsed, Value: new(0.97)}, {Name: signals.Waiting}},
	}}
	served = &api.DecisionItem{Decision: journal.Decision{
		ID: "s-1", Tenant: "other", Session: "ff", PromptTokens: 100, Verdict: reason.VerdictAdmit, Reason: reason.OK,
		Stream: true, HeldMS: 40, Path: "/v1/chat/completions", PolicyRev: "abc123", KeyID: "k1", Model: "m",
	}, Outcome: &journal.Outcome{Ending: "whole", Status: 200, TTFTMS: new(80.0), TotalMS: 900, SLOMet: true}}
	open = &api.DecisionItem{Decision: journal.Decision{ID: "o-1", Verdict: reason.VerdictAdmit, Reason: reason.OK}}
	return refused, served, open
}

func TestMatch(t *testing.T) {
	refused, served, open := samples()
	for _, c := range []struct {
		text                  string
		refused, served, open bool
	}{
		{"", true, true, true},
		{"   ", true, true, true},
		{"decision:defer", true, false, false},
		{"decision:defer,admit", true, true, true},
		{"!decision:defer", false, true, true},
		{"defer", true, false, false},
		{"reason:kv", true, false, false},
		{"reason:KV_P", true, false, false},
		{"reason:kv_f", false, false, false},
		{`tenant:"acme inc"`, true, false, false},
		{"tenant:none", false, false, true},
		{"session:ab12", true, false, false},
		{"code:503", true, false, false},
		{"code:5xx", true, false, false},
		{"code:2xx,503", true, true, false},
		{"code>=500", true, false, false},
		{"!code:503", false, true, true},
		{"est>4000", true, false, false},
		{"est>4k", true, false, false},
		{"est=5000", true, false, false},
		{"est<=100", false, true, true},
		{"retry", true, false, false},
		{"!retry", false, true, true},
		{"held>=40ms", false, true, false},
		{"retry_after>2s", true, false, false},
		{"retry_after<60s", true, false, false},
		{"kv>95%", true, false, false},
		{"waiting<1000", false, false, false}, // known nowhere: neither less
		{"waiting>=0", false, false, false},   // nor more
		{"!waiting>=0", true, true, true},
		{"ttft<100", false, true, false},
		{"tpot<100", false, false, false},
		{"total<1s", false, true, false},
		{"met", false, true, false},
		{"missed", false, false, false},
		{"outcome:running", false, false, true},
		{"outcome:none", true, false, false},
		{"ending:whole stream held", false, true, false},
		{"path:/v1/chat rev:abc key:k1 model:m id:s-", false, true, false},
		{"decision:reject reason:kv tenant:acme session:ab12 code:529 est>4000 !retry", false, false, false},
	} {
		f, err := Parse(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if a, b, d := f.Match(refused), f.Match(served), f.Match(open); a != c.refused || b != c.served || d != c.open {
			t.Errorf("%q: refused %v, served %v, open %v; want %v, %v, %v", c.text, a, b, d, c.refused, c.served, c.open)
		}
	}
}

func TestParseErrorsSayWhereAndWhat(t *testing.T) {
	for _, c := range []struct {
		text   string
		column int
		want   string
	}{
		{"reson:kv", 1, `no field "reson"; fields are class, decision`},
		{"retry reason:xyz", 7, "reason: \"xyz\" is not the beginning of any of"},
		{"decision:maybe", 1, "decision"},
		{"decision:hold", 1, "admit, defer, reject"},
		{"bogus", 1, "neither a flag"},
		{"tenant:", 1, "a value must follow"},
		{"tenant:a,,b", 1, "every comma"},
		{`tenant:"acme`, 8, "not closed"},
		{`tenant:a"b"`, 1, "whole value"},
		{"code:999", 1, "100 to 599"},
		{"code:9xx", 1, "5xx"},
		{"est:4000", 1, "write est>100"},
		{"tenant>4", 1, "write tenant:value"},
		{"speed>4", 1, "no number"},
		{"est>", 1, "not a number"},
		{"est>1e5", 1, "not a number"},
		{"est>nan", 1, "not a number"},
		{"est><4", 1, "not a number"},
		{"est==4", 1, "not one of"},
		{"!!retry", 1, "one ! is enough"},
		{"!", 1, "neither a flag"},
		{"retry\x00", 6, "control characters"},
		{strings.Repeat("a", MaxBytes+1), MaxBytes + 1, "at most 1024"},
		{strings.Repeat("retry ", MaxTerms+1), 6*MaxTerms + 1, "more than 32"},
	} {
		_, err := Parse(c.text)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: error %v, want *Error", c.text, err)
			continue
		}
		if e.Column != c.column || !strings.Contains(e.Text, c.want) {
			t.Errorf("%q: column %d %q; want column %d and %q", c.text, e.Column, e.Text, c.column, c.want)
		}
	}
}

func TestFieldsNamesEveryWordThatParses(t *testing.T) {
	fields, nums, flagNames := Fields()
	for _, f := range fields {
		if _, err := Parse("!" + f + ":5xx"); err != nil && strings.Contains(err.Error(), "no field") {
			t.Error(err)
		}
	}
	for _, n := range nums {
		if _, err := Parse(n + ">1"); err != nil {
			t.Error(err)
		}
	}
	for _, f := range flagNames {
		if _, err := Parse(f); err != nil {
			t.Error(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "decision:reject reason:kv tenant:acme session:ab12 code:529 est>4000 !retry",
		`tenant:"a b" kv>=95% !met`, `"`, "!", ":", "a:", "est>-", "\x00", "code:5xx,200"} {
		f.Add(s)
	}
	refused, served, open := samples()
	f.Fuzz(func(t *testing.T, text string) {
		fl, err := Parse(text)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Column < 1 || e.Column > len(text)+1 || e.Text == "" {
				t.Fatalf("%q: error %v has no place in the text", text, err)
			}
			return
		}
		for _, d := range []*api.DecisionItem{refused, served, open, {}} {
			// An accepted filter keeps its meaning when its spaces are doubled.
			again, err := Parse(" " + text + " ")
			if len(text) < MaxBytes-2 && (err != nil || again.Match(d) != fl.Match(d)) {
				t.Fatalf("%q means something else with spaces around it (%v)", text, err)
			}
		}
	})
}
