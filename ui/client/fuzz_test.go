package client

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"testing"
	"time"

	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/signals"
	"admitd/ui/api"
	"admitd/ui/feed"
)

// parrot answers every request with the same text.
type parrot struct {
	status int
	body   []byte
}

func (p parrot) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: p.status, Request: r, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(p.body))}, nil
}

// Whatever answers at the admin address: the command line ends with a result or an error that it can name, and an upgrade
// counts as ended only when the answer says so.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"text":"started"}`+"\n"+`{"text":"upgraded","done":true,"ok":true,"pid":7}`+"\n"))
	f.Add(200, []byte(`{"seq":1,"text":"line"}`+"\n"+`{"seq":2`))
	f.Add(409, []byte(`{"status":409,"title":"t","detail":"d","errors":[{"line":1}]}`))
	f.Add(502, []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		status = 200 + (status%400+400)%400
		c, err := New(Options{Address: "127.0.0.1:1", HTTP: &http.Client{Transport: parrot{status, body}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}})
		if err != nil {
			t.Fatal(err)
		}
		told := 0
		step, err := c.Upgrade(t.Context(), "", func(s api.UpgradeStep) {
			if told++; s.Done {
				t.Fatalf("%q: the end was told as a step", body)
			}
		})
		if err == nil && (!step.Done || !bytes.Contains(bytes.ToLower(body), []byte("done"))) {
			t.Fatalf("%q: ended with %+v", body, step)
		}
		lines := 0
		follow := c.FollowLogs(t.Context(), 0, func(api.LogEvent) error { lines++; return nil })
		if told > len(body) || lines > len(body) {
			t.Fatalf("%d steps and %d lines in %d bytes", told, lines, len(body))
		}
		_, plain := c.Status(t.Context())
		for _, err := range []error{err, follow, plain} {
			var p *ProblemError
			if status >= 300 && (!errors.As(err, &p) || err.Error() == "") {
				t.Fatalf("%d %q: %v", status, body, err)
			}
		}
	})
}

// stream is one whose hello has come.
func stream() *Stream {
	return &Stream{verdicts: feed.Verdicts(), reasons: reason.All(), decisionFields: api.DecisionFields, outcomeFields: api.OutcomeFields}
}

func TestCellsThatPointFarAwayAreNoWords(t *testing.T) {
	for _, text := range []string{
		`{"v":1,"kind":"frame","d":[["id",5,1e300,1e300,0,1e300,1e300]],"o":[["id",1e300]]}`,
		`{"v":1,"kind":"frame","s":["x"],"sb":9223372036854775807,"d":[["id",0,-1,-1,0,-1,9223372036854775807]]}`,
	} {
		s := stream()
		var m Message
		if err := m.decode([]byte(text)); err != nil {
			t.Fatal(err)
		}
		s.learn(&m)
		if d := s.Decisions(m.Frame)[0]; d.ID != "id" || d.Verdict != "" || d.Reason != "" || d.Tenant != "" || d.Class != "" {
			t.Errorf("%s: %+v", text, d)
		}
		s.Outcomes(m.Frame)
	}
}

