package app

import (
	"fmt"
	"math"
	"time"

	"admitd/gate/admission"
	"admitd/signals"
)

// snapshot is the latest scrape, amended.
func (p *pool) snapshot() *signals.Snapshot { return p.amended(p.scraper.Snapshot()) }

// amended puts what usage said of cached tokens in the place of a hit counter that is absent or stays 0 although prompts hit,
// as some builds of vLLM have it.
func (p *pool) amended(s *signals.Snapshot) *signals.Snapshot {
	now := time.Now()
	hit := s.Get(signals.PrefixHitRate, now)
	if s.At.IsZero() || hit.State == signals.Stale || hit.Present() && hit.Value > 0 {
		return s
	}
	share := 0.0
	p.admission.With(func(now time.Time, _ admission.Controlling) { share = p.controller.CachedShare(now) })
	if share == 0 {
		return s
	}
	better := signals.Signal{Name: signals.PrefixHitRate, Value: share, Source: "usage.cached_tokens", At: s.At, State: signals.Live, Exported: hit.Exported}
	if hit.Present() {
		better.State, better.Why = signals.Contradicted, hit.Source+" stays 0 although answers report cached tokens"
	}
	return s.With(better)
}

// capacitySlack is how far, as a fraction, two statements of the KV capacity may lie apart: blocks are rounded, and one is kept back.
const capacitySlack = 0.02

// checkCapacity tells when the engine's log and its metrics disagree about the size of the KV cache; the log is believed.
func (p *pool) checkCapacity(said int, snap *signals.Snapshot) {
	read := snap.Get(signals.KVCapacity, time.Now())
	if said <= 0 || !read.Present() || math.Abs(read.Value-float64(said)) <= capacitySlack*float64(said) {
		return
	}
	p.store.event("capacity_disagrees", "warn", fmt.Sprintf("the engine's log says that its KV cache holds %d tokens, %s says %.0f; the log is believed",
		said, read.Source, read.Value))
}
