package admission

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
)

var epoch = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const testKey = "a key of at least sixteen bytes"

// story is one controller driven by a script in testdata/stories. Every command may carry t=DURATION, the time since
// the story began; without it no time passes. Commands:
//
//	pool [slots=N] [cap=TOKENS] [maxlen=TOKENS] [output=TOKENS] [stale=DURATION] [nokey] [shared] [nonce=N]
//	                       a new controller; the input is its policy file
//	arrive ID... [prompt=N] [text=BYTES] [limit=N] [n=N] [prompts=N] [tenant=T] [until=DURATION] [ticket=ID|forged|TEXT]
//	       [attempt=N hash=N] [truncates] [dry] [say] [trace]
//	                       prompt is in exact token ids, text in bytes of English; ticket=ID shows what ID was given
//	scrape [running=N waiting=N kv=F cap=N] [at=DURATION] [failed] [life=N]
//	offer kv=F             KV use that came with an answer, after the last scrape
//	progress ID N | settle ID [prompt=N] [completion=N] [ending=E] [guess] | withdraw ID | tick | policy | close REASON | open
//	state | dump | wake | engine slots=N cap=N maxlen=N | errors
type story struct {
	c       *Controller
	now     time.Time
	seq     uint64
	at      time.Time
	life    uint64
	tickets map[string]string
}

func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := &story{now: epoch, tickets: map[string]string{}, life: 1}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			a := args{t: t, d: d, opt: map[string]string{}}
			for _, arg := range d.CmdArgs {
				switch len(arg.Vals) {
				case 0:
					a.names = append(a.names, arg.Key)
				default:
					a.opt[arg.Key] = arg.Vals[0]
				}
			}
			if v, ok := a.opt["t"]; ok {
				s.now = epoch.Add(a.duration(v))
			}
			out := s.run(a)
			if s.c != nil {
				checkBooks(t, s.c)
			}
			return out
		})
	})
}

type args struct {
	t     *testing.T
	d     *datadriven.TestData
	names []string
	opt   map[string]string
}

func (a args) duration(v string) time.Duration {
	d, err := time.ParseDuration(v)
	if err != nil {
		a.d.Fatalf(a.t, "%v", err)
	}
	return d
}

func (a args) int(key string) int {
	v, ok := a.opt[key]
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		a.d.Fatalf(a.t, "%v", err)
	}
	return n
}

func (a args) has(flag string) bool {
	return slices.Contains(a.names, flag)
}

func (s *story) run(a args) string {
	switch a.d.Cmd {
	case "pool":
		return s.pool(a)
	case "arrive":
		return s.arrive(a)
	case "scrape":
		return s.verdicts(s.c.Observe(s.now, s.snapshot(a)))
	case "offer":
		meta, kv := *s.c.snap, s.c.snap.Get(signals.KVUsed, s.now)
		kv.At, kv.Source = s.now, "orca"
		kv.Value, _ = strconv.ParseFloat(a.opt["kv"], 64)
		return s.verdicts(s.c.Observe(s.now, signals.NewSnapshot(meta, append(s.c.snap.All(s.c.snap.At), kv)...)))
	case "progress":
		n, _ := strconv.Atoi(a.names[1])
		s.c.Progress(s.now, ID(a.names[0]), n)
		return s.wakeLine()
	case "settle":
		return s.settle(a)
	case "withdraw":
		return fmt.Sprintf("was held: %v\n", s.c.Withdraw(s.now, ID(a.names[0])))
	case "tick":
		return s.verdicts(s.c.Tick(s.now))
	case "policy":
		p, err := policy.Compile("", []byte(a.d.Input))
		if err != nil {
			return err.Error()
		}
		return s.verdicts(s.c.SetPolicy(s.now, p))
	case "close":
		return s.verdicts(s.c.Close(s.now, reason.Code(a.names[0]), "the engine restarts"))
	case "open":
		s.c.Open(s.now)
		return ""
	case "wake":
		return s.wakeLine()
	case "engine":
		s.c.SetEngine(s.now, a.int("slots"), a.int("cap"), a.int("maxlen"))
		return ""
	case "state":
		return s.state()
	case "dump":
		return s.dump()
	case "errors":
		e := s.c.EstimateError()
		return fmt.Sprintf("pairs %d, p50 %.3f, p90 %.3f, bias %+.3f; correction %.3f, margin %.3f, expected output %d\n",
			e.Pairs, e.P50, e.P90, e.Bias, s.c.est.correction, s.c.est.margin(), s.c.est.expectedOutput())
	}
	a.d.Fatalf(a.t, "unknown command %s", a.d.Cmd)
	return ""
}

