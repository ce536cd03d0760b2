package gate

import (
	"sync"
	"time"
)

const (
	// slotStep parts the times that successive callers are told while an engine takes nothing.
	slotStep = 200 * time.Millisecond
	// slotSpan is the least span over which those times are spread before they begin again: maxRetry cuts longer waits.
	slotSpan = 10 * time.Second
)

// spacing gives successive refused callers successive times, so that they do not all come back in one instant. It is
// safe for concurrent use.
type spacing struct {
	mu   sync.Mutex
	last time.Time
}

// after is when to come back instead of after wait: no sooner, but for a wait that would leave less than slotSpan up
// to maxRetry. When the times have reached maxRetry they begin again.
func (s *spacing) after(now time.Time, wait time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := now.Add(min(max(wait, minRetry), maxRetry-slotSpan))
	at := s.last.Add(slotStep)
	if at.Before(first) || at.After(now.Add(maxRetry)) {
		at = first
	}
	s.last = at
	return at.Sub(now)
}

// reset forgets the times given: the engine takes requests again.
func (s *spacing) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Time{}
}

// spacings are a pool's: away for refusals while it takes nothing, broken for requests that its engine let down.
type spacings struct{ away, broken spacing }

// space gives a refusal that the state of the engine or the gate calls for its own time to come back.
func (s *Server) space(p *Pool, ref *refusal, now time.Time) *refusal {
	switch {
	case ref == nil:
		s.spaces[p].away.reset()
	case ref.retryAfter > 0:
		ref.retryAfter = s.spaces[p].away.after(now, ref.retryAfter)
	}
	return ref
}
