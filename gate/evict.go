package gate

import (
	"context"
	"maps"
	"slices"
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

// flight is one of them. why is set before it is ended.
type flight struct {
	mu  sync.Mutex
	why *eviction
	// ctx is that of the request at the engine.
	ctx wire.Context
}

// eviction is why a request was taken from the engine while its caller waits: for the record, and for the caller.
type eviction struct {
	record  string
	code    reason.Code
	message string
}

func newFlight(parent context.Context) *flight {
	f := &flight{}
	f.ctx.Begin(parent)
	return f
}

func (f *flight) evict(why eviction) {
	f.mu.Lock()
	if f.why == nil {
		f.why = &why
	}
	f.mu.Unlock()
	f.ctx.Cancel()
}

// wasEvicted also holds for an arrival that never took off.
func (f *flight) wasEvicted() bool { return f.eviction() != nil }

func (f *flight) eviction() *eviction {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.why
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
	f.evict(eviction{
		"the engine stood still with it at the head of its queue", reason.EngineStalled,
		"The engine stood still with this request at the head of its queue, so it was taken out; try again in a moment.",
	})
	return id, true
}

// EndAll ends every request at the engine, because the time for them is up: an admitd that has been replaced leaves. Their
// callers are told so.
func (a *Admission) EndAll() {
	a.flights.mu.Lock()
	all := slices.Collect(maps.Values(a.flights.list))
	a.flights.mu.Unlock()
	for _, f := range all {
		f.evict(eviction{
			"it outlasted the time that a replaced admitd may take", reason.Draining,
			"This admitd has been replaced by a new one and the time for its open requests is up, so this one was ended; try again.",
		})
	}
}

// taken ends a request that was taken from the engine while its caller waits.
func (f *flow) taken(rest []byte) {
	a, why := f.a, f.a.flight.eviction()
	a.out.endedAt = a.s.now()
	a.out.result.Ending, a.out.err = dialect.EndError, why.record
	if f.committed && !a.out.events && !f.kept {
		a.abort = true
		return
	}
	if f.committed {
		f.write(rest)
	}
	f.refuseOrTell(why.code, why.message, engineDownWait)
}