func (s *story) pool(a args) string {
	p, err := policy.Compile("", []byte(a.d.Input))
	if err != nil {
		return err.Error()
	}
	cfg := Config{
		Slots: a.int("slots"), KVCapacityTokens: a.int("cap"), MaxContextTokens: a.int("maxlen"), TicketKey: []byte(testKey),
		DefaultOutputTokens: a.int("output"), Shared: a.has("shared"), PoolNonce: uint64(a.int("nonce")),
	}
	if a.has("nokey") {
		cfg.TicketKey = nil
	}
	if v, ok := a.opt["stale"]; ok {
		cfg.SignalStaleAfter = a.duration(v)
	}
	s.c = New(cfg, p)
	return ""
}

func (s *story) facts(a args) dialect.Facts {
	f := dialect.Facts{
		Endpoint: dialect.Endpoint{Kind: dialect.KindChat}, Sequences: max(1, a.int("n")), Prompts: max(1, a.int("prompts")),
		Text:    dialect.TextSize{TokenIDs: a.int("prompt"), Latin: a.int("text")},
		Attempt: a.int("attempt"), BodyHash: uint64(a.int("hash")),
	}
	f.LargestText, f.Truncates = f.Text, a.has("truncates")
	if _, ok := a.opt["limit"]; ok {
		n := a.int("limit")
		f.OutputCap = &n
	}
	switch ticket := a.opt["ticket"]; {
	case ticket == "forged":
		// One bit of a good ticket's signature is wrong.
		good := s.anyTicket()
		f.Ticket = good[:len(good)-1] + string(flip(good[len(good)-1]))
	case ticket != "":
		f.Ticket = ticket
		if v, ok := s.tickets[ticket]; ok {
			f.Ticket = v
		}
	}
	return f
}

// flip changes a character in a bit that is not padding.
func flip(b byte) byte {
	if b == 'A' {
		return 'Q'
	}
	return 'A'
}

