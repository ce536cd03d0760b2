package feed

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"admitd/gate/dialect"
	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/signals"
	"admitd/ui/api"
)

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// log makes numbered entries.
type log struct{ seq uint64 }

func (l *log) decision(at time.Time, d journal.Decision) journal.Entry {
	l.seq++
	return journal.Entry{Seq: l.seq, At: at, Kind: journal.KindDecision, Decision: &d}
}

func (l *log) outcome(at time.Time, o journal.Outcome) journal.Entry {
	l.seq++
	return journal.Entry{Seq: l.seq, At: at, Kind: journal.KindOutcome, Outcome: &o}
}

func (l *log) event(at time.Time, name string) journal.Entry {
	l.seq++
	return journal.Entry{Seq: l.seq, At: at, Kind: journal.KindEvent, Event: &journal.Event{Name: name, Level: "info", Text: name}}
}

// sink keeps what it is offered.
type sink struct{ got []*Message }

func (s *sink) Offer(m *Message) { s.got = append(s.got, m) }

func (s *sink) frames(t *testing.T) []api.Frame {
	t.Helper()
	var out []api.Frame
	for _, m := range s.got {
		if m.Kind != api.KindFrame {
			continue
		}
		out = append(out, decode[api.Frame](t, m.Data))
	}
	return out
}

func decode[T any](t *testing.T, data []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return v
}

func watched(o Options) (*Feed, *sink) {
	f, s := New(o), &sink{}
	f.Subscribe(t0, 0, s)
	return f, s
}

func gauge(name string, v float64) Sample {
	return Sample{Gauges: map[string]*float64{name: &v}, Engine: "ready", Rev: "r1"}
}

func cell(t *testing.T, f api.Frame, name string) *float64 {
	t.Helper()
	for i, g := range api.Gauges {
		if g.Name == name {
			return f.G[i]
		}
	}
	t.Fatalf("no gauge %s", name)
	return nil
}

func TestFrameComesOnChangeOrAfterOneSecond(t *testing.T) {
	f, s := watched(Options{})
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	aged := func(v float64) Sample {
		m := gauge("running", 3)
		m.Gauges["scrape_age_ms"] = &v
		return m
	}
	for _, c := range []struct {
		ms     int
		sample Sample
		made   int
		why    string
	}{
		{0, aged(0), 1, "the first"},
		{100, aged(100), 0, "only an age has changed"},
		{200, aged(200), 0, "only an age has changed"},
		{300, gauge("running", 4), 1, "a gauge has changed"},
		{400, gauge("waiting", 4), 1, "one gauge is gone and one is there"},
		{500, gauge("waiting", 4), 0, "nothing has changed"},
		{1399, gauge("waiting", 4), 0, "not yet a second"},
		{1400, gauge("waiting", 4), 1, "a second has passed"},
		{1500, Sample{Gauges: gauge("waiting", 4).Gauges, Engine: "stalled", Rev: "r1"}, 1, "the engine has changed"},
		{1600, Sample{Gauges: gauge("waiting", 4).Gauges, Engine: "stalled", Rev: "r2"}, 1, "the policy has changed"},
	} {
		if n := f.Step(at(c.ms), c.sample); n != c.made {
			t.Errorf("at %d ms: %d frames, want %d: %s", c.ms, n, c.made, c.why)
		}
	}
	last := s.frames(t)[len(s.frames(t))-1]
	if last.Engine != "stalled" || last.Rev != "r2" {
		t.Errorf("last frame has engine %q rev %q", last.Engine, last.Rev)
	}
}

func TestUnknownGaugeIsNullNeverZero(t *testing.T) {
	f, s := watched(Options{})
	f.Step(t0, gauge("kv_used", 0))
	fr := s.frames(t)[0]
	if len(fr.G) != len(api.Gauges) {
		t.Fatalf("%d cells, want %d", len(fr.G), len(api.Gauges))
	}
	if v := cell(t, fr, "kv_used"); v == nil || *v != 0 {
		t.Errorf("a known 0 came as %v", v)
	}
	for _, name := range []string{"running", "ttft_p50_ms", "goodput_1m", "gpu_memory_used_bytes"} {
		if v := cell(t, fr, name); v != nil {
			t.Errorf("%s is not known, but came as %v", name, *v)
		}
	}
	nan := 0.0
	nan /= nan
	f.Step(t0.Add(time.Second), gauge("kv_used", nan))
	if v := cell(t, s.frames(t)[1], "kv_used"); v != nil {
		t.Errorf("NaN came as %v", *v)
	}
}

