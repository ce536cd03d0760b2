package journal

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"admitd/gate/policy"
)

// encoder writes entries as JSON, byte for byte as package encoding/json would: a test holds it to that. It exists because
// every request has two entries, and writing them by reflection cost more than deciding.
type encoder struct {
	b      []byte
	detail Detail
	err    error
}

// entry returns the entry as one object. It is valid until the next call. Only a value that JSON cannot say makes an error.
func (e *encoder) entry(n *Entry) ([]byte, error) {
	e.b, e.err = e.b[:0], nil
	e.raw(`{"seq":`)
	e.b = strconv.AppendUint(e.b, n.Seq, 10)
	e.raw(`,"at":"`)
	e.b = n.At.AppendFormat(e.b, time.RFC3339Nano)
	e.raw(`","kind":`)
	e.text(string(n.Kind))
	if n.Decision != nil {
		e.raw(`,"decision":`)
		e.decision(n.Decision)
	}
	if n.Outcome != nil {
		e.raw(`,"outcome":`)
		e.outcome(n.Outcome)
	}
	if n.Event != nil {
		e.raw(`,"event":`)
		e.other(n.Event)
	}
	e.raw("}")
	return e.b, e.err
}

func (e *encoder) decision(d *Decision) {
	var all Detail
	if d.Late != nil {
		// Worked out for this line only: kept, it would be most of what the ring holds. The decision's own fields may be
		// written by a Complete meanwhile.
		e.detail.Signals, e.detail.Trace = e.detail.Signals[:0], nil
		d.Late.Filler.Fill(&e.detail)
		all = e.detail
	} else {
		all = Detail{Signals: d.Signals, Trace: d.Trace, Counterfactual: d.Counterfactual}
	}
	e.raw(`{"id":`)
	e.text(d.ID)
	e.field("pool", d.Pool)
	e.field("model", d.Model)
	e.field("path", d.Path)
	e.flag("stream", d.Stream)
	e.field("tenant", d.Tenant)
	e.some("key_id", d.KeyID)
	e.field("class", d.Class)
	e.some("session", d.Session)
	e.some("session_source", d.SessionSource)
	e.number("attempt", d.Attempt)
	e.number("prompt_tokens_estimated", d.PromptTokens)
	e.number("output_tokens_estimated", d.OutputTokens)
	e.pointer("output_cap", d.OutputCap)
	e.number("reserved_tokens", d.ReservedTokens)
	e.number("sequences", d.Sequences)
	e.number("body_bytes", d.BodyBytes)
	e.field("verdict", d.Verdict)
	e.field("reason", string(d.Reason))
	e.some("message", d.Message)
	e.positive("status", int64(d.Status))
	e.positive("retry_after_ms", d.RetryAfterMS)
	if d.Ticket {
		e.flag("ticket", true)
	}
	e.positive("held_ms", d.HeldMS)
	e.number("decide_us", int(d.DecideUS))
	e.field("policy", d.PolicyName)
	e.field("policy_rev", d.PolicyRev)
	e.key("snapshot_seq")
	e.b = strconv.AppendUint(e.b, d.SnapshotSeq, 10)
	e.signals(all.Signals)
	e.ledger(d)
	e.trace(all.Trace)
	e.some("counterfactual", all.Counterfactual)
	e.raw("}")
}

func (e *encoder) ledger(d *Decision) {
	l := &d.Ledger
	e.raw(`,"ledger":{"in_flight":`)
	e.b = strconv.AppendInt(e.b, int64(l.InFlight), 10)
	e.number("unseen", l.Unseen)
	e.number("unstarted", l.Unstarted)
	e.number("promised", l.Promised)
	e.number("held", l.Held)
	e.number("reserved_tokens", l.ReservedTokens)
	e.number("slots", l.Slots)
	e.raw("}")
}

func (e *encoder) signals(all []SignalView) {
	for i := range all {
		s := &all[i]
		if i == 0 {
			e.raw(`,"signals":[{"name":`)
		} else {
			e.raw(`,{"name":`)
		}
		e.text(string(s.Name))
		e.key("value")
		e.floatOrNull(s.Value)
		e.field("unit", string(s.Unit))
		e.some("source", s.Source)
		e.field("state", string(s.State))
		e.number("age_ms", int(s.AgeMS))
		e.some("why", s.Why)
		e.raw("}")
	}
	if len(all) > 0 {
		e.raw("]")
	}
}

