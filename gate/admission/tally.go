package admission

import "time"

// tally is what the ledger says about the instant of the last scrape and about the time since. Counts are
// sequences, tokens are KV tokens.
type tally struct {
	// At the scrape's own time: in flight; of these not proved to run by a token; of these sent before the previous
	// scrape or streaming (mustSee: no honest scrape misses them); proved to run; tokens of all in flight.
	atScrape, newAtScrape, mustSee, streaming, tokensAtScrape int
	// Since: sent and still in flight, not proved and proved to run, and their tokens.
	unseenNew, unseenStarted, unseenTokens int
	// Seen by the scrape and still not proved to run, with their prompt tokens; tokens grown since.
	stillNew, stillNewTokens, grown int
	// Seen by the scrape and ended since: all, those that had been running, and their tokens.
	gone, goneRan, goneTokens int
	// Ended shortly before the scrape, so that it may still show them.
	fading int
}

// add adds another tally; sign -1 takes it away.
func (t *tally) add(o *tally, sign int) {
	t.atScrape += sign * o.atScrape
	t.newAtScrape += sign * o.newAtScrape
	t.mustSee += sign * o.mustSee
	t.streaming += sign * o.streaming
	t.tokensAtScrape += sign * o.tokensAtScrape
	t.unseenNew += sign * o.unseenNew
	t.unseenStarted += sign * o.unseenStarted
	t.unseenTokens += sign * o.unseenTokens
	t.stillNew += sign * o.stillNew
	t.stillNewTokens += sign * o.stillNewTokens
	t.grown += sign * o.grown
	t.gone += sign * o.gone
	t.goneRan += sign * o.goneRan
	t.goneTokens += sign * o.goneTokens
	t.fading += sign * o.fading
}

func (t *tally) seen(seqs, tokens, started int, old bool) {
	t.atScrape += seqs
	t.tokensAtScrape += tokens
	t.streaming += started
	t.newAtScrape += seqs - started
	if started > 0 || old {
		t.mustSee += seqs
	}
}

// tally is the flight's part in the ledger's.
func (f *flight) tally(at, prevAt time.Time) (t tally) {
	if !f.sentAt.Before(at) {
		t.unseenTokens = f.est.prompt + f.generated
		t.unseenNew = f.unproven()
		t.unseenStarted = f.est.seqs - f.unproven()
		return t
	}
	t.seen(f.est.seqs, f.est.prompt+f.marked, f.started(at), f.sentAt.Before(prevAt))
	t.grown = f.generated - f.marked
	t.stillNew = f.unproven()
	t.stillNewTokens = f.est.prompt * f.unproven() / f.est.seqs
	return t
}

// tally is the ending's part in the ledger's.
func (e *ended) tally(at, prevAt time.Time) (t tally) {
	switch {
	case !e.endedAt.After(at):
		if e.endedAt.After(at.Add(-endingGrace)) {
			t.fading = e.seqs
		}
	case e.sentAt.Before(at):
		t.seen(e.seqs, e.tokens, startedBy(e.firstAt, at), e.sentAt.Before(prevAt))
		t.gone = e.seqs
		if e.ran {
			t.goneRan, t.goneTokens = e.seqs, e.tokens
		}
	}
	return t
}

// tally counts everything.
func (l *ledger) tally(at, prevAt time.Time) (t tally) {
	for _, f := range l.flights {
		part := f.tally(at, prevAt)
		t.add(&part, 1)
	}
	for i := range l.ended {
		part := l.ended[i].tally(at, prevAt)
		t.add(&part, 1)
	}
	return t
}

// running is a tally that is kept up to date by every change, so that a decision does not count all that is in flight.
type running struct {
	sum        tally
	at, prevAt time.Time
	// valid is false until it was counted for a scrape.
	valid bool
}

// view is tally, counted anew only for another scrape.
func (l *ledger) view(at, prevAt time.Time) tally {
	if r := &l.run; !r.valid || !r.at.Equal(at) || !r.prevAt.Equal(prevAt) {
		*r = running{sum: l.tally(at, prevAt), at: at, prevAt: prevAt, valid: true}
	}
	return l.run.sum
}

// with adds a flight to the running tally, without takes it away: before and after whatever changes one.
func (r *running) with(f *flight) {
	if r.valid {
		part := f.tally(r.at, r.prevAt)
		r.sum.add(&part, 1)
	}
}

func (r *running) without(f *flight) {
	if r.valid {
		part := f.tally(r.at, r.prevAt)
		r.sum.add(&part, -1)
	}
}

func (r *running) ended(e *ended, sign int) {
	if r.valid {
		part := e.tally(r.at, r.prevAt)
		r.sum.add(&part, sign)
	}
}
