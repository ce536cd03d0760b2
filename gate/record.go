package gate

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"admitd/gate/admission"
	"admitd/gate/dialect"
	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/signals"
)

// journal returns where this arrival is recorded: its pool's journal, the first pool's while it has none.
func (a *arrival) journal() *journal.Journal {
	if a.pool != nil {
		return a.pool.Journal
	}
	return a.s.o.Pools[0].Journal
}

// judged is a decision with what explains it, made in one piece: there is one for every request, and thousands are kept.
type judged struct {
	journal.Decision
	late    journal.Late
	verdict admission.Verdict
	// snap is the scrape that the judges saw, at when they did.
	snap *signals.Snapshot
	at   time.Time
}

// record writes the arrival's one decision. A second call does nothing.
func (a *arrival) record(verdict string, code reason.Code, message string, status int, retryAfter time.Duration) {
	if a.decided {
		return
	}
	a.decided = true
	now := a.s.now()
	if a.judged == nil {
		a.judged = &judged{}
	}
	d := &a.judged.Decision
	a.describe(d)
	d.Verdict, d.Reason, d.Message, d.Status, d.RetryAfterMS = verdict, code, message, status, retryAfter.Milliseconds()
	took := now.Sub(a.decideAt)
	if a.verdict != nil {
		a.judged.explain(a.pool.snapshot(), now)
		took -= a.verdict.HeldFor
	}
	d.DecideUS = max(took, 0).Microseconds()
	a.s.metrics.decided(d)
	a.journal().Append(journal.Entry{At: now, Kind: journal.KindDecision, Decision: d})
}

// describe says what is known of the arrival itself: sizes, hashes and words of our own, never what it said.
func (a *arrival) describe(d *journal.Decision) {
	f := &a.facts
	d.ID, d.Path, d.Stream, d.Tenant, d.KeyID, d.Class = a.id, a.ep.Path, f.Stream, a.grant.Tenant, a.grant.KeyID, a.class
	d.SessionSource, d.Attempt, d.OutputCap, d.Sequences, d.BodyBytes = f.Session.Source, f.Attempt, f.OutputCap, f.Sequences, f.BodyBytes
	if d.Path == "" {
		d.Path = unknownLabel
	}
	if a.ep.Class == dialect.Helper {
		d.Class = helperLabel
	}
	if f.Session.ID != "" {
		d.Session = hex64(xxhash.Sum64String(f.Session.ID))
	}
	switch {
	case a.pool != nil:
		d.Pool, d.Model = a.pool.Model, f.Model
		if d.Model == "" {
			d.Model = a.pool.Model
		}
	case f.Model != "":
		d.Model = unknownLabel
	}
	d.PolicyName, d.PolicyRev = a.judge()
}

// hex64 writes a hash with 16 digits.
func hex64(n uint64) string {
	var raw [8]byte
	var text [16]byte
	binary.BigEndian.PutUint64(raw[:], n)
	hex.Encode(text[:], raw[:])
	return string(text[:])
}

// explain adds everything that the decision saw; what is large is worked out afterwards, for those who ask.
func (j *judged) explain(snap *signals.Snapshot, now time.Time) {
	d, v := &j.Decision, &j.verdict
	d.PromptTokens, d.OutputTokens, d.ReservedTokens = v.PromptTokens, v.OutputTokens, v.ReservedTokens
	d.HeldMS = v.HeldFor.Milliseconds()
	d.Ticket = v.Ticket != ""
	d.SnapshotSeq = v.SnapshotSeq
	d.Ledger = admission.ViewOf(v.State)
	if j.snap, j.at = snap, v.State.Now; j.at.IsZero() {
		j.at = now
	}
	j.late.Filler = j
	d.Late = &j.late
}

// Fill implements journal.Filler.
func (j *judged) Fill(d *journal.Detail) {
	why := j.verdict.Explained()
	d.Trace, d.Counterfactual = why.Trace, why.Counterfactual
	d.Signals = appendSignals(d.Signals, j.snap, &j.verdict, j.at)
}

// Seen implements journal.Filler. It is not Decision's own, which asks it.
func (j *judged) Seen(n signals.Name) *float64 {
	sig := seenBy(&j.verdict, j.snap, n, j.at)
	if !readable(sig) {
		return nil
	}
	return &sig.Value
}

// seenBy is a signal as the policy saw it: corrected by the ledger where that corrects it.
func seenBy(v *admission.Verdict, snap *signals.Snapshot, n signals.Name, at time.Time) signals.Signal {
	for _, fused := range [...]*signals.Signal{&v.State.Running, &v.State.Waiting, &v.State.KVUsed, &v.State.KVCapacity} {
		if fused.Name == n {
			return *fused
		}
	}
	return snap.Get(n, at)
}

// readable reports whether a signal has a value that can be written down.
func readable(s signals.Signal) bool {
	return s.Present() && !math.IsNaN(s.Value) && !math.IsInf(s.Value, 0)
}

// snapshot is the scrape that the controller has seen last, else the pool's latest.
func (p *Pool) snapshot() *signals.Snapshot {
	if s := p.Admission.snap.Load(); s != nil {
		return s
	}
	return p.Snapshot()
}

