package ui

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/ui/api"
	"admitd/ui/client"
)

func (r *rig) client(token string) *client.Client {
	r.t.Helper()
	c, err := client.New(client.Options{Address: r.srv.URL, Token: token})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.CloseIdle)
	return c
}

func TestClientCallsEveryRoute(t *testing.T) {
	r := newRig(t)
	c, ctx := r.client(testToken), t.Context()
	r.admit("a")
	r.engine.log("line")
	r.step()
	ok := func(what string, err error, good bool) {
		t.Helper()
		if err != nil || !good {
			t.Errorf("%s: good %v, error %v", what, good, err)
		}
	}
	st, err := c.Status(ctx)
	ok("status", err, len(st.Pools) == 2)
	sig, err := c.Signals(ctx)
	ok("signals", err, sig.Pool == "m1")
	ds, err := c.Decisions(ctx, client.DecisionQuery{Filter: "session:s1", Limit: 5})
	ok("decisions", err, len(ds.Items) == 1)
	ds, err = c.Decisions(ctx, client.DecisionQuery{After: &ds.Next})
	ok("newer decisions", err, len(ds.Items) == 0)
	d, err := c.Decision(ctx, "a")
	ok("decision", err, d.Decision.Tenant == "acme")
	_, err = c.Decision(ctx, "b")
	ok("no decision", nil, errors.Is(err, client.ErrNotFound))
	ss, err := c.Sessions(ctx)
	ok("sessions", err, len(ss.Sessions) == 1)
	ts, err := c.Tenants(ctx)
	ok("tenants", err, len(ts.Tenants) == 1)
	e, err := c.Engine(ctx)
	ok("engine", err, e.Model == "m1")
	h, err := c.History(ctx, t0, time.Time{}, time.Second)
	ok("history", err, len(h.T) == 1)
	poll, err := c.Poll(ctx, 0)
	ok("frame", err, len(poll.Messages) == 2)
	poll, err = c.Poll(ctx, poll.Next)
	ok("newer frames", err, len(poll.Messages) == 0)
	logs, err := c.Logs(ctx, 0, 10)
	ok("logs", err, len(logs.Lines) == 1)
	ready, _, err := c.Ready(ctx)
	ok("ready", err, ready)
	_, err = c.RestartEngine(ctx)
	ok("restart", err, r.b.restarts.Load() == 1)
	_, err = c.Reload(ctx)
	ok("reload", err, true)
	_, err = r.client("").Reload(ctx)
	ok("reload without a token", nil, errors.Is(err, client.ErrUnauthorized))
}

func TestClientChangesThePolicy(t *testing.T) {
	r := newRig(t)
	c, ctx := r.client(testToken), t.Context()
	doc, err := c.Policy(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if dry, err := c.DryRun(ctx, []byte(draft), time.Minute); err != nil || dry.Rev == doc.Rev {
		t.Errorf("%+v %v", dry, err)
	}
	var pe *client.ProblemError
	if _, err := c.PutPolicy(ctx, []byte("policy: dual-gate\nx: 1\n"), doc.Rev, ""); !errors.Is(err, client.ErrInvalid) || !errors.As(err, &pe) || pe.Errors[0].Line != 2 {
		t.Errorf("%v", err)
	}
	res, err := c.PutPolicy(ctx, []byte(draft), doc.Rev, "note")
	if err != nil || !res.Changed {
		t.Fatalf("%+v %v", res, err)
	}
	if _, err := c.PutPolicy(ctx, policy.Default(), doc.Rev, ""); !errors.Is(err, client.ErrPrecondition) {
		t.Errorf("%v", err)
	}
	h, err := c.PolicyHistory(ctx)
	if err != nil || len(h.Revisions) != 2 || h.Revisions[0].Note != "note" {
		t.Errorf("%+v %v", h, err)
	}
	if res, err := c.Revert(ctx, doc.Rev); err != nil || res.Rev != doc.Rev {
		t.Errorf("%+v %v", res, err)
	}
}

func TestClientFollowsTheLog(t *testing.T) {
	r := newRig(t)
	r.engine.log("one")
	var got []string
	err := r.client("").FollowLogs(t.Context(), 0, func(l api.LogEvent) error {
		if got = append(got, l.Text); len(got) == 2 {
			r.s.Close("enough")
		} else {
			r.engine.log("two")
		}
		return nil
	})
	if diff := cmp.Diff([]string{"one", "two"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestClientStreamNamesTheCells(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Addr = "0.0.0.0:8081" })
	ctx := t.Context()
	if _, err := r.client("wrong").Stream(ctx, 0); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("%v", err)
	}
	s, err := r.client(testToken).Stream(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	next := func() client.Message {
		t.Helper()
		m, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := next(); m.Hello == nil || m.Hello.Pool != "m1" {
		t.Fatalf("%+v", m)
	}
	if m := next(); m.Snap == nil {
		t.Fatalf("%+v", m)
	}
	if err := s.Rate(5); err != nil {
		t.Fatal(err)
	}
	r.decide(journal.Decision{ID: "x", Tenant: "acme", Class: "batch", Session: "s", Attempt: 1, PromptTokens: 7, Verdict: reason.VerdictReject,
		Reason: reason.Saturated, Status: 529, RetryAfterMS: 30_000})
	r.journal.Append(journal.Entry{At: t0, Kind: journal.KindOutcome, Outcome: &journal.Outcome{ID: "w", Ending: "whole", Status: 200, TotalMS: 12, SLOMet: true}})
	r.clock.advance(20 * time.Millisecond)
	r.step()
	m := next()
	if m.Frame == nil || s.LastSeq != m.Seq {
		t.Fatalf("%+v", m)
	}
	want := []client.DecisionRow{{ID: "x", At: t0, Verdict: "reject", Reason: reason.Saturated, Status: 529, Tenant: "acme", Class: "batch",
		Session: "s", Attempt: 1, PromptTokens: 7, RetryAfter: 30 * time.Second}}
	rows := s.Decisions(m.Frame)
	if diff := cmp.Diff(want, rows, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
		t.Error(diff)
	}
	if o := s.Outcomes(m.Frame); len(o) != 1 || o[0].Ending != "whole" || o[0].TTFTMS != nil || *o[0].TotalMS != 12 || !o[0].SLOMet {
		t.Errorf("%+v", o)
	}
	go r.s.Close("over")
	if m := next(); m.Bye == nil || m.Bye.Why != "over" {
		t.Errorf("%+v", m)
	}
	if _, err := s.Next(); !errors.Is(err, client.ErrStreamEnded) {
		t.Errorf("%v", err)
	}
}

func TestClientStreamEndsWithItsContext(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := r.client("").Stream(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for err == nil {
		_, err = s.Next()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
