package feed

import (
	"time"

	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/ui/api"
)

// item is a decision joined with its outcome. decision and outcome are the journal's own, never changed.
type item struct {
	seq      uint64
	at       time.Time
	decision *journal.Decision
	outcome  *journal.Outcome
}

func (it *item) api() api.DecisionItem {
	e, ok := reason.Lookup(it.decision.Reason)
	if !ok {
		e = reason.Entry{Code: it.decision.Reason, Verdict: it.decision.Verdict}
	}
	return api.DecisionItem{Seq: it.seq, At: it.at, Decision: *it.decision.Complete(), Outcome: it.outcome, Reason: e}
}

// items is a ring of decisions with an index by request id.
type items struct {
	list []*item
	next int
	byID map[string]*item
	last uint64
}

func newItems(n int) items { return items{list: make([]*item, n), byID: map[string]*item{}} }

func (s *items) addDecision(e *journal.Entry) *item {
	it := &item{seq: e.Seq, at: e.At, decision: e.Decision}
	if old := s.list[s.next]; old != nil && s.byID[old.decision.ID] == old {
		delete(s.byID, old.decision.ID)
	}
	s.list[s.next] = it
	s.next = (s.next + 1) % len(s.list)
	s.byID[e.Decision.ID] = it
	s.last = e.Seq
	return it
}

// addOutcome joins an outcome with its decision and returns that, nil when it is no longer known.
func (s *items) addOutcome(e *journal.Entry) *journal.Decision {
	it := s.byID[e.Outcome.ID]
	if it == nil {
		return nil
	}
	it.outcome = e.Outcome
	return it.decision
}

// each calls fn for every decision, oldest first, until fn returns false.
func (s *items) each(fn func(*item) bool) {
	for i := range s.list {
		it := s.list[(s.next+i)%len(s.list)]
		if it != nil && !fn(it) {
			return
		}
	}
}

// eachBack is each, newest first.
func (s *items) eachBack(fn func(*item) bool) {
	n := len(s.list)
	for i := 1; i <= n; i++ {
		it := s.list[(s.next-i+n)%n]
		if it == nil || !fn(it) {
			return
		}
	}
}

// Query chooses decisions.
type Query struct {
	// After is the entry number after which to go on, oldest first; when Newest is true it is not used and the
	// newest ones are returned.
	After  uint64
	Newest bool
	// Limit is the most decisions returned, at least 1.
	Limit int
	// Match says which decisions are wanted; nil means all.
	Match func(*api.DecisionItem) bool
}

// Decisions returns decisions newest first. Next continues towards newer ones.
func (f *Feed) Decisions(q Query) api.Decisions {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := api.Decisions{Items: []api.DecisionItem{}, Next: max(q.After, f.items.last)}
	f.items.each(func(it *item) bool { out.Oldest = it.seq; return false })
	take := func(it *item) bool {
		if a := it.api(); q.Match == nil || q.Match(&a) {
			out.Items = append(out.Items, a)
		}
		return len(out.Items) < q.Limit
	}
	if q.Newest {
		f.items.eachBack(take)
		return out
	}
	f.items.each(func(it *item) bool {
		if it.seq <= q.After {
			return true
		}
		if take(it) {
			return true
		}
		out.Next = it.seq
		return false
	})
	for i, j := 0, len(out.Items)-1; i < j; i, j = i+1, j-1 {
		out.Items[i], out.Items[j] = out.Items[j], out.Items[i]
	}
	return out
}

// maxSiblings bounds the other decisions of the same session given with one decision.
const maxSiblings = 50

// Find returns one decision with the others of its session, oldest first.
func (f *Feed) Find(id string) (api.DecisionItem, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.items.byID[id]
	if it == nil {
		return api.DecisionItem{}, false
	}
	a := it.api()
	if it.decision.Session == "" {
		return a, true
	}
	f.items.eachBack(func(o *item) bool {
		if o != it && o.decision.Session == it.decision.Session && o.decision.Tenant == it.decision.Tenant {
			a.Session = append(a.Session, api.SessionSibling{
				ID: o.decision.ID, At: o.at, Verdict: o.decision.Verdict, Reason: o.decision.Reason, Attempt: o.decision.Attempt,
			})
		}
		return len(a.Session) < maxSiblings
	})
	for i, j := 0, len(a.Session)-1; i < j; i, j = i+1, j-1 {
		a.Session[i], a.Session[j] = a.Session[j], a.Session[i]
	}
	return a, true
}

// Recorded returns the decisions made at or after from, oldest first, for judging them again.
func (f *Feed) Recorded(from time.Time) []Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Record
	f.items.each(func(it *item) bool {
		if !it.at.Before(from) {
			out = append(out, Record{At: it.at, Decision: it.decision})
		}
		return true
	})
	return out
}

// Record is one decision and its time. Decision must not be changed.
type Record struct {
	At       time.Time
	Decision *journal.Decision
}
