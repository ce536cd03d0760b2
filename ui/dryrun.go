package ui

import (
	"time"

	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/signals"
	"admitd/ui/api"
	"admitd/ui/feed"
)

// maxFlips is the number of flips shown as examples.
const maxFlips = 20

const dryRunCaveat = "Open loop: each recorded arrival is judged again by the draft with the signals and ledger of its own moment. " +
	"A decision that flips would have changed the load, and the retries, that came after it, so what follows the first flip is " +
	"first-order only. Arrivals that the draft would hold count as deferred."

// judgeAgain judges recorded decisions by a draft policy.
func judgeAgain(recorded []feed.Record, draft *policy.Compiled) api.DryRun {
	out := api.DryRun{Rev: draft.Rev, Window: len(recorded), Flips: []api.Flip{}, Caveat: dryRunCaveat}
	judged, after := 0, 0
	for i, rec := range recorded {
		if i == 0 {
			at := rec.At
			out.From = &at
		}
		at := rec.At
		out.To = &at
		if !judgedByPolicy(rec.Decision) {
			out.Skipped++
			continue
		}
		judged++
		if out.FlipCount > 0 {
			after++
		}
		d := draft.Policy.Decide(requestOf(rec.Decision), stateOf(rec.At, rec.Decision))
		verdict := verdictOf(d, rec.Decision)
		tally(&out.Old, rec.Decision.Verdict)
		tally(&out.New, verdict)
		if verdict == rec.Decision.Verdict {
			continue
		}
		out.FlipCount++
		if len(out.Flips) < maxFlips {
			out.Flips = append(out.Flips, api.Flip{ID: rec.Decision.ID, At: rec.At, Old: rec.Decision.Verdict,
				New: verdict, NewReason: d.Reason, Message: d.Message})
		}
	}
	if judged > 0 {
		out.AfterFirstFlip = float64(after) / float64(judged)
	}
	return out
}

// judgedByPolicy tells decisions that the policy made from those that the gate or the controller made without it
// (bad key, too large, draining): only the first kind saw signals, and has one of these reasons.
func judgedByPolicy(d *journal.Decision) bool {
	if len(d.Complete().Signals) == 0 {
		return false
	}
	return d.Verdict == reason.VerdictAdmit || forWantOfRoom(d.Reason)
}

func forWantOfRoom(c reason.Code) bool {
	switch c {
	case reason.KVPressure, reason.KVForecast, reason.QueueDepth, reason.QueueAge, reason.SlotsFull, reason.Saturated,
		reason.TTFTInfeasible, reason.TPOTInfeasible, reason.SessionWindow, reason.SignalMissing, reason.SignalStale,
		reason.HoldExpired:
		return true
	}
	return false
}

// verdictOf is what a draft's judgement would be answered with. Whether a refusal for want of room is a defer or, with
// no relief in sight, a reject is the controller's to say: it is taken to say what it said then.
func verdictOf(d policy.Decision, recorded *journal.Decision) string {
	v := wire(d.Verdict)
	if v == reason.VerdictDefer && recorded.Verdict == reason.VerdictReject && recorded.Reason == reason.Saturated {
		return reason.VerdictReject
	}
	return v
}

// wire is the verdict as it would be answered.
func wire(v policy.Verdict) string {
	switch v {
	case policy.Admit:
		return reason.VerdictAdmit
	case policy.Reject:
		return reason.VerdictReject
	}
	return reason.VerdictDefer
}

func tally(c *api.VerdictCount, verdict string) {
	switch verdict {
	case reason.VerdictAdmit:
		c.Admit++
	case reason.VerdictDefer:
		c.Defer++
	case reason.VerdictReject:
		c.Reject++
	}
}

func requestOf(d *journal.Decision) policy.Request {
	return policy.Request{
		PromptTokens: d.PromptTokens, OutputTokens: d.OutputTokens, Sequences: d.Sequences,
		Class: d.Class, Tenant: d.Tenant, Session: d.Session, Attempt: d.Attempt,
	}
}

// stateOf rebuilds what the policy saw. A signal that the record does not have is Missing, never 0.
func stateOf(at time.Time, d *journal.Decision) policy.State {
	return policy.State{
		Now: at, Running: signalOf(at, d, signals.Running), Waiting: signalOf(at, d, signals.Waiting),
		KVUsed: signalOf(at, d, signals.KVUsed), KVCapacity: signalOf(at, d, signals.KVCapacity),
		InFlight: d.Ledger.InFlight, Unseen: d.Ledger.Unseen, ReservedTokens: d.Ledger.ReservedTokens,
		Held: d.Ledger.Held, Slots: d.Ledger.Slots,
	}
}

func signalOf(at time.Time, d *journal.Decision, n signals.Name) signals.Signal {
	for _, v := range d.Signals {
		if v.Name != n {
			continue
		}
		s := signals.Signal{Name: n, Unit: v.Unit, Source: v.Source, State: v.State, Why: v.Why}
		if v.Value == nil {
			s.State = signals.Missing
			return s
		}
		s.Value, s.At = *v.Value, at.Add(-time.Duration(v.AgeMS)*time.Millisecond)
		return s
	}
	return signals.Signal{Name: n, Unit: signals.UnitOf(n), State: signals.Missing, Why: "not in the record"}
}
