package gate

import (
	"context"
	"sync"

	"admitd/gate/admission"
	"admitd/gate/dialect"
	"admitd/gate/reason"
	"admitd/gate/wire"
)

// flights are the requests at the engine, so that one of them can be ended from outside.
type flights struct {
	mu   sync.Mutex
	list map[admission.ID]*flight
}

// flight is one of them. evicted is set before it is ended.
type flight struct {
	mu      sync.Mutex
	evicted bool
	// ctx is that of the request at the engine.
	ctx wire.Context
}

func newFlight(parent context.Context) *flight {
	f := &flight{}
	f.ctx.Begin(parent)
	return f
}

func (f *flight) evict() {
	f.mu.Lock()
	f.evicted = true
	f.mu.Unlock()
	f.ctx.Cancel()
}

// wasEvicted also holds for an arrival that never took off.
func (f *flight) wasEvicted() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.evicted
}

func (l *flights) add(id admission.ID, f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list == nil {
		l.list = map[admission.ID]*flight{}
	}
	l.list[id] = f
}

func (l *flights) remove(id admission.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.list, id)
}

func (l *flights) get(id admission.ID) *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list[id]
}

// EvictOldest ends the request that has waited longest for its first token, and tells which. Engines serve first come first:
// one that stands still may be blocked by the head of its queue, a prompt that its cache can never hold, and goes on without it.
// The caller is told to come back. false means that there is none.
func (a *Admission) EvictOldest() (id admission.ID, ok bool) {
	a.mu.Lock()
	if c, can := a.c.(interface{ OldestUnstarted() (admission.ID, bool) }); can {
		id, ok = c.OldestUnstarted()
	}
	a.mu.Unlock()
	f := a.flights.get(id)
	if !ok || f == nil {
		return "", false
	}
	f.evict()
	return id, true
}

// taken ends a request that was taken from a stalled engine while its caller waits.
func (f *flow) taken(rest []byte) {
	a := f.a
	a.out.endedAt = a.s.now()
	a.out.result.Ending, a.out.err = dialect.EndError, "the engine stood still with it at the head of its queue"
	if f.committed && !a.out.events && !f.kept {
		a.abort = true
		return
	}
	if f.committed {
		f.write(rest)
	}
	f.refuseOrTell(reason.EngineStalled,
		"The engine stood still with this request at the head of its queue, so it was taken out; try again in a moment.", engineDownWait)
}
