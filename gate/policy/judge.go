package policy

import (
	"fmt"

	"admitd/gate/reason"
	"admitd/signals"
)

// rule is one comparison of a policy. Rules are immutable.
type rule interface {
	name() string
	limit() float64
	// passes reports whether eval would let the request through. It allocates nothing.
	passes(Request, *State) bool
	eval(Request, State) finding
}

// finding is what one rule made of one request. Code, message and flip matter only when the step failed.
type finding struct {
	step Step
	code reason.Code
	// message is half a sentence with the number and the limit; flip the smallest change that would have passed.
	message string
	flip    string
}

// ruled is the common body of all policies here: a name, the signals needed, and rules asked in order.
type ruled struct {
	policy  string
	needs   []Need
	onStale OnStale
	rules   []rule
}

// Name implements Policy.
func (p *ruled) Name() string { return p.policy }

// Needs implements Policy.
func (p *ruled) Needs() []Need { return append([]Need(nil), p.needs...) }

// Admits implements Policy.
func (p *ruled) Admits(r Request, s *State) bool {
	r.Sequences = max(r.Sequences, 1)
	if len(p.rules) > 0 && p.nothingToDo(s) {
		return true
	}
	for _, q := range p.rules {
		if !q.passes(r, s) {
			return false
		}
	}
	return true
}

// Decide implements Policy: the first rule that fails decides, the others are listed as not evaluated.
func (p *ruled) Decide(r Request, s State) Decision {
	if r.Sequences < 1 {
		r.Sequences = 1
	}
	s.Running.Name, s.Waiting.Name = signals.Running, signals.Waiting
	s.KVUsed.Name, s.KVCapacity.Name = signals.KVUsed, signals.KVCapacity
	d := Decision{Verdict: Admit, Reason: reason.OK, Trace: make([]Step, 0, len(p.rules)+1)}
	if step, idle := p.idle(s); idle && len(p.rules) > 0 {
		d.Trace = append(d.Trace, step)
		for _, q := range p.rules {
			d.Trace = append(d.Trace, skipped(q))
		}
		d.Message = step.Text
		return d
	}
	for _, q := range p.rules {
		if d.Verdict != Admit {
			d.Trace = append(d.Trace, skipped(q))
			continue
		}
		f := q.eval(r, s)
		f.step.Rule, f.step.Limit = q.name(), q.limit()
		d.Trace = append(d.Trace, f.step)
		if f.step.Result == Fail {
			d.Verdict, d.Reason, d.Message, d.Counterfactual = Defer, f.code, f.message, f.flip
		}
	}
	if d.Verdict == Admit {
		d.Message = "admitted: " + p.summary(d.Trace)
	}
	return d
}

func (p *ruled) summary(trace []Step) string {
	if len(trace) == 0 {
		return p.policy + " lets everything through"
	}
	return trace[len(trace)-1].Text
}

// idle reports whether the engine surely has nothing to do. Then any request that can fit at all is let in:
// refusing it would leave the engine empty, and it could never be admitted later either.
//
// A stale or missing signal proves nothing, so the step needs on_stale: ledger then. A contradicted one carries
// the ledger's value, which at nothing in flight is as sure as knowledge gets (vllm-project/vllm#29928: after
// all requests were aborted the gauges froze at 99 % for good, and a router that believed them never sent again).
func (p *ruled) idle(s State) (Step, bool) {
	if !p.nothingToDo(&s) {
		return Step{}, false
	}
	return Step{
		Rule:   "idle",
		Text:   "nothing is in flight and nothing waits inside the engine",
		Inputs: []Input{ledgerInput("in_flight", 0, signals.UnitRequests), signalInput(s.Running, s), signalInput(s.Waiting, s)},
		Result: Pass,
	}, true
}

func (p *ruled) nothingToDo(s *State) bool {
	return s.InFlight == 0 && p.atRest(&s.Running) && p.atRest(&s.Waiting)
}

func (p *ruled) atRest(sig *signals.Signal) bool {
	if usable(sig.State) {
		return !(sig.Value > 0)
	}
	return p.onStale == StaleLedger
}

func skipped(q rule) Step {
	return Step{Rule: q.name(), Text: "not evaluated: an earlier step had decided", Limit: q.limit(), Result: NotEvaluated}
}

// usable reports whether a signal's value may be compared.
func usable(s signals.State) bool {
	return s == signals.Live || s == signals.Flat || s == signals.Contradicted
}

// source says where the number that a rule compares came from.
type source int

const (
	fromSignal source = iota // the fused signal
	fromLedger               // the gate's own books alone
	passOver                 // no number; the step lets through
	refuse                   // no number; the step refuses
)

// sourceOf says how a signal in this state is to be used under this setting.
//
//	live          the signal
//	flat          ledger: the larger of signal and ledger (the caller compares); else the signal
//	contradicted  refuse: refuse; else the signal, whose value is already the ledger's: it never opens the gate
//	stale, missing  as the setting says
func (o OnStale) sourceOf(s signals.State) source {
	switch {
	case usable(s) && (s != signals.Contradicted || o != StaleRefuse):
		return fromSignal
	case o == StaleRefuse:
		return refuse
	case o == StaleAdmit:
		return passOver
	}
	return fromLedger
}

// judgeBy is sourceOf, and why when the signal is not simply used as it is.
func (o OnStale) judgeBy(s signals.Signal) (src source, note string) {
	src = o.sourceOf(s.State)
	switch s.State {
	case signals.Live:
		return src, ""
	case signals.Flat:
		return src, fmt.Sprintf("%s has not moved although load has", s.Name)
	case signals.Contradicted:
		if src == refuse {
			return src, fmt.Sprintf("%s contradicts the ledger (%s) and on_stale is refuse", s.Name, s.Why)
		}
		return src, fmt.Sprintf("%s contradicts the ledger (%s): the ledger's value is used", s.Name, s.Why)
	}
	switch state := stateOf(s); src {
	case refuse:
		return src, fmt.Sprintf("%s is %s and on_stale is refuse", s.Name, state)
	case passOver:
		return src, fmt.Sprintf("%s is %s and on_stale is admit", s.Name, state)
	default:
		return src, fmt.Sprintf("%s is %s: judged by the ledger", s.Name, state)
	}
}

// unusableStep ends a step that has no number: passed over or refused, as src says.
func unusableStep(sig signals.Signal, st State, src source, note string) finding {
	f := finding{step: Step{Text: note, Inputs: []Input{signalInput(sig, st)}, Result: Unusable, Note: note}}
	if src == passOver {
		return f
	}
	f.step.Result = Fail
	f.code = reason.SignalStale
	if !sig.Present() {
		f.code = reason.SignalMissing
	}
	f.message = note
	f.flip = fmt.Sprintf("a usable %s would let the policy compare", sig.Name)
	return f
}

func signalInput(sig signals.Signal, st State) Input {
	in := Input{Name: string(sig.Name), Value: sig.Value, Unit: string(sig.Unit), State: string(sig.State), AgeMS: sig.Age(st.Now).Milliseconds()}
	if !sig.Present() {
		in.Value, in.State = 0, string(signals.Missing)
	}
	return in
}

func ledgerInput(name string, v float64, u signals.Unit) Input {
	return Input{Name: name, Value: v, Unit: string(u), State: "ledger"}
}

func paramInput(name string, v float64, u signals.Unit) Input {
	return Input{Name: name, Value: v, Unit: string(u), State: "param"}
}

// promised says in a message what is kept for ticket holders.
func promised(s State) string {
	if s.Promised == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d kept for callers whose time has come", s.Promised)
}

// count gives "1 request" or "3 requests".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
