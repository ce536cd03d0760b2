package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/signals"
	"admitd/supervisor"
	"admitd/ui/api"
)

func TestStatusTellsEverythingOfEveryPool(t *testing.T) {
	r := newRig(t)
	r.admit("a")
	r.clock.advance(2 * time.Second)
	st := fetch[api.Status](r, "/api/v1/status")
	if !st.Ready || len(st.Pools) != 2 || st.Version != "v1" || st.BootID != "boot-1" || !st.StartedAt.Equal(t0) {
		t.Fatalf("%+v", st)
	}
	p := st.Pools[0]
	if p.Model != "m1" || p.Ledger.InFlight != 4 || p.Policy.Name != "dual-gate" || p.Windows[0].Arrivals != 1 || !p.Engine.Simulated {
		t.Errorf("%+v", p)
	}
	if p.Scrape.AgeMS == nil || *p.Scrape.AgeMS != 2000 || p.Scrape.Seq != 7 || p.Scrape.IntervalMS != 500 {
		t.Errorf("scrape %+v", p.Scrape)
	}
	if len(p.Signals) != len(signals.Names()) {
		t.Errorf("%d signals", len(p.Signals))
	}
	for _, s := range p.Signals {
		if (s.Value == nil) != (s.State == signals.Missing) {
			t.Errorf("signal %s is %s with value %v", s.Name, s.State, s.Value)
		}
	}
	if g := p.GPU; g.State != "ok" || *g.AgeMS != 2000 || *g.Devices[0].MemoryUsedBytes != 600 || g.Devices[0].PowerWatts != nil ||
		!g.Devices[0].Processes[0].Ours {
		t.Errorf("gpu %+v", g)
	}
	r.engine.set(func(s *supervisor.Status) { s.State = supervisor.Loading })
	if st := fetch[api.Status](r, "/api/v1/status"); st.Ready {
		t.Error("ready while an engine is loading")
	}
	if resp, body := r.request("GET", "/readyz", ""); resp.StatusCode != http.StatusServiceUnavailable || string(body) != "m1: engine loading\n" {
		t.Errorf("readyz: %d %s", resp.StatusCode, body)
	}
	r.engine.set(func(s *supervisor.Status) { s.State = supervisor.Ready })
	r.s.pools[0].b.Serving = func() (bool, string) { return false, "waiting for the first scrape" }
	if resp, body := r.request("GET", "/readyz", ""); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "first scrape") {
		t.Errorf("readyz: %d %s", resp.StatusCode, body)
	}
	if resp, body := r.request("GET", "/healthz", ""); resp.StatusCode != http.StatusOK || string(body) != "ok\n" {
		t.Errorf("healthz: %d %s", resp.StatusCode, body)
	}
}

func TestDecisionsAreThereAsSoonAsTheyAreMade(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.decide(journal.Decision{ID: strconv.Itoa(i), Session: "s", Tenant: "acme", Verdict: reason.VerdictReject, Reason: reason.Saturated, Attempt: i})
	}
	r.journal.Append(journal.Entry{At: t0, Kind: journal.KindOutcome, Outcome: &journal.Outcome{ID: "4", Ending: "whole"}})
	d := fetch[api.Decisions](r, "/api/v1/decisions?limit=2")
	if len(d.Items) != 2 || d.Items[0].Decision.ID != "4" || d.Items[0].Outcome == nil || d.Next != 5 || d.Oldest != 1 {
		t.Errorf("%+v", d)
	}
	d = fetch[api.Decisions](r, "/api/v1/decisions?after=3&filter=reason:sat+!attempt%3E3")
	if len(d.Items) != 1 || d.Items[0].Decision.ID != "3" {
		t.Errorf("%+v", d)
	}
	it := fetch[api.DecisionItem](r, "/api/v1/decisions/2")
	if it.Decision.ID != "2" || it.Reason.Code != reason.Saturated || len(it.Session) != 4 {
		t.Errorf("%+v", it)
	}
	if d := fetch[api.Decisions](r, "/api/v1/decisions?pool=m2"); len(d.Items) != 0 || d.Items == nil {
		t.Errorf("the other pool has %+v", d.Items)
	}
	ts := fetch[api.Tenants](r, "/api/v1/tenants")
	if ts.Pool != "m1" || len(ts.Tenants) != 1 || ts.Tenants[0].Rejected != 5 || ts.Tenants[0].Retries != 4 {
		t.Errorf("%+v", ts)
	}
	ss := fetch[api.Sessions](r, "/api/v1/sessions")
	if len(ss.Sessions) != 1 || ss.Sessions[0].MaxAttempt != 4 {
		t.Errorf("%+v", ss)
	}
	if s := fetch[api.Signals](r, "/api/v1/signals?pool=m2"); s.Pool != "m2" || len(s.Signals) == 0 {
		t.Errorf("%+v", s)
	}
}

