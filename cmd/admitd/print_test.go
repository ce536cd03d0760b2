package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"

	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
	"admitd/supervisor"
	"admitd/ui/api"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)

// table is what a command would print.
func table(fill func(io.Writer)) string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	fill(w)
	_ = w.Flush()
	return b.String()
}

func sameText(t *testing.T, got, want string) {
	t.Helper()
	if d := cmp.Diff(strings.Split(strings.TrimPrefix(want, "\n"), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func deferred() api.DecisionItem {
	return api.DecisionItem{Seq: 3, At: noon, Decision: journal.Decision{
		ID: "req-1", Model: "m", Path: "/v1/messages", Stream: true, Tenant: "acme", Class: "batch", Attempt: 1, PromptTokens: 900,
		OutputTokens: 100, BodyBytes: 4000, Verdict: "defer", Reason: reason.QueueDepth, Message: "3 requests wait; the limit is 2.", Status: 503,
		RetryAfterMS: 2340, HeldMS: 2000, DecideUS: 42, PolicyName: "queue-depth", PolicyRev: "abc", SnapshotSeq: 7,
		Signals: []journal.SignalView{
			{Name: signals.Waiting, Value: new(3.0), Unit: signals.UnitRequests, State: signals.Stale, AgeMS: 4000, Why: "older than 3s"},
			{Name: signals.KVUsed, Unit: signals.UnitFraction, State: signals.Missing, Why: "not exported"},
		},
		Ledger: admission.View{InFlight: 5, Unseen: 1, Held: 2, ReservedTokens: 800, Slots: 4},
		Trace: []policy.Step{
			{Text: "waiting 3 > limit 2", Result: policy.Fail, Note: "stale"},
			{Text: "kv_used", Result: policy.Unusable},
			{Text: "slots", Result: policy.NotEvaluated},
		},
		Counterfactual: "waiting at most 2",
	}}
}

func TestExplainRefused(t *testing.T) {
	sameText(t, table(func(w io.Writer) { printExplanation(w, deferred()) }), `
req-1       defer (queue_depth): 3 requests wait; the limit is 2.
when        `+noon.Format(time.RFC3339Nano)+`, decided in 42 µs, held 2000 ms
who         tenant acme, class batch, session –, attempt 1
asked       /v1/messages m, stream true, 4000 bytes
estimate    900 prompt + 100 output tokens, 0 reserved
policy      queue-depth@abc on scrape 7
  NO        waiting 3 > limit 2 (stale)
  ??        kv_used
  --        slots
ledger      in flight 5 (since the scrape 1), held 2, reserved 800 tokens, slots 4
  waiting   3 requests, 4000 ms old, stale: older than 3s
  kv_used   missing: not exported
would pass  waiting at most 2
answer      status 503, come back in 2.3s
`)
}

func TestExplainOutcomes(t *testing.T) {
	it := deferred()
	it.Decision.Verdict = "admit"
	for _, c := range []struct {
		name    string
		outcome *journal.Outcome
		want    string
	}{
		{"running", nil, "outcome  still running\n"},
		{"nothing known", &journal.Outcome{Ending: "engine_error", Status: 502, TotalMS: 12, Error: "connection reset"},
			"outcome  engine_error, status 502, TTFT –, TPOT –, total 12 ms, in its SLO: false\nerror    connection reset\ntokens   – prompt (– cached), – output\n"},
		{"whole", &journal.Outcome{Ending: "whole", Status: 200, TTFTMS: new(80.4), TPOTMS: new(0.0), TotalMS: 900, PromptTokens: new(9), CachedTokens: new(0), CompletionTokens: new(20), SLOMet: true},
			"outcome  whole, status 200, TTFT 80 ms, TPOT 0 ms, total 900 ms, in its SLO: true\ntokens   9 prompt (0 cached), 20 output\n"},
	} {
		it.Outcome = c.outcome
		if got := table(func(w io.Writer) { printOutcome(w, it) }); got != c.want {
			t.Errorf("%s:\n%swant\n%s", c.name, got, c.want)
		}
	}
	it.Outcome, it.Decision.Verdict, it.Decision.RetryAfterMS, it.Decision.Status = nil, "reject", 0, 413
	it.Session = []api.SessionSibling{{ID: "req-0", At: noon, Verdict: "admit", Reason: reason.OK}}
	sameText(t, table(func(w io.Writer) { printOutcome(w, it) }), `
answer        status 413, with no time to come back at
same session  12:00:00.000 req-0 admit (ok), attempt 0
`)
}

func TestTapLine(t *testing.T) {
	want := "12:00:00.000 defer  queue_depth      req-1 acme/batch ~900+100 tokens retry in 2.3s held 2000 ms: 3 requests wait; the limit is 2."
	if got := decisionLine(deferred()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestStatusSaysWhatIsWrong(t *testing.T) {
	st := api.Status{
		Version: "v1", Now: noon.Add(time.Hour), StartedAt: noon, GateAddress: "127.0.0.1:8080",
		Config: api.ConfigStatus{Problem: "p.yaml:1:1: no", LastReloadFrom: "sighup"},
		Pools: []api.PoolStatus{{
			Model:  "m",
			Engine: supervisor.Status{Kind: supervisor.VLLM, Version: "0.32", State: supervisor.Failed, Since: noon, Text: "the engine ended unasked"},
			Policy: api.PolicyInfo{Name: "dual-gate", Rev: "abc", Source: "start", At: noon},
			Ledger: admission.Digest{InFlight: 2, Held: 1, ReservedTokens: 300},
			GPU: api.GPU{State: "ok", Devices: []api.GPUDevice{
				{Index: 0, Name: "H200", MemoryUsedBytes: new(uint64(70 << 30)), MemoryTotalBytes: new(uint64(140 << 30))}, {Index: 1, Name: "GB10"},
			}},
			Windows: []api.Window{{Seconds: 60, Arrivals: 4, Admitted: 3, Deferred: 1, Ended: 2, SLOMet: 1, Goodput: new(0.5)}},
			Signals: []journal.SignalView{
				{Name: signals.KVCapacity, Value: new(46592.0), Unit: signals.UnitTokens, State: signals.Live, AgeMS: 20},
				{Name: signals.KVUsed, Value: new(0.123456), Unit: signals.UnitFraction, State: signals.Live, AgeMS: 20},
			},
		}},
	}
	sameText(t, table(func(w io.Writer) { printStatus(w, st, "CLOSED: m: engine failed") }), `
admitd              v1, up 1h0m0s
gate                127.0.0.1:8080, CLOSED: m: engine failed
last reload         REFUSED (sighup): p.yaml:1:1: no
model               m
engine              vllm 0.32, failed for 1h0m0s: the engine ended unasked
policy              dual-gate@abc (start, 1h0m0s ago)
in flight           2 (held 1), 300 tokens reserved
last 60 s           4 arrivals: 3 admitted, 1 deferred, 0 rejected; goodput 50.0 % (1 of the 2 that ended met their class)
GPU                 ok; 0 H200 70.0 of 140.0 GiB; 1 GB10
kv_capacity_tokens  46592 tokens, 20 ms old
kv_used             0.1235 fraction, 20 ms old
`)
}

func TestStatusOfAReadyEngineWithUnknownLimits(t *testing.T) {
	p := api.PoolStatus{Engine: supervisor.Status{Kind: supervisor.External, State: supervisor.Ready, Address: "http://e"}}
	got := table(func(w io.Writer) { printPool(w, noon, p) })
	if !strings.Contains(got, "restarts 0, context unknown tokens, KV unknown tokens") {
		t.Errorf("what is not known is not 0:\n%s", got)
	}
}
