package feed

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/ui/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func admitted(id string) journal.Decision {
	return journal.Decision{ID: id, Verdict: reason.VerdictAdmit, Reason: reason.OK}
}

func TestR4_ResumeReplaysWhatWasMissed(t *testing.T) {
	f := New(Options{FirstSeq: 1000})
	for i := range 10 {
		f.Step(t0.Add(time.Duration(i)*time.Second), Sample{})
	}
	s := f.Subscribe(t0, 1004, nil)
	if !s.Resumed || s.Snap != nil || s.Gap != [2]uint64{} {
		t.Fatalf("not resumed: %+v", s)
	}
	var got []uint64
	for _, m := range s.Replay {
		got = append(got, m.Seq)
	}
	if diff := cmp.Diff([]uint64{1005, 1006, 1007, 1008, 1009}, got); diff != "" {
		t.Error(diff)
	}
	if s := f.Subscribe(t0, 1009, nil); !s.Resumed || len(s.Replay) != 0 {
		t.Errorf("a viewer that has everything: %+v", s)
	}
}

func TestR4_ResumeOutOfReachGetsSnapAndGap(t *testing.T) {
	f := New(Options{FirstSeq: 1000, Keep: 5 * time.Second})
	for i := range 20 {
		f.Step(t0.Add(time.Duration(i)*time.Second), Sample{})
	}
	for _, c := range []struct {
		name   string
		resume uint64
		gap    [2]uint64
	}{
		{"afresh", 0, [2]uint64{}},
		{"too old", 1003, [2]uint64{1004, 1019}},
		{"of a life before", 400, [2]uint64{1000, 1019}},
		{"of a life with a faster clock", 5000, [2]uint64{1000, 1019}},
	} {
		s := f.Subscribe(t0, c.resume, nil)
		if s.Resumed || s.Snap == nil || s.Gap != c.gap {
			t.Errorf("%s: resumed %v, gap %v, want gap %v", c.name, s.Resumed, s.Gap, c.gap)
		}
	}
	if from, last := f.Bounds(); from != 1014 || last != 1019 {
		t.Errorf("bounds %d to %d", from, last)
	}
}

func TestReplayRingIsBoundedInBytes(t *testing.T) {
	f := New(Options{FrameBytes: 2000})
	for i := range 100 {
		f.Step(t0.Add(time.Duration(i)*time.Second), Sample{})
	}
	f.mu.Lock()
	bytes, frames := f.frames.bytes, len(f.frames.list)-f.frames.head
	f.mu.Unlock()
	if bytes > 2000 || frames < 2 {
		t.Errorf("%d frames of %d bytes kept", frames, bytes)
	}
}

func TestSubscribeMissesNothingAndRepeatsNothing(t *testing.T) {
	f := New(Options{FrameDecisions: 100_000, SampleDecisions: 100_000})
	const n = 1000
	var wg sync.WaitGroup
	wg.Go(func() {
		var l log
		for i := range n {
			at := t0.Add(time.Duration(i) * time.Millisecond)
			f.Fold([]journal.Entry{l.decision(at, admitted(strconv.Itoa(i)))}, false)
			if i%10 == 9 {
				f.Step(at, Sample{})
			}
		}
	})
	type view struct {
		start Start
		sink  sink
	}
	views := make([]view, 10)
	for i := range views {
		// The first one starts afresh, the others where the one before them stood.
		resume := uint64(0)
		if i > 0 {
			resume = views[i-1].start.Last
		}
		views[i].start = f.Subscribe(t0, resume, &views[i].sink)
	}
	wg.Wait()
	for i := range views {
		v := &views[i]
		var all []*Message
		all = append(append(all, v.start.Replay...), v.sink.got...)
		for j := 1; j < len(all); j++ {
			if all[j].Seq != all[j-1].Seq+1 {
				t.Fatalf("view %d: %d follows %d", i, all[j].Seq, all[j-1].Seq)
			}
		}
		if v.start.Snap == nil {
			continue
		}
		seen := map[string]int{}
		for _, d := range v.start.Snap.Decisions {
			seen[d.Decision.ID]++
		}
		first := n - 10*len(v.sink.frames(t))
		for _, fr := range v.sink.frames(t) {
			for _, d := range fr.D {
				seen[d[0].(string)]++
			}
		}
		for k := max(first-snapDecisions, 0); k < n; k++ {
			if seen[strconv.Itoa(k)] != 1 {
				t.Fatalf("view %d has decision %d %d times", i, k, seen[strconv.Itoa(k)])
			}
		}
	}
}

func TestUnsubscribedSinkIsOfferedNothing(t *testing.T) {
	f, s := watched(Options{})
	f.Step(t0, Sample{})
	f.Unsubscribe(s)
	f.Step(t0.Add(time.Minute), Sample{})
	if len(s.got) != 1 {
		t.Errorf("%d messages", len(s.got))
	}
}

