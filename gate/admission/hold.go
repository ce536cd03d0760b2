package admission

import (
	"time"

	"admitd/gate/policy"
)

// heldItem is one request waiting inside the gate.
type heldItem struct {
	a     Arrival
	est   estimate
	since time.Time
	until time.Time
	// returned is true for a ticket holder that came in its window; it waits ahead of fresh arrivals.
	returned bool
	// promise is the slot that an early ticket holder still has.
	promise *promise
	// last is the decision that keeps it here; why is what the policy said, without those held ahead.
	last  policy.Decision
	why   string
	state policy.State
}

// holdQueue is first in, first out, ticket holders whose time has come before the others.
type holdQueue struct {
	items           map[ID]*heldItem
	returned, fresh []*heldItem
	seqs            int
	// wake is the earliest until; valid says whether it is known.
	wake      time.Time
	wakeValid bool
}

func (q *holdQueue) len() int { return len(q.items) }

func (q *holdQueue) push(h *heldItem) {
	q.items[h.a.ID] = h
	q.seqs += h.est.seqs
	if h.returned {
		q.returned = append(q.returned, h)
	} else {
		q.fresh = append(q.fresh, h)
	}
	if q.wakeValid && (q.wake.IsZero() || h.until.Before(q.wake)) {
		q.wake = h.until
	}
}

// head is the next one to be admitted, nil when nobody is held.
func (q *holdQueue) head() *heldItem {
	if len(q.returned) > 0 {
		return q.returned[0]
	}
	if len(q.fresh) > 0 {
		return q.fresh[0]
	}
	return nil
}

// ahead returns the head of those that go before a new arrival, nil when it would be the first.
func (q *holdQueue) ahead(returned bool) *heldItem {
	if returned {
		if len(q.returned) > 0 {
			return q.returned[0]
		}
		return nil
	}
	return q.head()
}

func (q *holdQueue) remove(h *heldItem) {
	if q.items[h.a.ID] != h {
		return
	}
	delete(q.items, h.a.ID)
	q.seqs -= h.est.seqs
	list := &q.fresh
	if h.returned {
		list = &q.returned
	}
	for i, x := range *list {
		if x == h {
			copy((*list)[i:], (*list)[i+1:])
			(*list)[len(*list)-1] = nil
			*list = (*list)[:len(*list)-1]
			break
		}
	}
	if !q.wakeValid || !h.until.After(q.wake) {
		q.wakeValid = false
	}
}

// each visits everyone in the order of the queue.
func (q *holdQueue) each(visit func(*heldItem)) {
	for _, h := range q.returned {
		visit(h)
	}
	for _, h := range q.fresh {
		visit(h)
	}
}

// earliest is the first deadline in the queue; zero when nobody is held.
func (q *holdQueue) earliest() time.Time {
	if q.wakeValid {
		return q.wake
	}
	q.wake, q.wakeValid = time.Time{}, true
	q.each(func(h *heldItem) {
		if q.wake.IsZero() || h.until.Before(q.wake) {
			q.wake = h.until
		}
	})
	return q.wake
}

// expired lists those whose time is up, in the order of the queue.
func (q *holdQueue) expired(now time.Time) []*heldItem {
	if e := q.earliest(); e.IsZero() || e.After(now) {
		return nil
	}
	var out []*heldItem
	q.each(func(h *heldItem) {
		if !h.until.After(now) {
			out = append(out, h)
		}
	})
	return out
}