// Whatever a message holds, each of its rows is read, and the words that are remembered are bounded.
func FuzzStreamMessage(f *testing.F) {
	f.Add([]byte(`{"v":1,"seq":3,"kind":"frame","s":["x"],"sb":1,"d":[["id",5,0,0,null,1]],"o":[["id",1]]}`))
	f.Add([]byte(`{"v":1,"kind":"gap","s":["x"],"sb":-1}`))
	f.Add([]byte(`{"v":1,"kind":"frame","sb":9223372036854775807,"s":["x"],"d":[[]]}`))
	f.Add([]byte(`{"v":1,"kind":"frame","s":["x"],"d":[["id",1e300,1e300,1e300,1e300,1e300,0,0,1e300]],"o":[["id",1e300]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := stream()
		var m Message
		if m.decode(data) != nil {
			return
		}
		s.learn(&m)
		if len(s.words) > maxWords {
			t.Errorf("%d words", len(s.words))
		}
		if m.Frame != nil {
			if n := len(s.Decisions(m.Frame)); n != len(m.Frame.D) {
				t.Errorf("%d decisions of %d", n, len(m.Frame.D))
			}
			s.Outcomes(m.Frame)
		}
	})
}

// frames keeps what a feed makes.
type frames []*feed.Message

func (f *frames) Offer(m *feed.Message) { *f = append(*f, m) }

// What the feed puts into frames the client takes out of them, whatever callers have named themselves.
func FuzzFrame(f *testing.F) {
	f.Add("id", "acme", "batch", "s-1", uint8(1), 429, int64(1500), 0.5, 3)
	f.Add("", "other", "\xff", "\u2028", uint8(0), 0, int64(-1), math.NaN(), -1)
	f.Add("a\"", "", "", "\x00", uint8(9), 529, int64(1)<<52, math.Inf(1), 1<<30)
	f.Fuzz(func(t *testing.T, id, tenant, class, session string, verdict uint8, status int, ms int64, kv float64, tokens int) {
		ms, tokens = ms%(1<<40), tokens%(1<<40)
		codes := reason.All()
		d := &journal.Decision{ID: id, Tenant: tenant, Class: class, Session: session, Verdict: feed.Verdicts()[int(verdict)%3],
			Reason: codes[int(verdict)%len(codes)].Code, Status: status % 1000, RetryAfterMS: ms, PromptTokens: tokens,
			Signals: []journal.SignalView{{Name: signals.KVUsed, Value: &kv}}}
		o := &journal.Outcome{ID: id, Ending: class, Status: status % 1000, TTFTMS: &kv, CompletionTokens: &tokens, SLOMet: verdict%2 == 0}
		fd, got := feed.New(feed.Options{}), &frames{}
		now := time.UnixMilli(1_800_000_000_000)
		fd.Subscribe(now, 0, got)
		fd.Fold([]journal.Entry{{Seq: 1, At: now, Kind: journal.KindDecision, Decision: d}, {Seq: 2, At: now, Kind: journal.KindOutcome, Outcome: o}}, false)
		fd.Step(now, feed.Sample{})
		s := stream()
		var rows []DecisionRow
		var ends []OutcomeRow
		for _, m := range *got {
			var read Message
			if err := read.decode(m.Data); err != nil {
				t.Fatalf("%s: %v", m.Data, err)
			}
			s.learn(&read)
			if read.Frame != nil {
				rows, ends = append(rows, s.Decisions(read.Frame)...), append(ends, s.Outcomes(read.Frame)...)
			}
		}
		if len(rows) != 1 || len(ends) != 1 {
			t.Fatalf("%d decisions and %d outcomes came", len(rows), len(ends))
		}
		text := func(s string) string { return string([]rune(s)) } // JSON has a mark for each bad byte, as Go's runes have
		r, e := rows[0], ends[0]
		if r.Verdict != d.Verdict || r.Reason != d.Reason || r.Status != max(d.Status, 0) || r.PromptTokens != tokens ||
			r.RetryAfter != time.Duration(max(ms, 0))*time.Millisecond || e.Status != max(d.Status, 0) || e.SLOMet != o.SLOMet {
			t.Fatalf("%+v became %+v, %+v became %+v", d, r, o, e)
		}
		if r.ID != text(id) || e.ID != text(id) || r.Tenant != text(tenant) || r.Class != text(class) || r.Session != text(session) || e.Ending != text(class) {
			t.Fatalf("%+v became %+v and %+v", d, r, e)
		}
		if finite := !math.IsNaN(kv) && !math.IsInf(kv, 0); (r.KVUsed != nil) != finite || (e.TTFTMS != nil) != finite || finite && math.Abs(*r.KVUsed-kv) > 1e-4*max(1, math.Abs(kv)) {
			t.Fatalf("KV use %v became %v", kv, r.KVUsed)
		}
	})
}