func TestDecisionsPageTowardsNewer(t *testing.T) {
	f := New(Options{Decisions: 8})
	var l log
	for i := range 10 {
		f.Fold([]journal.Entry{l.decision(t0, admitted(strconv.Itoa(i)))}, false)
	}
	ids := func(d api.Decisions) string {
		s := ""
		var sSb159 strings.Builder
		for _, it := range d.Items {
			sSb159.WriteString(it.Decision.ID)
		}
		s += sSb159.String()
		return s
	}
	newest := f.Decisions(Query{Newest: true, Limit: 3})
	if ids(newest) != "987" || newest.Next != 10 || newest.Oldest != 3 {
		t.Errorf("newest %s, next %d, oldest %d", ids(newest), newest.Next, newest.Oldest)
	}
	page := f.Decisions(Query{After: 3, Limit: 3})
	if ids(page) != "543" || page.Next != 6 {
		t.Errorf("after 3: %s, next %d", ids(page), page.Next)
	}
	odd := func(d *api.DecisionItem) bool { return d.Seq%2 == 1 }
	page = f.Decisions(Query{After: page.Next, Limit: 3, Match: odd})
	if ids(page) != "86" || page.Next != 10 {
		t.Errorf("odd ones after 6: %s, next %d", ids(page), page.Next)
	}
	if page = f.Decisions(Query{After: 10, Limit: 3}); ids(page) != "" || page.Next != 10 || page.Items == nil {
		t.Errorf("after the last: %q, next %d", ids(page), page.Next)
	}
}

func TestFindJoinsOutcomeAndSession(t *testing.T) {
	f := New(Options{})
	var l log
	turn := func(id, tenant, session string, attempt int) journal.Entry {
		return l.decision(t0.Add(time.Duration(l.seq)*time.Second), journal.Decision{ID: id, Tenant: tenant, Session: session,
			Attempt: attempt, Verdict: reason.VerdictAdmit, Reason: reason.OK})
	}
	f.Fold([]journal.Entry{turn("a", "t", "s", 0), turn("b", "t", "s", 1), turn("c", "t", "other", 0), turn("d", "u", "s", 0),
		turn("e", "t", "s", 2), l.outcome(t0, journal.Outcome{ID: "b", Ending: "whole"})}, false)
	it, ok := f.Find("b")
	if !ok || it.Outcome == nil || it.Outcome.Ending != "whole" || it.Reason.Code != reason.OK {
		t.Fatalf("found %v: %+v", ok, it)
	}
	var ids []string
	for _, s := range it.Session {
		ids = append(ids, s.ID)
	}
	if diff := cmp.Diff([]string{"a", "e"}, ids); diff != "" {
		t.Error(diff)
	}
	if _, ok := f.Find("z"); ok {
		t.Error("found what is not there")
	}
}

func TestHistoryLeavesGapsAndTakesTheLastRowOfAStep(t *testing.T) {
	f := New(Options{})
	for _, ms := range []int{0, 100, 200, 900, 5000, 5100} {
		f.Step(t0.Add(time.Duration(ms)*time.Millisecond), gauge("running", float64(ms)))
	}
	h := f.History(t0, t0.Add(time.Minute), time.Second)
	if diff := cmp.Diff([]int64{t0.UnixMilli() + 900, t0.UnixMilli() + 5100}, h.T); diff != "" {
		t.Error(diff)
	}
	at := slices.IndexFunc(h.Gauges, func(g api.Gauge) bool { return g.Name == "running" })
	if *h.Rows[0][at] != 900 || *h.Rows[1][at] != 5100 {
		t.Errorf("rows %v %v", *h.Rows[0][at], *h.Rows[1][at])
	}
	if h := f.History(t0.Add(time.Second), t0.Add(4*time.Second), 0); len(h.T) != 0 || h.Rows == nil {
		t.Errorf("a time without rows: %+v", h)
	}
	if h := f.History(t0, t0.Add(time.Minute), 0); len(h.T) != 6 {
		t.Errorf("%d rows without a step", len(h.T))
	}
}

func TestHistoryIsBoundedInTime(t *testing.T) {
	f := New(Options{Keep: 10 * time.Second})
	for i := range 5000 {
		f.Step(t0.Add(time.Duration(i)*time.Second), Sample{})
	}
	if h := f.History(t0, t0.Add(2*time.Hour), 0); len(h.T) != 11 {
		t.Errorf("%d rows kept of 10 s", len(h.T))
	}
	if n := len(f.rows.list); n > 2100 {
		t.Errorf("%d rows in memory", n)
	}
}

