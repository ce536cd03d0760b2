package model

import (
	"fmt"
	"time"
)

// Engine is one simulated engine. It is not safe for use by several goroutines. Times are durations since any
// origin the caller likes and must never go backwards from call to call.
type Engine struct {
	cfg  Config
	pool *pool
	now  time.Duration

	byID map[ID]*request
	// arriving is ordered by the time at which the API server hands the request over; waiting by scheduling order.
	arriving []*request
	waiting  []*request
	running  []*request

	// A step is in progress while batch is not empty; it ends at stepEnd.
	batch   []share
	stepEnd time.Duration
	// blocked is true when the last attempt to form a batch found nothing to do and nothing has changed since.
	blocked bool

	prefillTokens int
	events        []Event
	stats         Stats
}

// request is the engine's own state of a Request.
type request struct {
	Request
	ready time.Duration
	// computed is how many tokens of the sequence (prompt, then output) have their KV in blocks.
	computed int
	output   int
	blocks   []int
	// granted is the number of tokens in the step now in progress.
	granted int
	// hashedBlocks is how many leading blocks were offered to the prefix index.
	hashedBlocks int
	cached       int
	preempted    int
	seen         bool
	gone         bool
}

// share is a request's part in the step in progress. The request may leave while the step runs.
type share struct {
	r *request
	n int
}

// New returns an empty engine, or an error that names the value that cannot be.
func New(cfg Config) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Engine{cfg: cfg, pool: newPool(cfg.Blocks - 1), byID: make(map[ID]*request)}, nil
}

// Config returns the configuration with its defaults filled in.
func (e *Engine) Config() Config { return e.cfg }

// Submit hands a request to the API server at the time now. Call Advance(now) first, so that the state is current.
func (e *Engine) Submit(now time.Duration, r Request) error {
	switch {
	case r.PromptTokens < 1 || r.MaxTokens < 0 || r.NaturalTokens < 0:
		return fmt.Errorf("%w: %d prompt tokens, output limit %d, natural length %d", ErrInvalid, r.PromptTokens, r.MaxTokens, r.NaturalTokens)
	case r.PromptTokens >= e.cfg.MaxModelLen:
		return fmt.Errorf("%w: %d prompt tokens, the limit is %d with the output", ErrTooLong, r.PromptTokens, e.cfg.MaxModelLen)
	case e.byID[r.ID] != nil:
		return fmt.Errorf("%w: %d", ErrDuplicate, r.ID)
	case e.cfg.MaxInFlight > 0 && len(e.byID) >= e.cfg.MaxInFlight,
		e.cfg.MaxWaiting > 0 && len(e.waiting)+len(e.arriving) >= e.cfg.MaxWaiting:
		e.stats.RefusedInFlight++
		return fmt.Errorf("%w: %d are waiting or running", ErrQueueFull, len(e.byID))
	case e.cfg.MaxPrefillTokens > 0 && e.prefillTokens >= e.cfg.MaxPrefillTokens:
		e.stats.RefusedTokens++
		return fmt.Errorf("%w: %d of %d", ErrPrefillFull, e.prefillTokens, e.cfg.MaxPrefillTokens)
	}
	if room := e.cfg.MaxModelLen - r.PromptTokens; r.MaxTokens == 0 || r.MaxTokens > room {
		r.MaxTokens = room
	}
	q := &request{Request: r, ready: max(now, e.now) + millis(e.cfg.Profile.ArrivalMS)}
	e.byID[r.ID] = q
	e.prefillTokens += r.PromptTokens
	e.arriving = append(e.arriving, q)
	return nil
}

// Cancel ends a request whose client left and reports whether it was in flight. No event follows.
func (e *Engine) Cancel(now time.Duration, id ID) bool {
	r := e.byID[id]
	if r == nil {
		return false
	}
	e.now = max(e.now, now)
	e.stats.Cancelled++
	e.drop(r)
	return true
}

// drop takes a request out wherever it is and frees its blocks. Blocks that the step in progress is filling keep
// their prefix: the step computes them anyway.
func (e *Engine) drop(r *request) {
	r.gone = true
	if !r.seen {
		e.prefillTokens -= r.PromptTokens
	}
	delete(e.byID, r.ID)
	e.arriving = without(e.arriving, r)
	e.waiting = without(e.waiting, r)
	e.running = without(e.running, r)
	e.pool.release(r.blocks)
	r.blocks = nil
	e.blocked = false
}

