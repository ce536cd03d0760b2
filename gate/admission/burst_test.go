package admission

import (
	"fmt"
	"testing"
	"time"

	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/signals"
)

// toyEngine has slots and a queue, first come, first served. It knows nothing of the controller.
type toyEngine struct {
	slots          int
	queue, running []*toyJob
	// Gauges are refreshed only every so often, as an engine's are only with its steps.
	refresh                    time.Duration
	refreshed                  time.Time
	runningGauge, waitingGauge int
}

type toyJob struct {
	id      ID
	work    time.Duration
	started time.Time
	told    bool
}

const toyPrefill = 60 * time.Millisecond

func (e *toyEngine) submit(id ID, work time.Duration) {
	e.queue = append(e.queue, &toyJob{id: id, work: work})
}

// step starts what has a slot, and returns whose first token came and who ended.
func (e *toyEngine) step(now time.Time) (first, done []ID) {
	keep := e.running[:0]
	for _, j := range e.running {
		age := now.Sub(j.started)
		if !j.told && age >= toyPrefill {
			j.told = true
			first = append(first, j.id)
		}
		if age >= j.work {
			done = append(done, j.id)
			continue
		}
		keep = append(keep, j)
	}
	e.running = keep
	e.start(now)
	if !now.Before(e.refreshed.Add(e.refresh)) {
		e.refreshed, e.runningGauge, e.waitingGauge = now, len(e.running), len(e.queue)
	}
	return first, done
}

func (e *toyEngine) start(now time.Time) {
	for len(e.queue) > 0 && len(e.running) < e.slots {
		j := e.queue[0]
		e.queue = e.queue[1:]
		j.started = now
		e.running = append(e.running, j)
	}
}

// burst is 40 callers in two seconds against a toy engine with four slots, all of them obedient: who is deferred comes
// back at the stated time with the ticket.
type burst struct {
	t       *testing.T
	c       *Controller
	e       toyEngine
	now     time.Time
	seq     uint64
	shown   []*signals.Snapshot
	returns map[time.Time][]Arrival
	served  int
	refused int
	// again counts those who came back at their time and were refused again.
	again int
	worst int
	// idleMS counts slot-milliseconds that were free while somebody was held.
	idleMS int
}

const (
	tick     = 10 * time.Millisecond
	callers  = 40
	toySlots = 4
)

func (b *burst) work(id ID) time.Duration {
	// 300 to 1100 ms, by the caller's number.
	var n int
	if _, err := fmt.Sscanf(string(id), "r%d", &n); err != nil {
		b.t.Fatal(err)
	}
	return 300*time.Millisecond + time.Duration(n*7%9)*100*time.Millisecond
}

func (b *burst) answer(v Verdict, a Arrival) {
	switch v.Decision.Verdict {
	case policy.Admit:
		b.e.submit(v.ID, b.work(v.ID))
		b.worst = max(b.worst, len(b.e.queue)-max(0, b.e.slots-len(b.e.running)))
	case policy.Defer:
		b.refused++
		if a.Facts.Ticket != "" {
			b.again++
		}
		back := a
		back.Facts.Ticket = v.Ticket
		back.Facts.Attempt++
		at := b.now.Add(time.Duration(RetrySeconds(v.RetryAfter)) * time.Second)
		b.returns[at] = append(b.returns[at], back)
	case policy.Reject:
		b.t.Errorf("%s rejected: %s", v.ID, v.Decision.Message)
	}
}

func (b *burst) answers(vs []Verdict) {
	for _, v := range vs {
		b.answer(v, Arrival{ID: v.ID, Facts: toyFacts()})
	}
}

func toyFacts() dialect.Facts {
	return dialect.Facts{Sequences: 1, Prompts: 1, Text: dialect.TextSize{TokenIDs: 100}, LargestText: dialect.TextSize{TokenIDs: 100}}
}

// scrape takes the engine's gauges as they are now; the controller sees them later.
func (b *burst) scrape() {
	b.seq++
	meta := signals.Snapshot{Seq: b.seq, At: b.now, Life: 1, StaleAfter: 5 * time.Second}
	b.shown = append(b.shown, signals.NewSnapshot(meta,
		signals.Signal{Name: signals.Running, Value: float64(b.e.runningGauge), At: b.now, State: signals.Live},
		signals.Signal{Name: signals.Waiting, Value: float64(b.e.waitingGauge), At: b.now, State: signals.Live},
		signals.Signal{Name: signals.KVUsed, Value: float64(b.e.runningGauge) * 0.02, At: b.now, State: signals.Live},
	))
}

