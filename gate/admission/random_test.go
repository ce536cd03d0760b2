package admission

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
)

// events plays random events, chosen by the bytes of a script, against a controller and keeps its own, simpler books of
// what became of every arrival.
type events struct {
	t       testing.TB
	c       *Controller
	now     time.Time
	script  []byte
	at      int
	next    int
	seq     uint64
	fate    map[ID]policy.Verdict
	settled map[ID]bool
	ids     []ID
	tickets []string
	gone    int
	log     []Verdict
}

func (e *events) byte() int {
	if e.at >= len(e.script) {
		return 0
	}
	e.at++
	return int(e.script[e.at-1])
}

var randomPolicies = []string{
	"policy: queue-depth\nparams: {max_waiting: 1}\nhold: {max_wait: 700ms, max_requests: 5}\n",
	"policy: queue-depth\nparams: {max_waiting: 0}\nhold: {max_wait: 0s}\non_stale: refuse\n",
	"policy: dual-gate\nparams: {max_waiting: 3, max_kv_used: 0.8}\nhold: {max_wait: 3s, max_requests: 50}\non_stale: admit\n",
	"policy: concurrency\nparams: {max_in_flight: 3}\nhold: {max_wait: 1s, max_requests: 2}\nretry_after: {min: 2s, max: 5s}\n",
	"policy: saturation\n",
	"policy: kv-threshold\n",
	"policy: admit-all\n",
}

func (e *events) note(v Verdict) {
	e.log = append(e.log, v)
	if was, ok := e.fate[v.ID]; ok && was != policy.Hold {
		e.t.Fatalf("%s was %s and is decided again: %s", v.ID, was, v.Decision.Verdict)
	}
	e.fate[v.ID] = v.Decision.Verdict
	if v.Ticket != "" {
		e.tickets = append(e.tickets, v.Ticket)
	}
	switch v.Decision.Verdict {
	case policy.Admit:
		if d := v.Explained(); d.Verdict != policy.Admit || d.Reason != reason.OK {
			e.t.Fatalf("admitted, and explained as %s for %s", d.Verdict, d.Reason)
		}
		if v.Decision.Reason != reason.OK {
			e.t.Fatalf("admitted for %s", v.Decision.Reason)
		}
	case policy.Defer:
		if v.RetryAfter < time.Second || v.RetryAfter > time.Minute {
			e.t.Fatalf("deferred for %s", v.RetryAfter)
		}
	case policy.Hold:
		if !v.HoldUntil.After(e.now) {
			e.t.Fatalf("held until %s, now is %s", v.HoldUntil, e.now)
		}
	}
	if _, ok := reason.Lookup(v.Decision.Reason); !ok || v.Explained().Message == "" || v.PolicyRev == "" {
		e.t.Fatalf("verdict %+v", v)
	}
}

func (e *events) notes(vs []Verdict) {
	for _, v := range vs {
		if e.fate[v.ID] != policy.Hold {
			e.t.Fatalf("%s is decided but was not held", v.ID)
		}
		e.note(v)
	}
}

func (e *events) any() ID {
	if len(e.ids) == 0 {
		return "nobody"
	}
	return e.ids[(e.byte()<<8|e.byte())%len(e.ids)]
}

func (e *events) arrive() {
	id := ID(fmt.Sprint("r", e.next))
	e.next++
	b := e.byte()
	a := Arrival{ID: id, Tenant: fmt.Sprint("t", b%3), Facts: dialect.Facts{
		Sequences: 1 + b%5/4, Prompts: 1, Attempt: b % 3, BodyHash: uint64(b % 7),
		Text: dialect.TextSize{TokenIDs: b * 3, Latin: e.byte() * 5},
	}}
	if b%4 == 0 && len(e.tickets) > 0 {
		a.Facts.Ticket = e.tickets[e.byte()%len(e.tickets)]
	}
	if b%11 == 0 {
		a.HoldDeadline = e.now.Add(time.Duration(b) * time.Millisecond)
	}
	dry := a
	dry.DryRun = true
	before := e.c.Dump(e.now, PerRequest)
	would := e.c.Arrive(e.now, dry)
	if after := e.c.Dump(e.now, PerRequest); !reflect.DeepEqual(before, after) {
		e.t.Fatalf("a dry run changed the books:\n%s", cmp.Diff(before, after))
	}
	idle := e.c.idle() && !e.c.closed
	v := e.c.Arrive(e.now, a)
	if retry := e.c.policy.Spec.Retry; idle && (v.Decision.Reason == reason.Saturated ||
		v.RetryAfter > retry.Min+time.Duration(before.Promised)*leastSpacing) {
		e.t.Fatalf("on an idle engine, with %d promised: %s %s, retry after %s", before.Promised, v.Decision.Verdict, v.Decision.Reason, v.RetryAfter)
	}
	if would.Decision.Verdict != v.Decision.Verdict || would.Decision.Reason != v.Decision.Reason || would.RetryAfter != v.RetryAfter {
		e.t.Fatalf("the dry run said %s %s %s, then came %s %s %s", would.Decision.Verdict, would.Decision.Reason, would.RetryAfter,
			v.Decision.Verdict, v.Decision.Reason, v.RetryAfter)
	}
	e.ids = append(e.ids, id)
	e.note(v)
}