func without(list []*request, r *request) []*request {
	for i, x := range list {
		if x == r {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// Next is the time of the next change that will come by itself; ok is false when nothing will happen without a
// Submit or Cancel (idle, or every waiting request is too large for what is free).
func (e *Engine) Next() (at time.Duration, ok bool) {
	if len(e.batch) > 0 {
		at, ok = e.stepEnd, true
	} else if !e.blocked && len(e.waiting)+len(e.running) > 0 {
		return e.now, true
	}
	if len(e.arriving) > 0 && (!ok || e.arriving[0].ready < at) {
		at, ok = e.arriving[0].ready, true
	}
	return at, ok
}

// Advance lets the engine work up to and including the time now and returns what happened, in order of steps.
func (e *Engine) Advance(now time.Duration) []Event {
	for {
		at, ok := e.Next()
		if !ok || at > now {
			break
		}
		e.now = max(e.now, at)
		e.admitArrivals()
		if len(e.batch) > 0 && e.stepEnd <= e.now {
			e.finishStep()
		}
		if len(e.batch) == 0 {
			e.startStep()
		}
	}
	e.now = max(e.now, now)
	out := e.events
	e.events = nil
	return out
}

func (e *Engine) admitArrivals() {
	n := 0
	for n < len(e.arriving) && e.arriving[n].ready <= e.now {
		n++
	}
	if n == 0 {
		return
	}
	e.waiting = append(e.waiting, e.arriving[:n]...)
	e.arriving = append([]*request(nil), e.arriving[n:]...)
	e.blocked = false
}

// finishStep books the work of the step that just ended.
func (e *Engine) finishStep() {
	batch := e.batch
	e.batch = nil
	e.stats.Steps++
	for _, s := range batch {
		e.stats.StepTokens += s.n
		if s.r.gone {
			continue
		}
		s.r.granted = 0
		s.r.computed += s.n
		if s.r.computed == s.r.PromptTokens+s.r.output {
			e.emitToken(s.r)
		}
	}
}

func (e *Engine) emitToken(r *request) {
	if !r.seen {
		r.seen = true
		e.prefillTokens -= r.PromptTokens
		e.stats.PromptTokens += r.PromptTokens
		e.stats.CachedTokens += r.cached
	}
	r.output++
	e.stats.GeneratedTokens++
	at := e.now + millis(e.cfg.Profile.TokenMS)
	e.events = append(e.events, Event{At: at, ID: r.ID, Kind: Token, Tokens: r.output})
	var reason Reason
	switch {
	case r.NaturalTokens > 0 && r.output >= r.NaturalTokens:
		reason = Stop
		e.stats.Stopped++
	case r.output >= r.MaxTokens:
		reason = Length
		e.stats.Lengthened++
	default:
		return
	}
	e.drop(r)
	at = e.now + millis(e.cfg.Profile.EndMS)
	e.events = append(e.events, Event{At: at, ID: r.ID, Kind: Finished, Tokens: r.output, Reason: reason})
}

// Stats returns the counters as they are now.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Running, s.Waiting, s.Arriving = len(e.running), len(e.waiting), len(e.arriving)
	s.Usable = len(e.pool.blocks)
	s.Cached = e.pool.cached
	s.Free = e.pool.unused - e.pool.cached
	s.Used = s.Usable - e.pool.unused
	return s
}

// InFlight is the number of requests that have not ended.
func (e *Engine) InFlight() int { return len(e.byID) }

// DropPrefixCache forgets every cached prefix, as a benchmark does between runs.
func (e *Engine) DropPrefixCache() { e.pool.dropCache() }

// Check verifies the invariants and names the first one that does not hold; for tests and assertions of a driver.
func (e *Engine) Check() error {
	if err := e.pool.check(); err != nil {
		return err
	}
	refs := make([]int, len(e.pool.blocks))
	seen, prefill := 0, 0
	for _, list := range [][]*request{e.arriving, e.waiting, e.running} {
		for _, r := range list {
			seen++
			if r.gone || e.byID[r.ID] != r {
				return fmt.Errorf("request %d is queued but not in flight", r.ID)
			}
			if !r.seen {
				prefill += r.PromptTokens
			}
			for _, b := range r.blocks {
				refs[b]++
			}
			if have, need := len(r.blocks), ceilDiv(r.computed+r.granted, e.cfg.BlockTokens); have < need {
				return fmt.Errorf("request %d holds %d blocks for %d tokens", r.ID, have, r.computed+r.granted)
			}
		}
	}
	if seen != len(e.byID) {
		return fmt.Errorf("%d requests are queued and %d in flight", seen, len(e.byID))
	}
	if prefill != e.prefillTokens {
		return fmt.Errorf("prompt tokens in prefill are counted as %d and sum to %d", e.prefillTokens, prefill)
	}
	for i, n := range refs {
		if n != e.pool.blocks[i].refs {
			return fmt.Errorf("block %d has %d references and %d holders", i, e.pool.blocks[i].refs, n)
		}
	}
	if len(e.running) > e.cfg.MaxSeqs {
		return fmt.Errorf("%d requests run, the limit is %d", len(e.running), e.cfg.MaxSeqs)
	}
	return nil
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