func TestDecisionAndOutcomeCells(t *testing.T) {
	f, s := watched(Options{})
	var l log
	d := journal.Decision{ID: "a", Tenant: "acme", Class: "batch", Session: "s1", Attempt: 2, PromptTokens: 10,
		OutputTokens: 20, ReservedTokens: 30, Verdict: reason.VerdictDefer, Reason: reason.KVPressure, Status: 503,
		RetryAfterMS: 1500, HeldMS: 40, Signals: []journal.SignalView{{Name: signals.KVUsed, Value: new(0.93)}, {Name: signals.Waiting}}}
	o := journal.Outcome{ID: "b", Ending: "whole", Status: 200, TTFTMS: new(80.5), TotalMS: 100, CompletionTokens: new(7), SLOMet: true}
	f.Fold([]journal.Entry{l.decision(t0.Add(-30*time.Millisecond), d), l.outcome(t0, o)}, false)
	f.Step(t0, Sample{})
	fr := s.frames(t)[0]
	words := fr.S
	if fr.SBase != 0 || len(words) < 4 {
		t.Fatalf("strings %q from %d", words, fr.SBase)
	}
	index := func(w string) float64 {
		for i := range words {
			if words[i] == w {
				return float64(i)
			}
		}
		t.Fatalf("%q was not interned in %q", w, words)
		return -1
	}
	reasonAt := -1.0
	for i, e := range reason.All() {
		if e.Code == reason.KVPressure {
			reasonAt = float64(i)
		}
	}
	wantD := []any{"a", 30.0, 1.0, reasonAt, 503.0, index("acme"), index("batch"), "s1", 2.0, 10.0, 20.0, 30.0, 1500.0, 40.0, 0.93, nil}
	if diff := cmp.Diff([][]any{wantD}, fr.D); diff != "" {
		t.Error("decision:", diff)
	}
	wantO := []any{"b", index("whole"), 200.0, 80.5, nil, 100.0, nil, 7.0, 1.0}
	if diff := cmp.Diff([][]any{wantO}, fr.O); diff != "" {
		t.Error("outcome:", diff)
	}
	if len(wantD) != len(api.DecisionFields) || len(wantO) != len(api.OutcomeFields) {
		t.Error("the number of cells is not the number of field names")
	}
	if fr.N != [3]int{0, 1, 0} {
		t.Errorf("counts %v", fr.N)
	}
	f.Fold([]journal.Entry{l.decision(t0, d)}, false)
	f.Step(t0.Add(time.Second), Sample{})
	if fr := s.frames(t)[1]; len(fr.S) != 0 {
		t.Errorf("known strings were sent again: %q", fr.S)
	}
}

func TestR2_OverloadedFrameCarriesCountsAndASample(t *testing.T) {
	run := func(seed uint64) api.Frame {
		f, s := watched(Options{Seed: seed})
		var l log
		var entries []journal.Entry
		for i := range 3000 {
			v, code := reason.VerdictAdmit, reason.OK
			if i%3 == 0 {
				v, code = reason.VerdictReject, reason.Saturated
			}
			entries = append(entries, l.decision(t0, journal.Decision{ID: fmt.Sprintf("%04d", i), Verdict: v, Reason: code}))
		}
		f.Fold(entries, false)
		f.Step(t0, Sample{})
		return s.frames(t)[0]
	}
	a, again, other := run(1), run(1), run(2)
	if !a.Sampled || len(a.D) != 200 || a.N != [3]int{2000, 0, 1000} {
		t.Fatalf("sampled %v, %d decisions, counts %v", a.Sampled, len(a.D), a.N)
	}
	if diff := cmp.Diff(a.D, again.D); diff != "" {
		t.Error("the same seed gave another sample")
	}
	if cmp.Equal(a.D, other.D) {
		t.Error("another seed gave the same sample")
	}
	late := 0
	for i, d := range a.D {
		if i > 0 && d[0].(string) <= a.D[i-1][0].(string) {
			t.Fatal("the sample is not in the order of time")
		}
		if d[0].(string) >= "1500" {
			late++
		}
	}
	// A fair sample has 100 of the later half, give or take 7; 60 to 140 is more than five times that.
	if late < 60 || late > 140 {
		t.Errorf("%d of 200 come from the later half", late)
	}
	f, s := watched(Options{})
	var l log
	var entries []journal.Entry
	for i := range 500 {
		entries = append(entries, l.decision(t0, journal.Decision{ID: strconv.Itoa(i), Verdict: reason.VerdictAdmit}))
	}
	f.Fold(entries, false)
	f.Step(t0, Sample{})
	if fr := s.frames(t)[0]; fr.Sampled || len(fr.D) != 500 {
		t.Errorf("500 decisions: sampled %v, %d sent", fr.Sampled, len(fr.D))
	}
}