func (e *events) settle(id ID) {
	inFlight := e.fate[id] == policy.Admit && !e.settled[id]
	endings := []dialect.Ending{dialect.EndWhole, dialect.EndCaller, dialect.EndCut, dialect.EndRefused, dialect.EndInvalid}
	vs, err := e.c.Settle(e.now, Settlement{ID: id, Ending: endings[e.byte()%len(endings)], PromptTokens: e.byte() * 3, CompletionTokens: e.byte(), Estimated: e.byte()%3 == 0})
	if (err == nil) != inFlight {
		e.t.Fatalf("settling %s: %v, in flight %v", id, err, inFlight)
	}
	if inFlight {
		e.settled[id] = true
	}
	e.notes(vs)
}

func (e *events) scrape() {
	e.seq++
	at := e.now.Add(-time.Duration(e.byte()) * time.Millisecond)
	meta := signals.Snapshot{Seq: e.seq, At: at, Life: 1 + e.seq/40, StaleAfter: 2 * time.Second}
	states := []signals.State{signals.Live, signals.Live, signals.Live, signals.Flat, signals.Missing}
	sig := func(n signals.Name, v float64) signals.Signal {
		return signals.Signal{Name: n, Value: v, At: at, State: states[e.byte()%len(states)]}
	}
	e.notes(e.c.Observe(e.now, signals.NewSnapshot(meta,
		sig(signals.Running, float64(e.byte()%6)), sig(signals.Waiting, float64(e.byte()%4)),
		sig(signals.KVUsed, float64(e.byte()%101)/100), sig(signals.KVCapacity, float64(e.byte())*40))))
}

func (e *events) step() {
	e.now = e.now.Add(time.Duration(e.byte()) * time.Millisecond)
	switch e.byte() % 16 {
	case 0, 1, 2, 3, 4:
		e.arrive()
	case 5, 6, 7:
		e.settle(e.any())
	case 8:
		id := e.any()
		held := e.fate[id] == policy.Hold
		if e.c.Withdraw(e.now, id) != held {
			e.t.Fatalf("withdrawing %s, held %v", id, held)
		}
		if held {
			e.fate[id] = "withdrawn"
			e.gone++
		}
	case 9, 10:
		e.c.Progress(e.now, e.any(), e.byte())
	case 11, 12:
		e.scrape()
	case 13:
		e.notes(e.c.Tick(e.now))
	case 14:
		if b := e.byte(); b < 60 {
			e.notes(e.c.SetPolicy(e.now, compile(e.t, randomPolicies[b%len(randomPolicies)])))
		} else if b < 80 {
			e.c.SetEngine(e.now, b%5, b*10, 0)
		}
	case 15:
		if e.byte()%2 == 0 {
			e.notes(e.c.Close(e.now, reason.EngineDown, "down"))
		} else {
			e.c.Open(e.now)
		}
	}
	if wake := e.c.NextWake(); wake.IsZero() != (len(e.c.hold.items) == 0) {
		e.t.Fatalf("wake at %v with %d held", wake, len(e.c.hold.items))
	}
}