func (b *burst) run(interval, lag time.Duration) {
	start := b.now
	for ; b.served < callers && b.now.Sub(start) < 2*time.Minute; b.now = b.now.Add(tick) {
		since := b.now.Sub(start)
		first, done := b.e.step(b.now)
		for _, id := range first {
			b.c.Progress(b.now, id, 1)
		}
		for _, id := range done {
			b.served++
			vs, err := b.c.Settle(b.now, Settlement{ID: id, Ending: dialect.EndWhole, PromptTokens: 100, CompletionTokens: 20})
			if err != nil {
				b.t.Fatal(err)
			}
			b.answers(vs)
		}
		if since%interval == 0 {
			b.scrape()
		}
		for len(b.shown) > 0 && !b.now.Before(b.shown[0].At.Add(lag)) {
			b.answers(b.c.Observe(b.now, b.shown[0]))
			b.shown = b.shown[1:]
		}
		if wake := b.c.NextWake(); !wake.IsZero() && !wake.After(b.now) {
			b.answers(b.c.Tick(b.now))
		}
		for _, a := range b.returns[b.now] {
			b.answer(b.c.Arrive(b.now, a), a)
		}
		delete(b.returns, b.now)
		if n := int(since / (50 * time.Millisecond)); since%(50*time.Millisecond) == 0 && n < callers {
			a := Arrival{ID: ID(fmt.Sprintf("r%d", n)), Facts: toyFacts()}
			b.answer(b.c.Arrive(b.now, a), a)
		}
		if b.c.hold.len() > 0 {
			b.idleMS += max(0, b.e.slots-len(b.e.running)-len(b.e.queue)) * int(tick/time.Millisecond)
		}
	}
	checkBooks(b.t, b.c)
}

// TestBurstBetweenScrapesIsSeen is what the controller is for: between two scrapes arrivals see each other. With
// max_waiting 2 never more than two wait inside the engine, whether the scrape comes every 250 ms or
// every 3 s, at once or late, from fresh gauges or old ones, and whether the slots are told or have to be learnt; and
// every obedient caller is served in the end.
func TestBurstBetweenScrapesIsSeen(t *testing.T) {
	p := compile(t, "policy: queue-depth\nparams: {max_waiting: 2}\nhold: {max_wait: 1s, max_requests: 8}\n")
	for _, told := range []int{toySlots, 0} {
		for _, interval := range []time.Duration{250 * time.Millisecond, time.Second, 3 * time.Second} {
			for _, lag := range []time.Duration{0, 40 * time.Millisecond, 200 * time.Millisecond} {
				for _, refresh := range []time.Duration{0, 130 * time.Millisecond} {
					t.Run(fmt.Sprintf("slots %d, every %s, late by %s, gauges every %s", told, interval, lag, refresh), func(t *testing.T) {
						b := &burst{
							t: t, c: New(Config{Slots: told, TicketKey: []byte(testKey)}, p), e: toyEngine{slots: toySlots, refresh: refresh},
							now: epoch, returns: map[time.Time][]Arrival{},
						}
						b.run(interval, lag)
						b.check()
					})
				}
			}
		}
	}
}

func (b *burst) check() {
	d := b.c.Dump(b.now, Totals)
	b.t.Logf("served %d in %s, %d refusals, %d of them again, worst queue %d, %d slot-ms idle while held, tickets %d honoured %d early %d ignored",
		b.served, b.now.Sub(epoch), b.refused, b.again, b.worst, b.idleMS, d.TicketsHonoured, d.TicketsEarly, d.TicketsIgnored)
	if b.worst > 2 {
		b.t.Errorf("%d waited inside the engine; the policy allows 2", b.worst)
	}
	if b.served != callers {
		b.t.Errorf("%d of %d served", b.served, callers)
	}
	if first := b.refused - b.again; 5*b.again > first {
		b.t.Errorf("%d of %d obedient callers were refused again; at least 80 %% must be admitted when they return", b.again, first)
	}
	if d.TicketsHonoured == 0 {
		b.t.Error("no ticket was honoured")
	}
}