func TestEventsAreNumberedWithFrames(t *testing.T) {
	f, s := watched(Options{FirstSeq: 100})
	var l log
	f.Step(t0, Sample{})
	f.Fold([]journal.Entry{l.event(t0, "policy_reload"), l.event(t0, "engine_state")}, false)
	f.Step(t0.Add(100*time.Millisecond), Sample{Rev: "r2"})
	var got []string
	for i, m := range s.got {
		if m.Seq != 100+uint64(i) {
			t.Errorf("message %d has number %d", i, m.Seq)
		}
		e := decode[api.Envelope](t, m.Data)
		if e.Seq != m.Seq || e.Kind != m.Kind || e.V != api.StreamVersion {
			t.Errorf("envelope %+v of message %d", e, m.Seq)
		}
		got = append(got, m.Kind)
	}
	if diff := cmp.Diff([]string{"frame", "event", "event", "frame"}, got); diff != "" {
		t.Error(diff)
	}
	if e := decode[api.EventMessage](t, s.got[1].Data); e.Name != "policy_reload" || e.Level != "info" {
		t.Errorf("event %+v", e)
	}
}

func TestGoodputCountsAllThatWereMeantToBeServed(t *testing.T) {
	f := New(Options{})
	var l log
	refuse := func(v string, c reason.Code) journal.Entry {
		return l.decision(t0, journal.Decision{ID: string(c), Verdict: v, Reason: c})
	}
	end := func(ending dialect.Ending, met bool) journal.Entry {
		return l.outcome(t0, journal.Outcome{ID: "x", Ending: string(ending), SLOMet: met})
	}
	f.Fold([]journal.Entry{
		l.decision(t0, journal.Decision{ID: "a", Verdict: reason.VerdictAdmit, Reason: reason.OK}),
		l.decision(t0, journal.Decision{ID: "b", Verdict: reason.VerdictAdmit, Reason: reason.OK}),
		refuse(reason.VerdictDefer, reason.KVPressure),          // meant
		refuse(reason.VerdictReject, reason.Saturated),          // meant
		refuse(reason.VerdictReject, reason.DeadlineInfeasible), // meant
		refuse(reason.VerdictReject, reason.TenantTokens),       // the caller's own budget
		refuse(reason.VerdictReject, reason.KeyInvalid),         // the caller's fault
		refuse(reason.VerdictReject, reason.BadRequest),         // the caller's fault
		end(dialect.EndWhole, true), end(dialect.EndWhole, true), end(dialect.EndCaller, false),
		end(dialect.EndInvalid, false), // the engine called it a bad request
		l.decision(t0, journal.Decision{ID: "h", Class: "helper", Verdict: reason.VerdictAdmit, Reason: reason.OK}),
		l.outcome(t0, journal.Outcome{ID: "h", Ending: string(dialect.EndWhole), SLOMet: true}), // a helper call has no SLO
	}, false)
	w := f.Windows(t0)[0]
	if w.Goodput == nil || *w.Goodput != 2.0/6 {
		t.Errorf("goodput %v, want 2 of 3 ended and 3 refused", w.Goodput)
	}
	want := api.Window{Seconds: 60, Arrivals: 9, Admitted: 3, Deferred: 1, Rejected: 5, Ended: 5, SLOMet: 2, Goodput: w.Goodput}
	if diff := cmp.Diff(want, w); diff != "" {
		t.Error(diff)
	}
}

func TestWindowsSlide(t *testing.T) {
	f := New(Options{})
	var l log
	for i := range 400 {
		at := t0.Add(time.Duration(i) * time.Second)
		f.Fold([]journal.Entry{l.decision(at, journal.Decision{ID: strconv.Itoa(i), Verdict: reason.VerdictAdmit}),
			l.outcome(at, journal.Outcome{ID: strconv.Itoa(i), Ending: "whole", SLOMet: true, TTFTMS: new(float64(i)), TPOTMS: new(5.0)})}, false)
	}
	now := t0.Add(399 * time.Second)
	w := f.Windows(now)
	if w[0].Seconds != 60 || w[0].Arrivals != 60 || w[1].Seconds != 300 || w[1].Arrivals != 300 {
		t.Errorf("windows %+v", w)
	}
	// The last minute's outcomes had TTFT 339..399 (61 of them, both ends counted).
	if *w[0].TTFTP50 != 369 || *w[0].TTFTP95 != 396 || *w[0].TPOTP95 != 5 {
		t.Errorf("percentiles %v %v %v", *w[0].TTFTP50, *w[0].TTFTP95, *w[0].TPOTP95)
	}
	for _, w := range f.Windows(now.Add(time.Hour)) {
		if w.Arrivals != 0 || w.Goodput != nil || w.TTFTP50 != nil {
			t.Errorf("an hour later: %+v", w)
		}
	}
}
