package policy

import (
	"fmt"
	"math"
	"strconv"

	"admitd/gate/reason"
	"admitd/signals"
)

// kvRule keeps the KV cache below a fraction: it fails when KV use with this prompt would pass max.
//
//	after = kv_used + prompt tokens / capacity          (capacity known)
//	after = kv_used                                     (capacity not known)
//	after = (reserved + prompt + output) / capacity     (by the ledger alone)
//
// Without capacity the ledger cannot judge KV: the step then passes over where another rule of the policy still
// guards the engine (blindPasses), and refuses where it is the only one.
type kvRule struct {
	max         float64
	onStale     OnStale
	blindPasses bool
}

// rounding absorbs what adding two fractions may be off by.
const rounding = 1e-9

func (k kvRule) name() string   { return "kv_used" }
func (k kvRule) limit() float64 { return k.max }

func (k kvRule) passes(r Request, s *State) bool {
	src, _ := k.sourceOf(s)
	if src == passOver || src == refuse {
		return src == passOver
	}
	now, need := k.use(r, s, src)
	return now+need <= k.max+rounding
}

// sourceOf says what the rule compares; blind is true when that is the ledger, which cannot judge without a capacity.
func (k kvRule) sourceOf(s *State) (src source, blind bool) {
	src = k.onStale.sourceOf(s.KVUsed.State)
	if src != fromLedger || capacityOf(s) > 0 {
		return src, false
	}
	if k.blindPasses {
		return passOver, true
	}
	return refuse, true
}

// use is the fraction of the cache in use, and that which the request needs.
func (k kvRule) use(r Request, s *State, src source) (now, need float64) {
	capacity := capacityOf(s)
	now = s.KVUsed.Value
	if capacity > 0 {
		need = float64(r.PromptTokens) / capacity
	}
	if src == fromLedger || (s.KVUsed.State == signals.Flat && k.onStale == StaleLedger && capacity > 0) {
		led := float64(s.ReservedTokens) / capacity
		if src == fromLedger || led > now {
			now, need = led, float64(r.PromptTokens+r.OutputTokens)/capacity
		}
	}
	return now, need
}

func (k kvRule) eval(r Request, s State) finding {
	_, note := k.onStale.judgeBy(s.KVUsed)
	src, blind := k.sourceOf(&s)
	if blind {
		note = fmt.Sprintf("%s is %s and the KV capacity is not known, so the ledger cannot judge it", signals.KVUsed, stateOf(s.KVUsed))
	}
	if src == passOver || src == refuse {
		return unusableStep(s.KVUsed, s, src, note)
	}
	now, need := k.use(r, &s, src)
	return k.compare(now, need, capacityOf(&s), r, s, note)
}

func (k kvRule) compare(now, need, capacity float64, r Request, s State, note string) finding {
	after := now + need
	f := finding{step: Step{Note: note, Margin: k.max - after, Result: Pass, Inputs: []Input{
		signalInput(s.KVUsed, s),
		signalInput(s.KVCapacity, s),
		ledgerInput("prompt_tokens", float64(r.PromptTokens), signals.UnitTokens),
		ledgerInput("reserved_tokens", float64(s.ReservedTokens), signals.UnitTokens),
	}}}
	sum := "KV use " + percent(after)
	if need != 0 {
		sum = "KV use " + percent(now) + " + " + percent(need) + " for this request = " + percent(after)
	}
	if after <= k.max+rounding {
		f.step.Text = sum + ", limit " + percent(k.max)
		return f
	}
	f.step.Result = Fail
	f.step.Text = fmt.Sprintf("%s, above the limit %s", sum, percent(k.max))
	f.code = reason.KVPressure
	f.message = fmt.Sprintf("the engine's KV cache would be %s full with this request, and the policy allows %s (max_kv_used)", percent(after), percent(k.max))
	f.flip = "admitted when KV use is at most " + percent(max(0, k.max-need))
	if capacity > 0 {
		f.flip = fmt.Sprintf("admitted when %s have been freed", count(max(1, int(math.Ceil((after-k.max)*capacity-1e-6))), "token"))
	}
	return f
}

// capacityOf is the KV capacity in tokens, 0 when not known. A capacity does not age.
func capacityOf(s *State) float64 {
	if s.KVCapacity.Present() && s.KVCapacity.Value > 0 {
		return s.KVCapacity.Value
	}
	return 0
}

func stateOf(s signals.Signal) signals.State {
	if s.State == "" {
		return signals.Missing
	}
	return s.State
}

func percent(v float64) string {
	var room [24]byte
	return string(append(strconv.AppendFloat(room[:0], 100*v, 'f', 1, 64), '%'))
}