func (e *encoder) trace(all []policy.Step) {
	for i := range all {
		s := &all[i]
		if i == 0 {
			e.raw(`,"trace":[{"rule":`)
		} else {
			e.raw(`,{"rule":`)
		}
		e.text(s.Rule)
		e.field("text", s.Text)
		for j := range s.Inputs {
			e.input(&s.Inputs[j], j == 0)
		}
		if len(s.Inputs) > 0 {
			e.raw("]")
		}
		e.float("limit", s.Limit)
		e.field("result", string(s.Result))
		e.float("margin", s.Margin)
		e.some("note", s.Note)
		e.raw("}")
	}
	if len(all) > 0 {
		e.raw("]")
	}
}

func (e *encoder) input(in *policy.Input, first bool) {
	if first {
		e.raw(`,"inputs":[{"name":`)
	} else {
		e.raw(`,{"name":`)
	}
	e.text(in.Name)
	e.float("value", in.Value)
	e.field("unit", in.Unit)
	e.field("state", in.State)
	e.number("age_ms", int(in.AgeMS))
	e.raw("}")
}

func (e *encoder) outcome(o *Outcome) {
	e.raw(`{"id":`)
	e.text(o.ID)
	e.field("ending", o.Ending)
	e.number("status", o.Status)
	e.key("ttft_ms")
	e.floatOrNull(o.TTFTMS)
	e.key("tpot_ms")
	e.floatOrNull(o.TPOTMS)
	e.float("total_ms", o.TotalMS)
	e.pointer("prompt_tokens", o.PromptTokens)
	e.pointer("cached_tokens", o.CachedTokens)
	e.pointer("completion_tokens", o.CompletionTokens)
	if o.Estimated {
		e.flag("estimated", true)
	}
	e.some("finish_reason", o.FinishReason)
	e.some("error", o.Error)
	e.flag("slo_met", o.SLOMet)
	e.raw("}")
}

func (e *encoder) raw(s string) { e.b = append(e.b, s...) }

func (e *encoder) key(name string) {
	e.b = append(e.b, ',', '"')
	e.b = append(e.b, name...)
	e.b = append(e.b, '"', ':')
}

func (e *encoder) field(name, v string) {
	e.key(name)
	e.text(v)
}

// some writes a field that is left out when it is empty, positive one that is left out when it is 0.
func (e *encoder) some(name, v string) {
	if v != "" {
		e.field(name, v)
	}
}

func (e *encoder) positive(name string, v int64) {
	if v != 0 {
		e.key(name)
		e.b = strconv.AppendInt(e.b, v, 10)
	}
}

func (e *encoder) number(name string, v int) {
	e.key(name)
	e.b = strconv.AppendInt(e.b, int64(v), 10)
}

func (e *encoder) pointer(name string, v *int) {
	if v != nil {
		e.number(name, *v)
		return
	}
	e.key(name)
	e.raw("null")
}

func (e *encoder) flag(name string, v bool) {
	e.key(name)
	e.b = strconv.AppendBool(e.b, v)
}

func (e *encoder) float(name string, v float64) {
	e.key(name)
	e.floatOrNull(&v)
}

// floatOrNull writes numbers of ordinary size itself; the others have an exponent, which encoding/json writes in its own way.
func (e *encoder) floatOrNull(v *float64) {
	switch {
	case v == nil:
		e.raw("null")
	case *v == 0 || math.Abs(*v) >= 1e-6 && math.Abs(*v) < 1e21:
		e.b = strconv.AppendFloat(e.b, *v, 'f', -1, 64)
	default:
		e.other(*v)
	}
}

// text writes a string; one with anything to escape is left to encoding/json.
func (e *encoder) text(s string) {
	for i := range len(s) {
		if escaped[s[i]] {
			e.other(s)
			return
		}
	}
	e.b = append(e.b, '"')
	e.b = append(e.b, s...)
	e.b = append(e.b, '"')
}

// escaped is true for bytes that encoding/json may not write as they are.
var escaped = func() (t [256]bool) {
	for c := range t {
		t[c] = c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&'
	}
	return t
}()

func (e *encoder) other(v any) {
	b := bytes.NewBuffer(e.b)
	if err := json.NewEncoder(b).Encode(v); err != nil {
		e.err = err
		return
	}
	e.b = bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
