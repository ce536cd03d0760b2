package admission

import (
	"time"

	"admitd/gate/dialect"
)

// maxEnded bounds the endings remembered since the last scrape. Beyond it the oldest are forgotten, which only
// makes the fused view more cautious.
const maxEnded = 4096

// flight is one request at the engine.
type flight struct {
	id     ID
	order  uint64
	tenant string
	est    estimate
	sentAt time.Time
	// firstAt is when the first token was seen; zero before.
	firstAt time.Time
	// generated is output tokens so far over all sequences; marked the same as it was at the last scrape.
	generated int
	marked    int
	reserved  int
}

// started is the number of its sequences that are known to have run by the time t. A first token proves one: which of
// them it belongs to is not told, and the others may still wait for a slot.
func (f *flight) started(t time.Time) int { return startedBy(f.firstAt, t) }

func startedBy(firstAt, t time.Time) int {
	if firstAt.IsZero() || firstAt.After(t) {
		return 0
	}
	return 1
}

// unproven is the number of its sequences of which no sign was seen yet.
func (f *flight) unproven() int {
	if f.firstAt.IsZero() {
		return f.est.seqs
	}
	return f.est.seqs - 1
}

// ended is a request that left, kept until a scrape has surely noticed.
type ended struct {
	sentAt, firstAt, endedAt time.Time
	seqs                     int
	// tokens held at the last scrape; ran is true when it had surely been running.
	tokens int
	ran    bool
}

// ledger is what the gate knows to be at the engine. Sums are kept as requests come and go and checked by tests
// against the flights themselves.
type ledger struct {
	flights  map[ID]*flight
	ended    []ended
	order    uint64
	seqs     int
	reserved int
	// unstarted is the part of seqs that no token has proved to run.
	unstarted int
	lastEnd   time.Time
	tenants   map[string]int
}

func newLedger() ledger {
	return ledger{flights: map[ID]*flight{}, tenants: map[string]int{}}
}

func (l *ledger) add(now time.Time, a Arrival, e estimate) *flight {
	l.order++
	f := &flight{id: a.ID, order: l.order, tenant: a.Tenant, est: e, sentAt: now, reserved: e.reserved()}
	l.flights[a.ID] = f
	l.seqs += e.seqs
	l.unstarted += e.seqs
	l.reserved += f.reserved
	l.tenants[a.Tenant]++
	return f
}

// progress notes generated tokens and reports whether the first one was among them. A request that generates more
// than was set aside takes what it really holds.
func (l *ledger) progress(now time.Time, f *flight, generated int) (first bool) {
	if generated > f.generated {
		f.generated = generated
	}
	if held := f.est.prompt + f.generated; held > f.reserved {
		l.reserved += held - f.reserved
		f.reserved = held
	}
	if f.generated > 0 && f.firstAt.IsZero() {
		f.firstAt = now
		l.unstarted--
		return true
	}
	return false
}

func (l *ledger) remove(now time.Time, f *flight, ran bool) {
	delete(l.flights, f.id)
	l.seqs -= f.est.seqs
	l.reserved -= f.reserved
	l.unstarted -= f.unproven()
	if l.tenants[f.tenant]--; l.tenants[f.tenant] <= 0 {
		delete(l.tenants, f.tenant)
	}
	l.lastEnd = now
	if len(l.ended) >= maxEnded {
		l.ended = append(l.ended[:0], l.ended[1:]...)
	}
	l.ended = append(l.ended, ended{
		sentAt: f.sentAt, firstAt: f.firstAt, endedAt: now, seqs: f.est.seqs,
		tokens: f.est.prompt + f.marked, ran: ran,
	})
}

// observed marks what has been generated up to a scrape, and forgets endings that the scrape has surely noticed.
func (l *ledger) observed(at time.Time) {
	for _, f := range l.flights {
		f.marked = f.generated
	}
	keep := l.ended[:0]
	for _, e := range l.ended {
		if e.endedAt.After(at.Add(-endingGrace)) {
			keep = append(keep, e)
		}
	}
	l.ended = keep
}

// ran reports whether an ending proves that the engine had been running the request. Its sequences go together: those
// that ran leave a slot each, those that waited leave the queue.
func (f *flight) ran(s Settlement) bool {
	return s.Ending == dialect.EndWhole || s.Ending == dialect.EndAborted || s.CompletionTokens > 0 || !f.firstAt.IsZero()
}
