package model

// startStep forms the next batch: decodes first, then running prefills, then waiting requests in order. With
// nothing to do it leaves the engine blocked until something changes.
func (e *Engine) startStep() {
	budget := e.cfg.MaxBatchedTokens
	preempted := false
	for _, decodes := range []bool{true, false} {
		// The list shrinks from its end while requests are preempted, so the bound is read each time.
		for i := 0; i < len(e.running) && budget > 0; i++ {
			r := e.running[i]
			left := r.PromptTokens + r.output - r.computed
			if r.granted > 0 || (left == 1 && r.seen) != decodes {
				continue
			}
			n := min(left, budget)
			ok, took := e.makeRoom(r, n)
			preempted = preempted || took
			if !ok {
				// r itself was the last one and has been preempted.
				break
			}
			r.granted = n
			budget -= n
		}
	}
	// After a preemption nobody new is let in during the same step, unless the step would be empty.
	if !preempted || len(e.running) == 0 {
		e.admitWaiting(budget)
	}
	e.launch()
}

// makeRoom gives r blocks for n more tokens, preempting running requests from the last one while there are too few.
// ok is false when r itself had to go.
func (e *Engine) makeRoom(r *request, n int) (ok, preempted bool) {
	for {
		if e.grow(r, n) {
			return true, preempted
		}
		victim := e.running[len(e.running)-1]
		e.preempt(victim)
		preempted = true
		if victim == r {
			return false, true
		}
	}
}

// grow takes the blocks that r needs for n more tokens, all or none, and offers full ones to the prefix index.
func (e *Engine) grow(r *request, n int) bool {
	need := ceilDiv(r.computed+n, e.cfg.BlockTokens) - len(r.blocks)
	if need > e.pool.unused {
		return false
	}
	for ; need > 0; need-- {
		b, _ := e.pool.take()
		r.blocks = append(r.blocks, b)
	}
	if !e.cfg.NoPrefixCache {
		full := min((r.computed+n)/e.cfg.BlockTokens, len(r.Prefix))
		for ; r.hashedBlocks < full; r.hashedBlocks++ {
			e.pool.remember(r.blocks[r.hashedBlocks], r.Prefix[r.hashedBlocks])
		}
	}
	return true
}

// preempt takes all blocks of a running request and puts it at the head of the queue, to be computed again from the
// beginning (or from what the prefix cache still holds by then).
func (e *Engine) preempt(r *request) {
	// Blocks offered to the index for this very step will not be computed now.
	computedBlocks := r.computed / e.cfg.BlockTokens
	for i := computedBlocks; i < r.hashedBlocks; i++ {
		if e.pool.index[r.Prefix[i]] == r.blocks[i] {
			e.pool.forget(r.blocks[i])
		}
	}
	e.pool.release(r.blocks)
	r.blocks, r.computed, r.granted, r.hashedBlocks = nil, 0, 0, 0
	r.preempted++
	e.stats.Preemptions++
	e.running = without(e.running, r)
	e.waiting = append([]*request{r}, e.waiting...)
	e.events = append(e.events, Event{At: e.now, ID: r.ID, Kind: Preempted, Tokens: r.output})
}

// admitWaiting moves requests from the head of the queue into the batch while slots, budget and blocks allow. The
// head is never passed by a later request.
func (e *Engine) admitWaiting(budget int) {
	for len(e.waiting) > 0 && len(e.running) < e.cfg.MaxSeqs && budget > 0 {
		r := e.waiting[0]
		n, ok := e.placePrefix(r, budget)
		if !ok {
			break
		}
		e.waiting = e.waiting[1:]
		e.running = append(e.running, r)
		r.granted = n
		budget -= n
		again := r.preempted > 0
		if !again {
			e.stats.PrefixQueries += r.PromptTokens
			e.stats.PrefixHits += r.cached
		}
		e.events = append(e.events, Event{At: e.now, ID: r.ID, Kind: Scheduled, Tokens: r.output, Cached: r.cached, Again: again})
	}
}

// placePrefix gives a waiting request its cached blocks and room for its first chunk, or leaves everything as it was.
func (e *Engine) placePrefix(r *request, budget int) (n int, ok bool) {
	length := r.PromptTokens + r.output
	var hit []int
	idle := 0
	if !e.cfg.NoPrefixCache {
		// At least one token must be computed to get an output from.
		hit, idle = e.pool.prefix(r.Prefix, (length-1)/e.cfg.BlockTokens)
	}
	known := len(hit) * e.cfg.BlockTokens
	n = min(length-known, budget)
	want := n
	if !e.cfg.AdmitPartialPrompt {
		want = length - known
	}
	if ceilDiv(known+want, e.cfg.BlockTokens)-len(hit) > e.pool.unused-idle {
		return 0, false
	}
	for _, b := range hit {
		e.pool.share(b)
	}
	r.blocks = append([]int(nil), hit...)
	r.computed, r.hashedBlocks = known, len(hit)
	if r.preempted == 0 {
		r.cached = min(known, r.PromptTokens)
	}
	e.grow(r, n)
	return n, true
}

// launch starts the step that was formed.
func (e *Engine) launch() {
	var w Work
	for _, r := range e.running {
		if r.granted == 0 {
			continue
		}
		e.batch = append(e.batch, share{r, r.granted})
		if r.granted == 1 && r.seen && r.computed+1 == r.PromptTokens+r.output {
			w.Decodes++
			w.DecodeKV += r.computed
			continue
		}
		w.Prefill += r.granted
		w.PrefillContext += float64(r.granted) * (float64(r.computed) + float64(r.granted)/2)
	}
	if len(e.batch) == 0 {
		e.blocked = true
		return
	}
	e.stepEnd = e.now + e.cfg.Profile.StepTime(w)
}
