package feed

import (
	"encoding/json"
	"math"
	"sort"
	"time"

	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/signals"
	"admitd/ui/api"
)

// Sample is what the pool looked like at the time of a step.
type Sample struct {
	// Gauges by name, as in api.Gauges; a missing name or nil value is not known. Those that the feed computes
	// itself (Computed) are ignored.
	Gauges map[string]*float64
	// Engine is the engine's state, Rev the running policy's revision.
	Engine string
	Rev    string
}

// gauges that change by themselves and so are no reason for a frame.
func isAge(name string) bool { return name == "scrape_age_ms" || name == "gpu_age_ms" }

// Step makes the events since the last step, and one frame when something has changed or the heartbeat is due, and
// offers them to every sink. It returns how many messages were made.
func (f *Feed) Step(now time.Time, s Sample) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.seq
	for _, e := range f.pending.events {
		f.event(e)
	}
	f.pending.events = nil
	g := f.gauges(now, s)
	if !f.due(now, g, s) {
		return int(f.seq - before)
	}
	f.frameAt, f.lastRow, f.engine, f.rev = now, g, s.Engine, s.Rev
	f.rows.add(now, g)
	f.frame(now, g)
	return int(f.seq - before)
}

func (f *Feed) due(now time.Time, g []*float64, s Sample) bool {
	p := &f.pending
	if p.decisions.seen > 0 || p.outcomes.seen > 0 || p.lost || s.Engine != f.engine || s.Rev != f.rev {
		return true
	}
	if f.frameAt.IsZero() || now.Sub(f.frameAt) >= f.o.Heartbeat {
		return true
	}
	for i := range g {
		if isAge(api.Gauges[i].Name) {
			continue
		}
		if (g[i] == nil) != (f.lastRow[i] == nil) || g[i] != nil && *g[i] != *f.lastRow[i] {
			return true
		}
	}
	return false
}

func (f *Feed) gauges(now time.Time, s Sample) []*float64 {
	own := f.computed(now)
	out := make([]*float64, len(api.Gauges))
	for i, g := range api.Gauges {
		p, ok := own[g.Name]
		if !ok {
			p = s.Gauges[g.Name]
		}
		out[i] = tidy(p)
	}
	return out
}

// computed are the gauges that come from the journal.
func (f *Feed) computed(now time.Time) map[string]*float64 {
	p := f.windows.percentiles(now, 10*time.Second)
	rate := float64(f.windows.sum(now, 10*time.Second).arrivals) / 10
	return map[string]*float64{
		"ttft_p50_ms": p[0], "ttft_p95_ms": p[1], "tpot_p50_ms": p[2], "tpot_p95_ms": p[3],
		"goodput_1m": f.windows.sum(now, time.Minute).goodput(), "arrivals_rate": &rate,
	}
}

// tidy drops what cannot be sent as JSON and digits that nobody can see.
func tidy(p *float64) *float64 {
	if p == nil || math.IsNaN(*p) || math.IsInf(*p, 0) {
		return nil
	}
	v := *p
	if math.Abs(v) < 1e6 {
		v = math.Round(v*1e4) / 1e4
	}
	return &v
}

func (f *Feed) event(e journal.Entry) {
	m := api.EventMessage{Name: e.Event.Name, Level: e.Event.Level, Text: e.Event.Text}
	m.Envelope = f.envelope(e.At, api.KindEvent)
	f.publish(&Message{Seq: m.Seq, At: e.At, Kind: m.Kind}, m)
	if len(f.past) == maxPastEvents {
		f.past = append(f.past[:0], f.past[1:]...)
	}
	f.past = append(f.past, api.PastEvent{T: m.T, Name: m.Name, Level: m.Level, Text: m.Text})
}

// envelope takes the next number.
func (f *Feed) envelope(at time.Time, kind string) api.Envelope {
	f.seq++
	return api.Envelope{V: api.StreamVersion, Seq: f.seq, T: at.UnixMilli(), Kind: kind}
}

func (f *Feed) frame(now time.Time, g []*float64) {
	fr := api.Frame{G: g, N: f.pending.n, Engine: f.engine, Rev: f.rev}
	fr.Envelope = f.envelope(now, api.KindFrame)
	f.framed = f.items.last
	ds, someD := f.pending.decisions.take()
	os, someO := f.pending.outcomes.take()
	fr.Sampled = someD || someO || f.pending.lost
	f.pending.n, f.pending.lost = [3]int{}, false
	sort.Slice(ds, func(i, j int) bool { return ds[i].seq < ds[j].seq })
	for _, it := range ds {
		fr.D = append(fr.D, f.decisionCells(now, it))
	}
	for _, o := range os {
		fr.O = append(fr.O, f.outcomeCells(o))
	}
	fr.S, fr.SBase = f.strings.takeFresh()
	f.publish(&Message{Seq: fr.Seq, At: now, Kind: fr.Kind, Strings: fr.S, StringsBase: fr.SBase}, fr)
}

func (f *Feed) publish(m *Message, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		// Only a value that JSON cannot hold gets here, and tidy keeps those out; an empty object keeps the numbering.
		data = []byte(`{}`)
	}
	m.Data = data
	f.frames.add(m)
	for s := range f.sinks {
		s.Offer(m)
	}
}

// decisionCells follows api.DecisionFields.
func (f *Feed) decisionCells(now time.Time, it *item) []any {
	d := it.decision
	return []any{
		d.ID, now.Sub(it.at).Milliseconds(), index(verdictIndex(d.Verdict)), f.reasonCell(d.Reason),
		positive(int64(d.Status)), f.strings.index(d.Tenant), f.strings.index(d.Class), d.Session, d.Attempt,
		d.PromptTokens, d.OutputTokens, d.ReservedTokens, positive(d.RetryAfterMS), d.HeldMS,
		tidy(d.Seen(signals.KVUsed)), tidy(d.Seen(signals.Waiting)),
	}
}

// outcomeCells follows api.OutcomeFields.
func (f *Feed) outcomeCells(o *journal.Outcome) []any {
	met := 0
	if o.SLOMet {
		met = 1
	}
	total := o.TotalMS
	return []any{
		o.ID, f.strings.index(o.Ending), positive(int64(o.Status)), tidy(o.TTFTMS), tidy(o.TPOTMS), tidy(&total),
		o.PromptTokens, o.CompletionTokens, met,
	}
}

func (f *Feed) reasonCell(c reason.Code) any {
	if i, ok := f.reasons[c]; ok {
		return i
	}
	return nil
}

// index is nil for a word that is not in the table.
func index(i int) any {
	if i < 0 {
		return nil
	}
	return i
}

// positive is nil for 0: no status was sent, no time was stated.
func positive(v int64) any {
	if v <= 0 {
		return nil
	}
	return v
}

func reasonIndexes() map[reason.Code]int {
	m := map[reason.Code]int{}
	for i, e := range reason.All() {
		m[e.Code] = i
	}
	return m
}