func (s *story) anyTicket() string {
	ids := make([]string, 0, len(s.tickets))
	for id := range s.tickets {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return s.tickets[ids[0]]
}

func (s *story) arrive(a args) string {
	var out strings.Builder
	for _, id := range a.names {
		if id == "truncates" || id == "dry" || id == "say" || id == "trace" {
			continue
		}
		arr := Arrival{ID: ID(id), Facts: s.facts(a), Tenant: a.opt["tenant"], DryRun: a.has("dry")}
		if v, ok := a.opt["until"]; ok {
			arr.HoldDeadline = epoch.Add(a.duration(v))
		}
		v := s.c.Arrive(s.now, arr)
		out.WriteString(s.line(v))
		d := v.Explained()
		if a.has("say") {
			fmt.Fprintf(&out, "  says: %s\n", d.Message)
			if d.Counterfactual != "" {
				fmt.Fprintf(&out, "  flip: %s\n", d.Counterfactual)
			}
		}
		if a.has("trace") {
			for _, st := range d.Trace {
				fmt.Fprintf(&out, "  %s %s: %s\n", st.Result, st.Rule, st.Text)
			}
		}
	}
	return out.String()
}

func (s *story) snapshot(a args) *signals.Snapshot {
	s.seq++
	meta := signals.Snapshot{Seq: s.seq, At: s.at, Engine: "vllm", Version: "0.32.0", StaleAfter: 5 * time.Second}
	if n := a.int("life"); n > 0 {
		s.life = uint64(n)
	}
	meta.Life = s.life
	if a.has("failed") {
		meta.Failures, meta.Err = 1, "connection refused"
		if prev := s.c.snap; prev != nil {
			return signals.NewSnapshot(meta, prev.All(prev.At)...)
		}
		return signals.NewSnapshot(meta)
	}
	s.at = s.now
	if v, ok := a.opt["at"]; ok {
		s.at = epoch.Add(a.duration(v))
	}
	meta.At = s.at
	var rs []signals.Signal
	for key, n := range map[string]signals.Name{"running": signals.Running, "waiting": signals.Waiting, "kv": signals.KVUsed, "cap": signals.KVCapacity} {
		if v, ok := a.opt[key]; ok {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil {
				a.d.Fatalf(a.t, "%v", err)
			}
			rs = append(rs, signals.Signal{Name: n, Value: f, At: s.at, State: signals.Live, Source: key})
		}
	}
	return signals.NewSnapshot(meta, rs...)
}

func (s *story) settle(a args) string {
	st := Settlement{
		ID: ID(a.names[0]), Ending: dialect.EndWhole, PromptTokens: a.int("prompt"), CompletionTokens: a.int("completion"), Estimated: a.has("guess"),
	}
	if e, ok := a.opt["ending"]; ok {
		st.Ending = dialect.Ending(e)
	}
	vs, err := s.c.Settle(s.now, st)
	if err != nil {
		if !errors.Is(err, ErrNotInFlight) {
			a.d.Fatalf(a.t, "%v", err)
		}
		return "error: " + err.Error() + "\n"
	}
	return s.verdicts(vs)
}

func (s *story) since(t time.Time) time.Duration { return t.Sub(epoch).Round(time.Millisecond) }

func (s *story) verdicts(vs []Verdict) string {
	var out strings.Builder
	for _, v := range vs {
		out.WriteString(s.line(v))
		if v.Decision.Verdict != policy.Admit {
			fmt.Fprintf(&out, "  says: %s\n", v.Decision.Message)
		}
	}
	return out.String()
}

func (s *story) line(v Verdict) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s %s", v.ID, v.Decision.Verdict, v.Decision.Reason)
	if !v.HoldUntil.IsZero() {
		fmt.Fprintf(&b, " until %s", s.since(v.HoldUntil))
	}
	if v.RetryAfter != 0 {
		fmt.Fprintf(&b, " retry after %s", v.RetryAfter.Round(time.Millisecond))
	}
	if v.Ticket != "" {
		s.tickets[string(v.ID)] = v.Ticket
		b.WriteString(" with a ticket")
	}
	if v.HeldFor != 0 {
		fmt.Fprintf(&b, " held %s", v.HeldFor.Round(time.Millisecond))
	}
	if v.Decision.Verdict == policy.Admit {
		fmt.Fprintf(&b, " (%d+%d tokens)", v.PromptTokens, v.OutputTokens)
	}
	b.WriteString("\n")
	return b.String()
}

func (s *story) wakeLine() string {
	if at := s.c.NextWake(); !at.IsZero() {
		return fmt.Sprintf("wake at %s\n", s.since(at))
	}
	return ""
}

func (s *story) state() string {
	st := s.c.State(s.now)
	show := func(sig signals.Signal) string {
		if !sig.Present() {
			return string(sig.Name) + " missing"
		}
		text := fmt.Sprintf("%s %.4g %s", sig.Name, sig.Value, sig.State)
		if sig.State != signals.Live {
			text += " (" + sig.Why + ")"
		}
		return text
	}
	return fmt.Sprintf("%s\n%s\n%s\nin flight %d, unseen %d, unstarted %d, promised %d, reserved %d, held %d, slots %d\n",
		show(st.Running), show(st.Waiting), show(st.KVUsed), st.InFlight, st.Unseen, st.Unstarted, st.Promised, st.ReservedTokens, st.Held, st.Slots)
}

