package policy

import (
	"fmt"
	"math"
	"strconv"

	"admitd/gate/reason"
	"admitd/signals"
)

// waitingRule keeps the engine's own queue short: it fails when the request would make more than max wait.
//
// The number compared is the queue as it would be after admission:
//
//	something waits already            waiting + promised + sequences   (the engine's queue is first come, first served)
//	nothing waits, slots known         max(0, running + promised + sequences - slots)
//	nothing waits, slots not known     0 when nothing is promised, else promised + sequences
//
// By the ledger alone (signal stale or missing): max(0, in flight + promised + sequences - slots); without known
// slots, the requests that have produced no token yet stand for the queue.
type waitingRule struct {
	max     int
	onStale OnStale
}

func (w waitingRule) name() string   { return "waiting" }
func (w waitingRule) limit() float64 { return float64(w.max) }

func (w waitingRule) passes(r Request, s *State) bool {
	src := w.onStale.sourceOf(s.Waiting.State)
	return src == passOver || src != refuse && w.after(r, s, src) <= w.max
}

// after is the queue as it would be with the request.
func (w waitingRule) after(r Request, s *State, src source) int {
	byLedger := queueAfter(ledgerWaiting(s), s.InFlight, r, s)
	if src != fromSignal {
		return byLedger
	}
	after := queueAfter(whole(s.Waiting.Value), runningOf(s), r, s)
	if s.Waiting.State == signals.Flat && w.onStale == StaleLedger {
		return max(after, byLedger)
	}
	return after
}

func (w waitingRule) eval(r Request, s State) finding {
	src, note := w.onStale.judgeBy(s.Waiting)
	if src == passOver || src == refuse {
		return unusableStep(s.Waiting, s, src, note)
	}
	after := w.after(r, &s, src)
	f := finding{step: Step{Inputs: w.inputs(r, s, src), Note: note, Margin: float64(w.max - after), Result: Pass}}
	if after <= w.max {
		f.step.Text = strconv.Itoa(after) + " would wait inside the engine, limit " + strconv.Itoa(w.max)
		return f
	}
	f.step.Result = Fail
	f.step.Text = fmt.Sprintf("%d would wait inside the engine, above the limit %d", after, w.max)
	f.code = reason.QueueDepth
	f.message = fmt.Sprintf("%s would wait inside the engine with this one%s, and the policy allows %d (max_waiting)", count(after, "request"), promised(s), w.max)
	f.flip = fmt.Sprintf("admitted with max_waiting %d, or after %s", after, count(after-w.max, "ending"))
	return f
}

func (w waitingRule) inputs(r Request, s State, src source) []Input {
	in := append(make([]Input, 0, 4), signalInput(s.Waiting, s))
	if src == fromLedger || s.Waiting.State != signals.Live {
		in = append(in, ledgerInput("in_flight", float64(s.InFlight), signals.UnitRequests),
			ledgerInput("unstarted", float64(s.Unstarted), signals.UnitRequests))
	}
	if s.Slots > 0 {
		in = append(in, signalInput(s.Running, s), ledgerInput("slots", float64(s.Slots), signals.UnitRequests))
	}
	if s.Promised > 0 {
		in = append(in, ledgerInput("promised", float64(s.Promised), signals.UnitRequests))
	}
	return append(in, ledgerInput("sequences", float64(r.Sequences), signals.UnitRequests))
}

func queueAfter(waiting, running int, r Request, s *State) int {
	if waiting > 0 {
		return waiting + s.Promised + r.Sequences
	}
	if s.Slots > 0 {
		return max(0, running+s.Promised+r.Sequences-s.Slots)
	}
	if s.Promised > 0 {
		return s.Promised + r.Sequences
	}
	return 0
}

// ledgerWaiting is the engine's queue as far as the gate's own books can tell.
func ledgerWaiting(s *State) int {
	if s.Slots > 0 {
		return max(0, s.InFlight-s.Slots)
	}
	return s.Unstarted
}

// runningOf is the fused running number, or what the ledger has in flight when that is not usable.
func runningOf(s *State) int {
	if usable(s.Running.State) {
		return whole(s.Running.Value)
	}
	return s.InFlight
}

// whole rounds a gauge up: half a request, the mean of two engines, is not room for one.
func whole(v float64) int {
	if !(v > 0) {
		return 0
	}
	if v > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(math.Ceil(v))
}