// play runs a whole script, then settles everything, and checks that nothing is left and everybody has one fate.
func play(t *testing.T, script []byte) *events {
	t.Helper()
	e := &events{
		t: t, now: epoch, script: script, fate: map[ID]policy.Verdict{}, settled: map[ID]bool{},
		c: New(Config{Slots: 2, KVCapacityTokens: 4000, MaxContextTokens: 1500, TicketKey: []byte(testKey), MaxPromises: 20}, compile(t, randomPolicies[0])),
	}
	for e.at < len(e.script) {
		e.step()
	}
	checkBooks(t, e.c)
	e.notes(e.c.Close(e.now, reason.Draining, "end"))
	for _, id := range e.ids {
		if e.fate[id] == policy.Admit && !e.settled[id] {
			e.settle(id)
		}
	}
	checkBooks(t, e.c)
	d := e.c.Dump(e.now, PerRequest)
	if d.InFlight != 0 || d.ReservedTokens != 0 || d.Held != 0 || len(d.Requests) != 0 || len(d.ByTenant) != 0 || e.c.books.unstarted != 0 {
		t.Fatalf("all is settled, yet %+v", d)
	}
	fates := map[policy.Verdict]uint64{}
	for _, f := range e.fate {
		fates[f]++
	}
	if fates[policy.Admit] != d.Admitted || fates[policy.Defer] != d.Deferred || fates[policy.Reject] != d.Rejected ||
		fates["withdrawn"] != d.Withdrawn || fates[policy.Hold] != 0 || d.Arrivals != uint64(len(e.ids)) {
		t.Fatalf("fates %v, books %+v", fates, d)
	}
	return e
}

// TestBooksStayExactAndDecisionsRepeat: after any sequence of events the sums are exact, every arrival has one fate,
// a dry run changes nothing and foretells the verdict, and the same events give the same verdicts to the last byte.
func TestBooksStayExactAndDecisionsRepeat(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		script := make([]byte, 3000)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		a, b := play(t, script), play(t, script)
		if !reflect.DeepEqual(a.log, b.log) {
			t.Fatalf("seed %d: the same events gave other verdicts:\n%s", seed, cmp.Diff(a.log, b.log))
		}
	}
}

// FuzzEvents plays scripts that are short enough for hundreds a second: the checks behind each step grow with what is open.
func FuzzEvents(f *testing.F) {
	f.Add([]byte{0, 0, 1, 2, 0, 5, 0, 0, 0, 0})
	f.Add([]byte("a burst, a scrape, an ending, and a policy change"))
	f.Fuzz(func(t *testing.T, script []byte) {
		play(t, script[:min(len(script), 1000)])
	})
}

// BenchmarkArrive judges one arrival with 256 in flight, a scrape, and 1000 held.
func BenchmarkArrive(b *testing.B) {
	c := New(Config{Slots: 256, KVCapacityTokens: 10_000_000, TicketKey: []byte(testKey)},
		compile(b, "policy: dual-gate\nparams: {max_waiting: 0}\nhold: {max_wait: 10m, max_requests: 1000}\n"))
	for i := range 256 {
		c.Arrive(epoch, arrival(fmt.Sprint("f", i)))
	}
	now := epoch.Add(time.Second)
	for i := range 1000 {
		c.Arrive(now, arrival(fmt.Sprint("h", i)))
	}
	live := func(n signals.Name, v float64) signals.Signal {
		return signals.Signal{Name: n, Value: v, At: now, State: signals.Live}
	}
	c.Observe(now, signals.NewSnapshot(signals.Snapshot{Seq: 1, At: now, Life: 1, StaleAfter: time.Hour},
		live(signals.Running, 256), live(signals.Waiting, 0), live(signals.KVUsed, 0.5)))
	if d := c.Dump(now, Totals); d.Held != 1000 || d.InFlight != 256 {
		b.Fatalf("%+v", d)
	}
	a := arrival("x")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Arrive(now.Add(time.Duration(i)*time.Microsecond), a)
	}
}

// BenchmarkSettle ends one and lets the head of 1000 held in, with 256 in flight.
func BenchmarkSettle(b *testing.B) {
	c := New(Config{Slots: 256, TicketKey: []byte(testKey)},
		compile(b, "policy: queue-depth\nparams: {max_waiting: 0}\nhold: {max_wait: 10m, max_requests: 1000}\n"))
	next := 0
	fill := func(now time.Time) {
		for len(c.books.flights) < 256 || len(c.hold.items) < 1000 {
			c.Arrive(now, arrival(strconv.Itoa(next)))
			next++
		}
	}
	fill(epoch)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now := epoch.Add(time.Duration(i) * time.Microsecond)
		vs, err := c.Settle(now, Settlement{ID: ID(strconv.Itoa(i)), Ending: dialect.EndWhole})
		if err != nil || len(vs) != 1 {
			b.Fatalf("%v, %d verdicts", err, len(vs))
		}
		fill(now)
	}
}