func (s *story) dump() string {
	g := s.c.Dump(s.now, PerRequest)
	var b strings.Builder
	fmt.Fprintf(&b, "arrivals %d = admitted %d + deferred %d + rejected %d + withdrawn %d + held %d; settled %d\n",
		g.Arrivals, g.Admitted, g.Deferred, g.Rejected, g.Withdrawn, g.Held, g.Settled)
	fmt.Fprintf(&b, "in flight %d, reserved %d tokens, slots %d, %.3g endings/s\n", g.InFlight, g.ReservedTokens, g.Slots, g.ReleaseRate)
	fmt.Fprintf(&b, "tickets: %d promised, %d honoured, %d early, %d ignored\n", g.Promised, g.TicketsHonoured, g.TicketsEarly, g.TicketsIgnored)
	for _, r := range g.Requests {
		fmt.Fprintf(&b, "  %s in flight: %d prompt, %d reserved, %d generated\n", r.ID, r.PromptTokens, r.ReservedTokens, r.Generated)
	}
	for _, h := range g.HeldRequests {
		fmt.Fprintf(&b, "  %s held since %s until %s, returned %v: %s\n", h.ID, s.since(h.Since), s.since(h.Until), h.Returned, h.Reason)
	}
	return b.String()
}

// checkBooks holds a controller's sums to what they are sums of.
func checkBooks(t *testing.T, c *Controller) {
	t.Helper()
	seqs, reserved, unstarted := 0, 0, 0
	tenants := map[string]int{}
	for id, f := range c.books.flights {
		seqs += f.est.seqs
		reserved += f.reserved
		unstarted += f.est.seqs
		if !f.firstAt.IsZero() {
			unstarted--
		}
		tenants[f.tenant]++
		if c.hold.items[id] != nil {
			t.Errorf("%s is both in flight and held", id)
		}
	}
	if r := c.books.run; r.valid && r.sum != c.books.tally(r.at, r.prevAt) {
		t.Errorf("running tally %+v, counted anew %+v", r.sum, c.books.tally(r.at, r.prevAt))
	}
	if seqs != c.books.seqs || reserved != c.books.reserved || unstarted != c.books.unstarted {
		t.Errorf("sums %d seqs %d reserved %d unstarted, books say %d %d %d", seqs, reserved, unstarted, c.books.seqs, c.books.reserved, c.books.unstarted)
	}
	for name, n := range tenants {
		if c.books.tenants[name] != n {
			t.Errorf("tenant %q has %d, books say %d", name, n, c.books.tenants[name])
		}
	}
	if len(tenants) != len(c.books.tenants) {
		t.Errorf("%d tenants, books know %d", len(tenants), len(c.books.tenants))
	}
	n := c.counts
	if held := uint64(len(c.hold.items)); n.arrivals != n.admitted+n.deferred+n.rejected+n.withdrawn+held {
		t.Errorf("%d arrivals != %+v + %d held", n.arrivals, n, held)
	}
	if n.admitted != n.settled+uint64(len(c.books.flights)) {
		t.Errorf("admitted %d != settled %d + in flight %d", n.admitted, n.settled, len(c.books.flights))
	}
	if len(c.hold.items) != len(c.hold.returned)+len(c.hold.fresh) {
		t.Errorf("hold: %d items in %d + %d places", len(c.hold.items), len(c.hold.returned), len(c.hold.fresh))
	}
	heldSeqs := 0
	for _, h := range c.hold.items {
		heldSeqs += h.est.seqs
	}
	if heldSeqs != c.hold.seqs {
		t.Errorf("held sequences %d, books say %d", heldSeqs, c.hold.seqs)
	}
	if len(c.tickets.promises) != len(c.tickets.bySeq) || len(c.tickets.promises) > c.cfg.MaxPromises {
		t.Errorf("promises: %d in order, %d by number", len(c.tickets.promises), len(c.tickets.bySeq))
	}
	if len(c.books.ended) > maxEnded {
		t.Errorf("%d endings remembered", len(c.books.ended))
	}
}
