package feed

import (
	"time"

	"admitd/ui/api"
)

// Start is what a new viewer gets before the messages that its sink is offered. Taken in one step with the
// subscription: no message is in both, none in neither.
type Start struct {
	// From and Last as Bounds.
	From, Last uint64
	// Strings are all strings interned in frames up to Last.
	Strings []string
	// Resumed is true when Replay is all that the viewer had missed; else Snap is set.
	Resumed bool
	Replay  []*Message
	// Gap tells the numbers lost to a viewer that wanted to resume and cannot; zero when none were.
	Gap  [2]uint64
	Snap *Snap
}

// Snap is the recent past for a viewer that starts afresh.
type Snap struct {
	History   api.History
	Decisions []api.DecisionItem
	Events    []api.PastEvent
}

const (
	snapStep      = time.Second
	snapDecisions = 200
)

// Subscribe adds a sink and returns where it starts. resume is the last number that the viewer has, 0 when it
// starts afresh. A nil sink only asks. Unsubscribe must follow for a sink that is not nil.
func (f *Feed) Subscribe(now time.Time, resume uint64, sink Sink) Start {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, last := f.bounds()
	s := Start{From: from, Last: last, Strings: append([]string{}, f.strings.list[:f.strings.fresh]...)}
	if resume > 0 && resume <= last {
		s.Replay, s.Resumed = f.frames.after(resume)
		s.Resumed = s.Resumed || resume == last
	}
	if !s.Resumed {
		if resume > 0 && last >= f.o.FirstSeq {
			s.Gap = lostRange(resume, f.o.FirstSeq, last)
		}
		s.Snap = f.snap(now)
	}
	if sink != nil {
		f.sinks[sink] = struct{}{}
	}
	return s
}

// lostRange is what a viewer whose last number was resume has missed, as far as this feed made it.
func lostRange(resume, first, last uint64) [2]uint64 {
	if resume < first || resume > last {
		return [2]uint64{first, last}
	}
	return [2]uint64{resume + 1, last}
}

// Unsubscribe removes a sink; it is offered nothing after this returns.
func (f *Feed) Unsubscribe(sink Sink) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sinks, sink)
}

// snap leaves out traces and signals: a list does not show them, and one decision can be asked for.
func (f *Feed) snap(now time.Time) *Snap {
	s := &Snap{History: f.history(now.Add(-f.o.Keep), now, snapStep), Decisions: []api.DecisionItem{}}
	since := now.Add(-f.o.Keep).UnixMilli()
	s.Events = []api.PastEvent{}
	for _, e := range f.past {
		if e.T >= since {
			s.Events = append(s.Events, e)
		}
	}
	f.items.eachBack(func(it *item) bool {
		if it.seq > f.framed {
			return true // it comes with the next frame
		}
		a := it.api()
		a.Decision.Trace, a.Decision.Signals = nil, nil
		s.Decisions = append(s.Decisions, a)
		return len(s.Decisions) < snapDecisions
	})
	return s
}
