package app

import (
	"fmt"
	"time"

	"admitd/gate/admission"
	"admitd/signals"
	"admitd/supervisor"
)

// idle reports whether nothing is at the engine, by our books and by its own gauges where they can be read, and it is not asleep:
// then a token asked of it disturbs nobody.
func (p *pool) idle() bool {
	s, now := p.scraper.Snapshot(), time.Now()
	if awake := s.Get(signals.Awake, now); awake.Present() && awake.Value == 0 {
		return false
	}
	run, wait := s.Get(signals.Running, now), s.Get(signals.Waiting, now)
	if fresh(run) && run.Value > 0 || fresh(wait) && wait.Value > 0 {
		return false
	}
	return p.inFlight() == 0
}

// Shares of the engine from which on a fresher reading can change a decision.
const (
	pressedSlots = 0.75
	pressedKV    = 0.5
)

// pressed reports whether a fresher reading could change a decision: requests wait or were just refused, or the engine is filling
// up. It is asked by the scraper's goroutine alone.
func (p *pool) pressed() bool {
	d, s, now := p.admission.Dump(admission.Totals), p.scraper.Snapshot(), time.Now()
	refused := d.Deferred + d.Rejected
	if refused != p.refused {
		p.refused, p.refusedAt = refused, now
	}
	wait, kv := s.Get(signals.Waiting, now), s.Get(signals.KVUsed, now)
	switch {
	case d.Held > 0 || d.Promised > 0 || !p.refusedAt.IsZero() && now.Sub(p.refusedAt) < rememberRefusal:
		return true
	case d.Slots <= 0 || float64(d.InFlight) >= pressedSlots*float64(d.Slots):
		return true // where nobody has told the slots, they are learnt from readings
	case !fresh(wait) || wait.Value > 0 || wait.State == signals.Contradicted:
		return true
	case !fresh(kv) || kv.Value >= pressedKV:
		return true
	}
	capacity := s.Get(signals.KVCapacity, now)
	return !capacity.Present() || float64(d.ReservedTokens) >= pressedKV*capacity.Value
}

// rememberRefusal is how long after a refusal readings stay quick: the next caller is most likely on its way.
const rememberRefusal = 2 * time.Second

// believe looks at what the last scrape says of the engine behind it: another one than before, or one that cannot be believed. It
// returns false when the gate was closed by that. Only the goroutine of watch calls it, while the gate is open.
func (p *pool) believe(st supervisor.Status, fail func(error)) (open bool) {
	s := p.scraper.Snapshot()
	if text := doubts(s); text != p.doubts {
		p.doubts = text
		if text == "" {
			p.event("signals_doubt", "info", "the engine's metrics can be believed again")
		} else {
			p.event("signals_doubt", "warn", text)
		}
	}
	if p.doubts != "" {
		return true // which engine it would be held against is not known
	}
	if s.Life != p.life {
		p.life = s.Life
		if s.LifeWhy == "" || s.At.Before(st.ReadyAt) {
			return true
		}
		who := "the engine"
		if st.Kind == supervisor.External {
			who += " at " + st.Address
		}
		p.event("engine_changed", "warn", fmt.Sprintf("%s is another one now: %s; what the policy needs is looked at again", who, s.LifeWhy))
		p.recheck = s.Seq + 1 // rates take two scrapes
	}
	if p.recheck == 0 || s.Seq < p.recheck || s.Failures > 0 {
		return true
	}
	p.recheck = 0
	return p.tryOpen(st, fail)
}

// doubts joins the conditions of a snapshot.
func doubts(s *signals.Snapshot) string {
	text := ""
	for _, c := range s.Conditions {
		if text != "" {
			text += "; "
		}
		text += string(c.Code) + ": " + c.Text
	}
	return text
}
