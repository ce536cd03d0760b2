package ui

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// HubOptions bounds the websocket side. Zero fields take the defaults named.
type HubOptions struct {
	// MaxViewers at once, over all pools; 32.
	MaxViewers int
	// WriteWait is how long one write may take before the viewer counts as stalled; 10 s.
	WriteWait time.Duration
	// PongWait is how long a viewer may be silent; 60 s. PingEvery must be shorter; 54 s.
	PongWait  time.Duration
	PingEvery time.Duration
	// SlotFrames and SlotBytes bound what waits for one viewer; 20 and 1 MiB.
	SlotFrames int
	SlotBytes  int
	// LoseFor is how long a viewer may lose frames at every delivery before it is sent away; 10 s.
	LoseFor time.Duration
	// ReadLimit bounds one message of a viewer in bytes; 4096.
	ReadLimit int64
}

func (o HubOptions) withDefaults() HubOptions {
	wait := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	count := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	wait(&o.WriteWait, 10*time.Second)
	wait(&o.PongWait, time.Minute)
	wait(&o.PingEvery, 54*time.Second)
	wait(&o.LoseFor, 10*time.Second)
	count(&o.MaxViewers, 32)
	count(&o.SlotFrames, 20)
	count(&o.SlotBytes, 1<<20)
	if o.ReadLimit <= 0 {
		o.ReadLimit = 4096
	}
	return o
}

// Why a viewer's connection ended, for the metric.
const (
	endGone     = "gone"     // the viewer closed, or its network did
	endSlow     = "slow"     // it lost frames at every delivery for LoseFor
	endStalled  = "stalled"  // one write did not finish within WriteWait
	endProtocol = "protocol" // it sent what no viewer may send
	endShutdown = "shutdown"
)

func endings() []string { return []string{endGone, endSlow, endStalled, endProtocol, endShutdown} }

// hub knows the viewers. What a viewer gets is decided by its pool's feed; see viewer.
type hub struct {
	o HubOptions

	mu      sync.Mutex
	closed  bool
	viewers map[*viewer]struct{}
	places  int
	wg      sync.WaitGroup

	dropped atomic.Uint64
	ended   map[string]*atomic.Uint64 // fixed keys
}

func newHub(o HubOptions) *hub {
	h := &hub{o: o.withDefaults(), viewers: map[*viewer]struct{}{}, ended: map[string]*atomic.Uint64{}}
	for _, e := range endings() {
		h.ended[e] = new(atomic.Uint64)
	}
	return h
}

func (h *hub) framesDropped() uint64 { return h.dropped.Load() }

func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.viewers)
}

// reserve takes a place before the upgrade, so that a refusal can still be an HTTP answer.
func (h *hub) reserve() (release func(), prob *problem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, newProblem(http.StatusServiceUnavailable, "stopping", "admitd is stopping.")
	}
	if h.places >= h.o.MaxViewers {
		return nil, newProblem(http.StatusTooManyRequests, "too_many_viewers",
			"As many viewers are connected as this listener allows (32 by default); close a dashboard, or use GET /api/v1/frame.").
			with("Retry-After", "10")
	}
	h.places++
	h.wg.Add(1)
	var once sync.Once
	return func() {
		once.Do(func() {
			h.mu.Lock()
			h.places--
			h.mu.Unlock()
			h.wg.Done()
		})
	}, nil
}

// enter lists a viewer; false when the hub has closed meanwhile.
func (h *hub) enter(v *viewer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.viewers[v] = struct{}{}
	return true
}

func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.viewers, v)
}

// close says bye to every viewer, refuses new ones and waits until all are gone.
func (h *hub) close(why string) {
	h.mu.Lock()
	h.closed = true
	for v := range h.viewers {
		v.end(farewell{code: closeGoingAway, text: why, cause: endShutdown, bye: true})
	}
	h.mu.Unlock()
	h.wg.Wait()
}
