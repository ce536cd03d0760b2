package admission

import (
	"slices"
	"time"

	"admitd/gate/dialect"
)

// maxEnded bounds the endings remembered since the last scrape. Beyond it the oldest are forgotten, which only
// makes the fused view more cautious.
const maxEnded = 4096

// maxSpare bounds the flights kept for the next requests.
const maxSpare = 1024

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
	// lingers is true when the engine did not end it itself and may not have noticed yet.
	lingers bool
}

// ledger is what the gate knows to be at the engine. Sums are kept as requests come and go and checked by tests
// against the flights themselves.
type ledger struct {
	flights map[ID]*flight
	// ended are the last endings; once there are maxEnded of them, those from oldest on come before those before it.
	ended    []ended
	oldest   int
	run      running
	spare    []*flight
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
	f := l.blank()
	*f = flight{id: a.ID, order: l.order, tenant: a.Tenant, est: e, sentAt: now, reserved: e.reserved()}
	l.flights[a.ID] = f
	l.run.with(f)
	l.seqs += e.seqs
	l.unstarted += e.seqs
	l.reserved += f.reserved
	l.tenants[a.Tenant]++
	return f
}

// blank is a flight to be filled in: one that has ended, where there is one.
func (l *ledger) blank() *flight {
	n := len(l.spare)
	if n == 0 {
		return &flight{}
	}
	f := l.spare[n-1]
	l.spare = l.spare[:n-1]
	return f
}

// progress notes generated tokens and reports whether the first one was among them. A request that generates more
// than was set aside takes what it really holds.
func (l *ledger) progress(now time.Time, f *flight, generated int) (first bool) {
	l.run.without(f)
	defer l.run.with(f)
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

// remove takes a flight out; it must not be used any more.
func (l *ledger) remove(now time.Time, f *flight, ran, lingers bool) {
	delete(l.flights, f.id)
	l.run.without(f)
	l.seqs -= f.est.seqs
	l.reserved -= f.reserved
	l.unstarted -= f.unproven()
	if l.tenants[f.tenant]--; l.tenants[f.tenant] <= 0 {
		delete(l.tenants, f.tenant)
	}
	l.lastEnd = now
	l.remember(ended{
		sentAt: f.sentAt, firstAt: f.firstAt, endedAt: now, seqs: f.est.seqs,
		tokens: f.est.prompt + f.marked, ran: ran, lingers: lingers,
	})
	if len(l.spare) < maxSpare {
		l.spare = append(l.spare, f)
	}
}

func (l *ledger) remember(e ended) {
	l.run.ended(&e, 1)
	if len(l.ended) < maxEnded {
		l.ended = append(l.ended, e)
		return
	}
	l.run.ended(&l.ended[l.oldest], -1)
	l.ended[l.oldest] = e
	l.oldest = (l.oldest + 1) % maxEnded
}

// observed marks what has been generated up to a scrape, and forgets endings that the scrape has surely noticed.
func (l *ledger) observed(at time.Time) {
	for _, f := range l.flights {
		f.marked = f.generated
	}
	forget := func(e ended) bool { return !e.endedAt.After(at.Add(-endingGrace)) }
	if l.oldest > 0 {
		l.ended = slices.Concat(l.ended[l.oldest:], l.ended[:l.oldest])
		l.oldest = 0
	}
	l.ended = slices.DeleteFunc(l.ended, forget)
	l.run.valid = false
}

// ran reports whether an ending proves that the engine had been running the request. Its sequences go together: those
// that ran leave a slot each, those that waited leave the queue.
func (f *flight) ran(s Settlement) bool {
	return s.Ending == dialect.EndWhole || s.Ending == dialect.EndAborted || s.CompletionTokens > 0 || !f.firstAt.IsZero()
}

// lingers reports whether the engine may still have a request that ended so: it was not the engine that ended it.
func lingers(e dialect.Ending) bool {
	switch e {
	case dialect.EndWhole, dialect.EndAborted, dialect.EndRefused, dialect.EndInvalid:
		return false
	case dialect.EndCaller, dialect.EndCut, dialect.EndError:
	}
	return true
}

// lingering is how many sequences have left so short a time ago that the engine may still have them, how many of these had
// not been running, and when the first of them will have gone.
func (l *ledger) lingering(now time.Time) (all, waiting int, until time.Time) {
	for i := range l.ended {
		// From the latest back.
		e := &l.ended[(l.oldest+len(l.ended)-1-i)%len(l.ended)]
		if now.Sub(e.endedAt) >= endingGrace {
			break
		}
		if !e.lingers {
			continue
		}
		all, until = all+e.seqs, e.endedAt.Add(endingGrace)
		if !e.ran {
			waiting += e.seqs
		}
	}
	return all, waiting, until
}