func TestBadParametersSayWhatIsWrong(t *testing.T) {
	r := newRig(t)
	for path, want := range map[string]string{
		"/api/v1/decisions?limit=0":                "limit=0: give a whole number from 1 to 1000",
		"/api/v1/decisions?limit=1e3":              "limit=1e3",
		"/api/v1/decisions?after=-1":               "after=-1",
		"/api/v1/decisions?filter=reson:kv":        `filter column 1: no field "reson"`,
		"/api/v1/history?from=yesterday":           "from=yesterday: give a time",
		"/api/v1/history?step=-1s":                 "step=-1s: give a duration",
		"/api/v1/history?step=48h":                 "at most a day",
		"/api/v1/history?from=2000&to=1000":        "lies after to=",
		"/api/v1/frame?since=x":                    "since=x",
		"/api/v1/stream?resume=x":                  "resume=x",
		"/api/v1/engine/logs?limit=1000000":        "from 1 to 2000",
		"/api/v1/engine/logs?follow=yes":           "follow=yes: give 1 or 0",
		"/api/v1/engine/logs?after=99999999999999": "",
	} {
		resp, body := r.request("GET", path, "")
		if want == "" {
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %d", path, resp.StatusCode)
			}
			continue
		}
		problemWord(t, resp, body)
		if p := strictly[api.Problem](t, body); resp.StatusCode != http.StatusBadRequest || !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %d %s; want %q", path, resp.StatusCode, p.Detail, want)
		}
	}
	resp, body := r.request("GET", "/api/v1/decisions/none", "")
	if resp.StatusCode != http.StatusNotFound || problemWord(t, resp, body) != "no_such_decision" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, body := r.request("GET", "/api/v1/stream", ""); resp.StatusCode != http.StatusUpgradeRequired || problemWord(t, resp, body) != "upgrade_required" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestHistoryTakesBothWaysOfWritingATime(t *testing.T) {
	r := newRig(t)
	for range 30 {
		r.step()
	}
	all := fetch[api.History](r, "/api/v1/history")
	if len(all.T) < 3 || len(all.Rows) != len(all.T) || len(all.Gauges) != len(api.Gauges) {
		t.Fatalf("%d times, %d rows", len(all.T), len(all.Rows))
	}
	ms := fetch[api.History](r, fmt.Sprintf("/api/v1/history?from=%d&to=%d&step=1s", t0.UnixMilli(), t0.Add(time.Minute).UnixMilli()))
	text := fetch[api.History](r, "/api/v1/history?from=2026-11-30T12:00:00Z&to=2026-11-30T12:01:00Z&step=1000")
	if diff := cmp.Diff(ms, text); diff != "" {
		t.Error(diff)
	}
	if len(ms.T) == 0 || len(ms.T) > 4 {
		t.Errorf("%d rows of 1 s in 3 s", len(ms.T))
	}
	i := 0
	for all.Gauges[i].Name != "kv_reserved" {
		i++
	}
	if v := all.Rows[0][i]; v == nil || *v != 0.25 {
		t.Errorf("kv_reserved %v, want 250 of 1000 tokens", v)
	}
}

func TestEngineStatusLogsAndRestart(t *testing.T) {
	r := newRig(t)
	if st := fetch[supervisor.Status](r, "/api/v1/engine"); st.State != supervisor.Ready || st.Model != "m1" {
		t.Errorf("%+v", st)
	}
	for i := range 5 {
		r.engine.log(fmt.Sprint("line ", i+1))
	}
	l := fetch[api.EngineLogs](r, "/api/v1/engine/logs?after=1&limit=3")
	if len(l.Lines) != 3 || l.Lines[0].Seq != 2 || l.Next != 4 {
		t.Errorf("%+v", l)
	}
	if l := fetch[api.EngineLogs](r, "/api/v1/engine/logs?after=5"); len(l.Lines) != 0 || l.Lines == nil || l.Next != 5 {
		t.Errorf("%+v", l)
	}
	if l := fetch[api.EngineLogs](r, "/api/v1/engine/logs?limit=2"); len(l.Lines) != 2 || l.Lines[0].Seq != 4 || l.Next != 5 || !l.Lost {
		t.Errorf("the newest two: %+v", l)
	}
	resp, body := r.write("POST", "/api/v1/engine/restart", "")
	if resp.StatusCode != http.StatusAccepted || r.b.restarts.Load() != 1 {
		t.Errorf("%d %s, %d restarts", resp.StatusCode, body, r.b.restarts.Load())
	}
	strictly[api.Accepted](t, body)
	r.engine.set(func(s *supervisor.Status) { s.Kind = supervisor.External })
	resp, body = r.write("POST", "/api/v1/engine/restart", "{}")
	if resp.StatusCode != http.StatusConflict || problemWord(t, resp, body) != "not_ours" || r.b.restarts.Load() != 1 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestFollowedLogGivesLinesAsTheyCome(t *testing.T) {
	r := newRig(t)
	r.engine.lost = true
	r.engine.log("one")
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.srv.URL+"/api/v1/engine/logs?follow=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if ct := resp.Header.Get("Content-Type"); ct != "application/x-ndjson" {
		t.Errorf("content type %s", ct)
	}
	lines := bufio.NewScanner(resp.Body)
	next := func() api.LogEvent {
		if !lines.Scan() {
			t.Fatal("the log ended:", lines.Err())
		}
		return strictly[api.LogEvent](t, lines.Bytes())
	}
	if l := next(); !l.Lost || l.Text != "" {
		t.Errorf("first %+v, want the word that lines were lost", l)
	}
	if l := next(); l.Text != "one" || l.Seq != 1 || l.Lost {
		t.Errorf("%+v", l)
	}
	r.engine.log("two")
	if l := next(); l.Text != "two" {
		t.Errorf("%+v", l)
	}
	r.s.Close("stop")
	if lines.Scan() {
		t.Errorf("more after the stop: %s", lines.Bytes())
	}
}

func TestLogTextStaysTextInJSON(t *testing.T) {
	r := newRig(t)
	r.engine.log(`</script><script>alert(1)</script>`)
	_, body := r.request("GET", "/api/v1/engine/logs", "")
	if strings.Contains(string(body), "<script>") || !json.Valid(body) {
		t.Errorf("%s", body)
	}
}