func TestTenantsAndSessionsSumTheRing(t *testing.T) {
	f := New(Options{})
	var l log
	for i := range 60 {
		tenant := fmt.Sprintf("t%02d", i)
		for k := range 1 + i%2 {
			id := fmt.Sprintf("%s-%d", tenant, k)
			f.Fold([]journal.Entry{l.decision(t0.Add(time.Duration(i)*time.Second), journal.Decision{ID: id, Tenant: tenant, Session: "s" + id,
				SessionSource: "derived", Attempt: k, PromptTokens: 120, ReservedTokens: 7, Verdict: reason.VerdictAdmit, Reason: reason.OK})}, false)
		}
	}
	f.Fold([]journal.Entry{
		l.outcome(t0, journal.Outcome{ID: "t01-0", Ending: "whole", SLOMet: true, TTFTMS: new(50.0), PromptTokens: new(100), CompletionTokens: new(9)}),
		l.decision(t0, journal.Decision{ID: "x", Tenant: "t01", Verdict: reason.VerdictDefer, Reason: reason.KVPressure}),
	}, false)
	ts := f.Tenants()
	if len(ts.Tenants) != TopRows || ts.Others == nil || ts.Others.Arrivals != 10 || ts.Others.Tenant != "others" {
		t.Fatalf("%d tenants, others %+v", len(ts.Tenants), ts.Others)
	}
	want := api.TenantRow{Tenant: "t01", Sessions: 2, LastVerdict: "defer", LastReason: reason.KVPressure, Counts: api.Counts{
		Arrivals: 3, Admitted: 2, Deferred: 1, InFlight: 1, Ended: 1, SLOMet: 1, Goodput: new(0.5), Retries: 1,
		ReservedTokens: 14, PromptTokens: 100, CompletionTokens: 9, EstimateBias: new(1.2), TTFTP95: new(50.0),
		FirstAt: t0, LastAt: t0.Add(time.Second)}}
	if diff := cmp.Diff(want, ts.Tenants[0]); diff != "" {
		t.Error(diff)
	}
	ss := f.Sessions()
	if len(ss.Sessions) != TopRows || ss.Others == nil || ss.Others.Arrivals != 40 {
		t.Fatalf("%d sessions, others %+v", len(ss.Sessions), ss.Others)
	}
	if s := ss.Sessions[0]; s.Session != "st59-0" && s.Session != "st59-1" || s.Tenant != "t59" || s.Source != "derived" {
		t.Errorf("the latest session is %+v", s)
	}
}

func TestInternedStringsAreBounded(t *testing.T) {
	f, s := watched(Options{FrameDecisions: 10_000})
	var l log
	var entries []journal.Entry
	for i := range 6000 {
		entries = append(entries, l.decision(t0, journal.Decision{ID: strconv.Itoa(i), Tenant: fmt.Sprintf("t%d", i), Verdict: "admit"}))
	}
	f.Fold(entries, false)
	f.Step(t0, Sample{})
	fr := s.frames(t)[0]
	if len(fr.S) != maxStrings || fr.S[0] != "other" {
		t.Errorf("%d strings, the first %q", len(fr.S), fr.S[0])
	}
	if last := fr.D[len(fr.D)-1]; last[5] != 0.0 {
		t.Errorf("a tenant beyond the limit has index %v", last[5])
	}
}

func TestLostJournalEntriesMarkTheFrame(t *testing.T) {
	f, s := watched(Options{})
	f.Step(t0, Sample{})
	f.Fold(nil, true)
	f.Step(t0.Add(100*time.Millisecond), Sample{})
	if fr := s.frames(t); len(fr) != 2 || !fr[1].Sampled || f.Lost() != 1 {
		t.Errorf("%d frames, lost %d", len(fr), f.Lost())
	}
}

func TestNewViewerIsToldOfTheEventsThatItMissed(t *testing.T) {
	f := New(Options{Keep: time.Minute})
	for i := range 2 * maxPastEvents {
		at := t0.Add(time.Duration(i) * 400 * time.Millisecond)
		f.Fold([]journal.Entry{{At: at, Kind: journal.KindEvent, Event: &journal.Event{Name: "engine_state", Level: "error", Text: strconv.Itoa(i)}}}, false)
		f.Step(at, Sample{})
	}
	now := t0.Add(2 * maxPastEvents * 400 * time.Millisecond)
	events := f.Subscribe(now, 0, nil).Snap.Events
	if len(events) != maxPastEvents || events[0].Text != "100" || events[maxPastEvents-1].T != now.Add(-400*time.Millisecond).UnixMilli() {
		t.Errorf("%d events, the first %+v", len(events), events[0])
	}
	if events := f.Subscribe(now.Add(40*time.Second), 0, nil).Snap.Events; len(events) != 50 {
		t.Errorf("%d events of the last minute, want 50", len(events))
	}
}
