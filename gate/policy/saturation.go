package policy

import (
	"fmt"

	"admitd/gate/reason"
	"admitd/signals"
)

// newSaturation builds saturation.
//
// Idea: one number for how full the engine is, so that operators compare pools and set one limit. Source: the
// utilisation detector of llm-d's router and of the Kubernetes Gateway API Inference Extension (GAIE), whose
// defaults these are. Formula: saturation = max(waiting / waiting_scale, kv_used / kv_scale); a request passes
// while saturation < max_saturation. Parameters: waiting_scale 5, kv_scale 0.8, max_saturation 1 by default.
// When it fails: it judges the moment, not the request: a huge prompt passes just below the limit; and with the
// scrape as its only eye it lets a herd in between two scrapes. Here the fused signals count what was sent since.
// Unlike llm-d a stale signal is not full saturation (a dead scrape would stop everything).
// on_stale: ledger uses waiting and KV as the ledger knows them; a term that has no number is left out; refuse
// defers when either is not usable; admit lets through when neither is.
func newSaturation(s Spec) *ruled {
	p := s.Params
	return &ruled{
		policy: Saturation, onStale: s.OnStale,
		needs: []Need{
			{Signal: signals.Waiting, Why: "it divides the engine's queue by waiting_scale"},
			{Signal: signals.KVUsed, Why: "it divides the engine's KV use by kv_scale"},
		},
		rules: []rule{saturationRule{max: *p.MaxSaturation, waitingScale: *p.WaitingScale, kvScale: *p.KVScale, onStale: s.OnStale}},
	}
}

type saturationRule struct {
	max, waitingScale, kvScale float64
	onStale                    OnStale
}

func (q saturationRule) name() string   { return "saturation" }
func (q saturationRule) limit() float64 { return q.max }

// term is one half of the saturation.
type term struct {
	value float64
	src   source
	// blind is true where the ledger would have to judge KV and knows no capacity.
	blind bool
}

func (t term) missing() bool { return t.src == passOver }

// passes implements rule.
func (q saturationRule) passes(_ Request, s *State) bool {
	w, k := q.waiting(s), q.kv(s)
	switch {
	case w.src == refuse || k.src == refuse:
		return false
	case w.missing() && k.missing():
		return true
	}
	return max(w.value, k.value) < q.max
}

func (q saturationRule) waiting(s *State) term {
	t := term{src: q.onStale.sourceOf(s.Waiting.State)}
	switch t.src {
	case fromSignal:
		t.value = (s.Waiting.Value + float64(s.Promised)) / q.waitingScale
	case fromLedger:
		t.value = float64(ledgerWaiting(s)+s.Promised) / q.waitingScale
	}
	return t
}

func (q saturationRule) kv(s *State) term {
	t := term{src: q.onStale.sourceOf(s.KVUsed.State)}
	capacity := capacityOf(s)
	switch {
	case t.src == fromSignal:
		t.value = s.KVUsed.Value / q.kvScale
	case t.src == fromLedger && capacity > 0:
		t.value = float64(s.ReservedTokens) / capacity / q.kvScale
	case t.src == fromLedger:
		t.src, t.blind = passOver, true
	}
	return t
}

func (q saturationRule) eval(_ Request, s State) finding {
	w, k := q.waiting(&s), q.kv(&s)
	_, wNote := q.onStale.judgeBy(s.Waiting)
	_, kNote := q.onStale.judgeBy(s.KVUsed)
	if k.blind {
		kNote = "kv_used cannot be judged by the ledger without a KV capacity: left out"
	}
	if w.src == refuse {
		return unusableStep(s.Waiting, s, refuse, wNote)
	}
	if k.src == refuse {
		return unusableStep(s.KVUsed, s, refuse, kNote)
	}
	if w.missing() && k.missing() {
		return unusableStep(s.Waiting, s, passOver, wNote)
	}
	v := max(w.value, k.value)
	f := finding{step: Step{Result: Pass, Margin: q.max - v, Note: joinNotes(wNote, kNote), Inputs: []Input{
		signalInput(s.Waiting, s), signalInput(s.KVUsed, s),
		ledgerInput("promised", float64(s.Promised), signals.UnitRequests),
		paramInput("waiting_scale", q.waitingScale, signals.UnitRequests), paramInput("kv_scale", q.kvScale, signals.UnitFraction),
	}}}
	if v < q.max {
		f.step.Text = fmt.Sprintf("saturation %.2f (queue %.2f, KV %.2f), below the limit %.2f", v, w.value, k.value, q.max)
		return f
	}
	f.step.Result = Fail
	f.step.Text = fmt.Sprintf("saturation %.2f (queue %.2f, KV %.2f), at or above the limit %.2f", v, w.value, k.value, q.max)
	f.code = reason.QueueDepth
	f.flip = fmt.Sprintf("admitted when fewer than %.4g wait inside the engine", q.max*q.waitingScale)
	if k.value > w.value {
		f.code = reason.KVPressure
		f.flip = "admitted when KV use is below " + percent(q.max*q.kvScale)
	}
	if w.value >= q.max && k.value >= q.max {
		f.flip = fmt.Sprintf("admitted when fewer than %.4g wait inside the engine and KV use is below %s", q.max*q.waitingScale, percent(q.max*q.kvScale))
	}
	f.message = fmt.Sprintf("the engine's saturation is %.2f (queue %.2f, KV %.2f), and the policy admits below %.2f (max_saturation)", v, w.value, k.value, q.max)
	return f
}

func joinNotes(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