// appendSignals lists every signal with its age; those that the policy saw corrected by the ledger, as it saw them.
func appendSignals(out []journal.SignalView, snap *signals.Snapshot, v *admission.Verdict, at time.Time) []journal.SignalView {
	names := signals.Names()
	out = slices.Grow(out, len(names))
	values := make([]float64, 0, len(names))
	for _, name := range names {
		sig := seenBy(v, snap, name, at)
		view := journal.SignalView{Name: sig.Name, Unit: sig.Unit, Source: sig.Source, State: sig.State,
			AgeMS: sig.Age(at).Milliseconds(), Why: sig.Why}
		if readable(sig) {
			values = append(values, sig.Value)
			view.Value = &values[len(values)-1]
		}
		out = append(out, view)
	}
	return out
}

// outcome is what the relay learns of a response, for settle.
type outcome struct {
	result dialect.Result
	// events is true for an event stream: only there do tokens have times.
	events  bool
	firstAt time.Time
	lastAt  time.Time
	// endedAt is when the engine's last byte was read; the caller's may take longer.
	endedAt time.Time
	err     string
}

// release gives back what an admitted arrival holds of the engine: reservation or helper place. It does so once, as soon
// as the engine is through with the request.
func (a *arrival) release() {
	if a.released {
		return
	}
	a.released = true
	set(&a.out.result.Ending, dialect.EndCut)
	if a.helper {
		a.helper = false
		<-a.s.helpers
	}
	if a.verdict == nil || a.ep.Class == dialect.Helper {
		return
	}
	if err := a.pool.Admission.Settle(a.settlement()); err != nil {
		a.s.o.Logger.Error("a reservation could not be settled", "request_id", a.id, "error", err)
	}
	a.s.metrics.estimated(a.verdict.PromptTokens, a.out.result.Usage.PromptTokens)
}

// settle ends an admitted arrival: reservation, journal, metrics. Called once, by finish.
func (a *arrival) settle() {
	a.settled = true
	a.release()
	now := a.s.now()
	o := a.outcome(now)
	a.s.metrics.ended(o, a.label())
	a.journal().Append(journal.Entry{At: now, Kind: journal.KindOutcome, Outcome: o})
}

func (a *arrival) label() string {
	if a.ep.Class == dialect.Helper {
		return helperLabel
	}
	return a.class
}

// settlement is the engine's usage where it was told, else what was counted.
func (a *arrival) settlement() admission.Settlement {
	r := &a.out.result
	s := admission.Settlement{ID: admission.ID(a.id), Ending: r.Ending, PromptTokens: a.verdict.PromptTokens,
		CompletionTokens: r.OutputEvents, Estimated: r.Usage.PromptTokens == nil || r.Usage.CompletionTokens == nil}
	if r.Usage.PromptTokens != nil {
		s.PromptTokens = *r.Usage.PromptTokens
	}
	if r.Usage.CompletionTokens != nil {
		s.CompletionTokens = *r.Usage.CompletionTokens
	}
	if r.Usage.CachedTokens != nil {
		s.CachedTokens = *r.Usage.CachedTokens
	}
	if !a.ep.Generates() && r.Usage.PromptTokens != nil {
		// Embeddings and the like produce no tokens and say nothing of them.
		s.Estimated = false
	}
	return s
}

func (a *arrival) outcome(now time.Time) *journal.Outcome {
	r := &a.out.result
	o := &journal.Outcome{ID: a.id, Ending: string(r.Ending), Status: a.w.status, TotalMS: millis(now.Sub(a.began)),
		PromptTokens: r.Usage.PromptTokens, CachedTokens: r.Usage.CachedTokens, CompletionTokens: r.Usage.CompletionTokens,
		FinishReason: r.FinishReason, Error: a.out.err}
	if o.CompletionTokens == nil && a.out.events && a.ep.Generates() {
		n := r.OutputEvents
		o.CompletionTokens, o.Estimated = &n, true
	}
	if !a.out.firstAt.IsZero() {
		ms := millis(a.out.firstAt.Sub(a.began))
		o.TTFTMS = &ms
		if n := o.CompletionTokens; n != nil && *n > 1 {
			ms := millis(a.out.lastAt.Sub(a.out.firstAt)) / float64(*n-1)
			o.TPOTMS = &ms
		}
	}
	o.SLOMet = a.sloMet(o)
	return o
}

// sloMet judges by the class, or by what the caller asked for where it did. A response that is no stream shows no
// first token; it is held to what TTFT and TPOT together allow for its length.
func (a *arrival) sloMet(o *journal.Outcome) bool {
	if a.out.result.Ending != dialect.EndWhole {
		return false
	}
	slo := a.s.o.Classes[a.class]
	if a.facts.TTFT > 0 {
		slo.TTFT = a.facts.TTFT
	}
	if a.facts.TPOT > 0 {
		slo.TPOT = a.facts.TPOT
	}
	ttft, tpot := millis(slo.TTFT), millis(slo.TPOT)
	if !a.out.events {
		total := o.TotalMS
		if !a.out.endedAt.IsZero() {
			// A caller that takes its time to read is no fault of the engine's.
			total = millis(a.out.endedAt.Sub(a.began))
		}
		return withinWhole(o, total, ttft, tpot, a.ep.Generates())
	}
	return (ttft == 0 || (o.TTFTMS != nil && *o.TTFTMS <= ttft)) && (tpot == 0 || o.TPOTMS == nil || *o.TPOTMS <= tpot)
}

func withinWhole(o *journal.Outcome, total, ttft, tpot float64, generates bool) bool {
	more := 0
	if generates && o.CompletionTokens != nil {
		more = max(*o.CompletionTokens-1, 0)
	}
	unlimited := ttft == 0 || (more > 0 && tpot == 0)
	return unlimited || total <= ttft+tpot*float64(more)
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
