package ui

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
	"admitd/ui/api"
)

const draft = "policy: dual-gate\nparams:\n  max_waiting: 4\n  max_kv_used: 0.9\n"

func yaml(more ...string) []string { return append([]string{"Content-Type", "text/yaml"}, more...) }

func TestPolicyIsReadWithItsRevisionAsETag(t *testing.T) {
	r := newRig(t)
	resp, body := r.request("GET", "/api/v1/policy", "")
	doc := strictly[api.PolicyDocument](t, body)
	if resp.Header.Get("ETag") != `"`+doc.Rev+`"` || doc.Text != string(policy.Default()) || doc.Spec.Policy != "dual-gate" {
		t.Errorf("ETag %s of %+v", resp.Header.Get("ETag"), doc.PolicyInfo)
	}
	for _, n := range doc.Needs {
		if n.Why == "" || n.State != string(signals.Live) {
			t.Errorf("need %+v", n)
		}
	}
	if resp, body := r.request("GET", "/api/v1/policy", "", "If-None-Match", resp.Header.Get("ETag")); resp.StatusCode != http.StatusNotModified || len(body) != 0 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestPolicyPut(t *testing.T) {
	r := newRig(t)
	_, before := r.store.Current()
	match := `"` + before.Rev + `"`
	for _, c := range []struct {
		name, body string
		header     []string
		status     int
		word       string
		detail     string
	}{
		{"no If-Match", draft, yaml(), 428, "if_match_missing", "If-Match"},
		{"weak If-Match", draft, yaml("If-Match", `W/"x"`), 400, "bad_if_match", "one quoted revision"},
		{"two If-Match", draft, yaml("If-Match", `"a", "b"`), 400, "bad_if_match", "one quoted revision"},
		{"stale If-Match", draft, yaml("If-Match", `"000000000000"`), 412, "policy_changed", "has changed"},
		{"unknown key", "policy: dual-gate\nparms: {}\n", yaml("If-Match", match), 400, "invalid_text", "parms"},
		{"empty", " \n", yaml("If-Match", match), 400, "empty_policy", "empty"},
		{"JSON with an unknown field", `{"txt":"x"}`, []string{"If-Match", match}, 400, "bad_json", "txt"},
		{"JSON with a tail", `{"text":"x"} {}`, []string{"If-Match", match}, 400, "bad_json", "goes on"},
		{"note too long", fmt.Sprintf(`{"text":"x","note":%q}`, strings.Repeat("n", 501)), []string{"If-Match", match}, 400, "note_too_long", "500"},
		{"too large", strings.Repeat("#", maxBody+1), yaml("If-Match", match), 413, "body_too_large", "1048576"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := r.write("PUT", "/api/v1/policy", c.body, c.header...)
			if resp.StatusCode != c.status || problemWord(t, resp, body) != c.word {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			p := strictly[api.Problem](t, body)
			if !strings.Contains(p.Detail, c.detail) {
				t.Errorf("detail %q lacks %q", p.Detail, c.detail)
			}
			if c.word == "invalid_text" && (len(p.Errors) != 1 || p.Errors[0].Line != 2 || p.Errors[0].Column < 1) {
				t.Errorf("places %+v", p.Errors)
			}
			if c.status == 412 && resp.Header.Get("ETag") != match {
				t.Errorf("412 names %s as what runs, not %s", resp.Header.Get("ETag"), match)
			}
		})
	}
	if _, now := r.store.Current(); now.Rev != before.Rev {
		t.Fatal("a refused change was applied")
	}
	resp, body := r.write("PUT", "/api/v1/policy?note=less+queue", draft, yaml("If-Match", match)...)
	res := strictly[api.ReloadResult](t, body)
	_, now := r.store.Current()
	if resp.StatusCode != http.StatusOK || res.Rev != now.Rev || now.Note != "less queue" || now.Source != "api" || resp.Header.Get("ETag") != `"`+now.Rev+`"` {
		t.Errorf("%d %+v, now %+v", resp.StatusCode, res, now)
	}
	if resp, body := r.write("PUT", "/api/v1/policy", fmt.Sprintf(`{"text":%q,"note":"j"}`, policy.Default()), "If-Match", "*"); resp.StatusCode != http.StatusOK {
		t.Errorf("JSON and *: %d %s", resp.StatusCode, body)
	}
	h := fetch[api.PolicyHistory](r, "/api/v1/policy/history")
	if len(h.Revisions) != 3 || h.Revisions[0].Note != "j" || h.Revisions[1].Text != draft {
		t.Errorf("%+v", h)
	}
}

func TestPolicyThatNeedsWhatTheEngineLacksIs422(t *testing.T) {
	r := newRig(t)
	r.store.needs = &policy.NeedsError{Policy: "kv-threshold", Signal: signals.KVUsed, Why: "compares it", Tried: []string{"x_y"}, Engine: "vllm"}
	for _, path := range []string{"/api/v1/policy", "/api/v1/policy/dry-run"} {
		method := map[bool]string{true: "POST", false: "PUT"}[strings.HasSuffix(path, "dry-run")]
		resp, body := r.write(method, path, draft, yaml("If-Match", "*")...)
		if resp.StatusCode != http.StatusUnprocessableEntity || problemWord(t, resp, body) != "signals_not_exported" || !strings.Contains(string(body), "x_y") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}

func TestPolicyRevert(t *testing.T) {
	r := newRig(t)
	_, first := r.store.Current()
	if resp, body := r.write("POST", "/api/v1/policy/revert", `{"rev":"nope"}`); resp.StatusCode != http.StatusNotFound || problemWord(t, resp, body) != "no_such_revision" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	r.write("PUT", "/api/v1/policy", draft, yaml("If-Match", "*")...)
	resp, body := r.write("POST", "/api/v1/policy/revert", "")
	if res := strictly[api.ReloadResult](t, body); resp.StatusCode != http.StatusOK || res.Rev != first.Rev {
		t.Errorf("%d %+v", resp.StatusCode, res)
	}
	if resp, body := r.write("POST", "/api/v1/policy/revert", `{"revision":"x"}`); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestReloadTellsWhatCannotBeChangedWhileRunning(t *testing.T) {
	r := newRig(t)
	resp, body := r.write("POST", "/api/v1/reload", "")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	strictly[api.ReloadResult](t, body)
	r.b.reloadErr = &FieldsError{Fields: []string{"engine.args (engine restart)"}}
	resp, body = r.write("POST", "/api/v1/reload", "{}")
	if p := strictly[api.Problem](t, body); resp.StatusCode != http.StatusConflict || problemWord(t, resp, body) != "not_hot" || len(p.Fields) != 1 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	r.b.reloadErr = errors.New("the disk is gone")
	resp, body = r.write("POST", "/api/v1/reload", "{}")
	if resp.StatusCode != http.StatusInternalServerError || problemWord(t, resp, body) != "failed" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, body := r.write("POST", "/api/v1/reload", `{"force":true}`); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// judged is a recorded decision of a policy that saw this much waiting.
func judged(id string, waiting float64, verdict string, code reason.Code) journal.Decision {
	sig := func(n signals.Name, v float64) journal.SignalView {
		return journal.SignalView{Name: n, Value: &v, Unit: signals.UnitOf(n), State: signals.Live, AgeMS: 100}
	}
	return journal.Decision{ID: id, Verdict: verdict, Reason: code, PromptTokens: 10, OutputTokens: 10, Sequences: 1,
		Signals: []journal.SignalView{sig(signals.Running, 8), sig(signals.Waiting, waiting), sig(signals.KVUsed, 0.2), sig(signals.KVCapacity, 10_000)},
		Ledger:  admission.View{InFlight: 8 + int(waiting), Slots: 8}}
}

func TestDryRunJudgesTheRecordAgain(t *testing.T) {
	r := newRig(t)
	r.decide(judged("old", 0, reason.VerdictAdmit, reason.OK))
	r.clock.advance(10 * time.Minute)
	for _, d := range []journal.Decision{
		judged("a", 0, reason.VerdictAdmit, reason.OK),
		judged("b", 6, reason.VerdictAdmit, reason.OK), // the draft has a limit of 4
		judged("c", 20, reason.VerdictDefer, reason.QueueDepth),
		judged("d", 20, reason.VerdictReject, reason.Saturated), // no relief in sight then: that stays
		judged("e", 0, reason.VerdictAdmit, reason.OK),
		{ID: "k", Verdict: reason.VerdictReject, Reason: reason.KeyInvalid},
		{ID: "h", Class: "helper", Verdict: reason.VerdictAdmit, Reason: reason.OK},
	} {
		r.decide(d)
	}
	resp, body := r.write("POST", "/api/v1/policy/dry-run?window=5m", draft, yaml()...)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	d := strictly[api.DryRun](t, body)
	at := t0.Add(10 * time.Minute)
	if d.From == nil || !d.From.Equal(at) || !strings.Contains(d.Caveat, "Open loop") || d.Rev == "" {
		t.Errorf("%+v", d)
	}
	if len(d.Flips) != 1 || d.Flips[0].Message == "" {
		t.Fatalf("flips %+v", d.Flips)
	}
	want := api.DryRun{Rev: d.Rev, From: d.From, To: d.To, Caveat: d.Caveat, Window: 7, Skipped: 2, FlipCount: 1, AfterFirstFlip: 3.0 / 5,
		Old: api.VerdictCount{Admit: 3, Defer: 1, Reject: 1}, New: api.VerdictCount{Admit: 2, Defer: 2, Reject: 1},
		Flips: []api.Flip{{ID: "b", At: at, Old: "admit", New: "defer", NewReason: reason.QueueDepth, Message: d.Flips[0].Message}}}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
	_, body = r.write("POST", "/api/v1/policy/dry-run?window=5m", string(policy.Default()), yaml()...)
	if d := strictly[api.DryRun](t, body); d.FlipCount != 0 {
		t.Errorf("the running policy flips %+v", d.Flips)
	}
	if _, info := r.store.Current(); info.Source != "start" {
		t.Error("a dry run changed the policy")
	}
}

func TestDryRunWithNothingRecorded(t *testing.T) {
	r := newRig(t)
	_, body := r.write("POST", "/api/v1/policy/dry-run", draft, yaml()...)
	if d := strictly[api.DryRun](t, body); d.From != nil || d.To != nil || d.Window != 0 || d.Flips == nil {
		t.Errorf("%+v", d)
	}
}

func TestAMissingSignalStaysMissingInADryRun(t *testing.T) {
	d := &journal.Decision{Signals: []journal.SignalView{{Name: signals.Waiting, State: signals.Missing},
		{Name: signals.KVUsed, State: signals.Stale, Value: new(0.4), AgeMS: 5000}}}
	s := stateOf(t0, d)
	if s.Waiting.Present() || s.Running.Present() {
		t.Errorf("waiting %+v, running %+v", s.Waiting, s.Running)
	}
	if s.KVUsed.Value != 0.4 || s.KVUsed.State != signals.Stale || s.KVUsed.Age(t0) != 5*time.Second {
		t.Errorf("kv %+v", s.KVUsed)
	}
}
