package signals

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// core turns pages into snapshots. It reads no clock and does no I/O: the same pages at the same times give the
// same snapshots. It is not safe for concurrent use.
type core struct {
	staleAfter time.Duration
	flatAfter  time.Duration
	want       map[string]bool

	snap     *Snapshot
	engine   string
	lineage  lineage
	counters history
	queues   motion
	kv       motion
	tokens   motion
	// kvRanks is how many ranks the last reading of KV use was made of.
	kvRanks int
}

// kvIdle is a KV use that an engine with nothing to do may show.
const kvIdle = 0.01

// newCore returns a core that has seen nothing.
func newCore(staleAfter, flatAfter time.Duration) *core {
	c := &core{staleAfter: staleAfter, flatAfter: flatAfter, want: wantedNames(), lineage: newLineage()}
	c.snap = NewSnapshot(Snapshot{StaleAfter: staleAfter}, allMissing("", "no scrape yet")...)
	return c
}

// scraped is one answer of the engine: the page, when it was asked for, how long it took, and how many requests
// we knew to be at the engine when it was asked.
type scraped struct {
	body        []byte
	openMetrics bool
	at          time.Time
	took        time.Duration
	load        int
}

// absorb reads one page and returns the new snapshot. A page that is not usable as a whole leaves the last good
// readings to age.
func (c *core) absorb(s scraped) *Snapshot {
	p, err := parsePage(s.body, s.openMetrics, c.want)
	if err != nil {
		return c.fail(err)
	}
	if e := p.engine(c.engine); e != "" && e != c.engine {
		if c.engine != "" {
			c.newLife("it is another kind of engine now", s.at)
		}
		c.engine = e
	}
	conditions := c.sameLife(p, s.at)
	now := c.countersOf(p)
	meta := *c.snap
	meta.Seq, meta.At, meta.Took = c.snap.Seq+1, s.at, s.took
	meta.Failures, meta.Err, meta.Engine = 0, "", c.engine
	meta.Models, meta.Conditions = c.lineage.models, conditions
	readings := c.readAll(p, now, s.at)
	c.kvRanks = 0
	for _, r := range readings {
		if r.Name == KVUsed && r.Present() {
			c.kvRanks = max(1, len(c.lineage.ranks[r.Source]))
		}
	}
	c.markFlat(readings, now, s)
	mixedUp(readings, conditions)
	c.counters.add(s.at, now)
	meta.tokens = tokensOf(now, readings)
	c.snap = NewSnapshot(meta, readings...)
	return c.snap
}

// tokensOf sums the prompt and output token counters that the rates come from; nil when neither is on the page.
func tokensOf(now counters, readings []Signal) *float64 {
	var sum *float64
	for _, r := range readings {
		if r.Name != PrefillRate && r.Name != DecodeRate {
			continue
		}
		if _, ok := now[r.Source]; ok {
			t := total(now, r.Source)
			if sum != nil {
				t += *sum
			}
			sum = &t
		}
	}
	return sum
}

// fail records a scrape that told nothing.
func (c *core) fail(err error) *Snapshot {
	meta := *c.snap
	meta.Seq++
	meta.Failures++
	meta.Err = err.Error()
	c.snap = &meta
	return c.snap
}

// reset forgets everything that belongs to the engine process seen so far.
func (c *core) reset() *Snapshot {
	c.newLife("", time.Time{})
	c.engine, c.lineage = "", newLineage()
	meta := Snapshot{Seq: c.snap.Seq, Life: c.snap.Life, StaleAfter: c.staleAfter}
	c.snap = NewSnapshot(meta, allMissing("", "the engine was replaced; not scraped yet")...)
	return c.snap
}

// sameLife looks whether a page continues the life of the one before, begins another one where it does not, and says what else
// keeps it from being believed. Families that lack a rank are broken by it.
func (c *core) sameLife(p page, at time.Time) []Condition {
	born, models := bornOf(p), modelsOf(p, c.engine)
	why := c.lineage.renewed(born, models)
	if why == "" && c.counters.fell(c.countersOf(p)) {
		why = "its counters fell"
	}
	if why != "" {
		c.newLife(why, at)
	}
	c.lineage.born = born
	if len(models) > 0 {
		c.lineage.models = models
	}
	return append(c.lineage.checkRanks(p, at), c.lineage.condition(at)...)
}

// newLife begins another engine life: no rate and no stillness reaches back over it. why is empty when somebody has said so.
func (c *core) newLife(why string, at time.Time) {
	meta := *c.snap
	meta.Life++
	meta.LifeWhy = why
	meta.Version = ""
	c.snap = &meta
	c.counters = history{}
	c.queues, c.kv, c.tokens = motion{}, motion{}, motion{}
	c.lineage.ranks = map[string]map[string]time.Time{}
	if why != "" {
		c.lineage.begin(at)
	}
}

// setVersion records what the engine says its version is.
func (c *core) setVersion(v string) *Snapshot {
	meta := *c.snap
	meta.Version = v
	c.snap = &meta
	return c.snap
}

// engine tells whose page it is; known breaks a tie.
func (p page) engine(known string) string {
	has := func(engine string) bool {
		for name := range p.families {
			if strings.HasPrefix(name, engine+":") {
				return true
			}
		}
		return false
	}
	if known != "" && has(known) {
		return known
	}
	for _, e := range []string{engineVLLM, engineSGLang} {
		if has(e) {
			return e
		}
	}
	return known
}

// countersOf collects every counter that a recipe of this engine may want, where it can be trusted.
func (c *core) countersOf(p page) counters {
	out := counters{}
	for _, n := range names {
		for _, r := range table[n] {
			if r.engine != c.engine || (r.kind != rate && r.kind != ratio && r.kind != mean) {
				continue
			}
			for _, name := range r.names {
				for _, wire := range r.spellings(name) {
					if f, ok := p.families[wire]; ok {
						if shares, why := f.shares(r.where); why == "" {
							out[wire] = shares
						}
					}
				}
			}
		}
	}
	return out
}

// readAll makes a reading of every canonical signal.
func (c *core) readAll(p page, now counters, at time.Time) []Signal {
	out := make([]Signal, 0, len(names))
	for _, n := range names {
		out = append(out, c.read(n, p, now, at))
	}
	return out
}

// read tries the recipes of one signal in order and keeps the first whose metrics are on the page. Only where
// that one is declared without samples, or is a label that says nothing, does the next one get its turn: a
// wrong number is reported, not papered over.
func (c *core) read(n Name, p page, now counters, at time.Time) Signal {
	missing := Signal{Name: n, State: Missing, Why: "not exported"}
	for _, r := range table[n] {
		if r.engine != c.engine {
			continue
		}
		got, found := c.apply(r, p, now, at)
		if !found {
			continue
		}
		got.Name, got.Exported = n, true
		if got.Why == "" {
			got.State, got.At = Live, at
			return checkRange(got)
		}
		got.State, got.Value = Missing, 0
		missing = got
		if r.kind != label {
			break
		}
	}
	if missing.Source == "" && c.engine != "" && triedBy(n, c.engine) == nil {
		missing.Why = c.engine + " does not export it"
		missing.Source = strings.Join(Tried(n), ", ")
	} else if missing.Source == "" {
		missing.Source = strings.Join(triedBy(n, c.engine), ", ")
		missing.Exported = c.declared(n, p)
		if missing.Exported {
			missing.Why = "declared without samples"
		}
	}
	return missing
}

// declared reports whether the page names a metric of the signal without giving samples.
func (c *core) declared(n Name, p page) bool {
	for _, r := range table[n] {
		if r.engine != c.engine && c.engine != "" {
			continue
		}
		for _, name := range r.names {
			for _, wire := range append(r.spellings(name), name) {
				if p.declared[wire] {
					return true
				}
			}
		}
	}
	return false
}

// apply reads one recipe. found is false when its metrics have no samples on the page; Why of the result is set
// when they have, but no value can be told.
func (c *core) apply(r recipe, p page, now counters, at time.Time) (got Signal, found bool) {
	wire := make([]string, len(r.names))
	for i, name := range r.names {
		if wire[i] = p.firstOf(r, name); wire[i] == "" {
			return Signal{}, false
		}
	}
	switch r.kind {
	case gauge:
		return gaugeOf(r, p, wire[0]), true
	case label:
		v, why := p.families[wire[0]].labelProduct(r.labels)
		return Signal{Value: v, Why: why, Source: wire[0] + r.labelText()}, true
	case product:
		return productOf(r, p, wire), true
	case rate:
		grew, span, why := c.grown(wire[0], p, now, at, r.window)
		return Signal{Value: grew / span.Seconds(), Why: why, Source: wire[0]}, true
	case ratio:
		return c.quotient(r, p, now, at, wire[0], wire[1], "nothing was counted in the last "), true
	case mean:
		base := r.names[0]
		return c.quotient(r, p, now, at, base+"_sum", base+"_count", "no request was counted in the last "), true
	}
	return Signal{}, false
}

// firstOf returns the spelling of a recipe's name that has samples on the page, "" when none has.
func (p page) firstOf(r recipe, name string) string {
	spellings := r.spellings(name)
	if r.kind == mean {
		spellings = spellings[:1]
	}
	for _, s := range spellings {
		if f := p.families[s]; f.broken != "" || len(f.series) > 0 {
			return s
		}
	}
	return ""
}

// gaugeOf reads a gauge and its optional addends.
func gaugeOf(r recipe, p page, wire string) Signal {
	out := Signal{Source: wire}
	shares, why := p.families[wire].shares(r.where)
	if why != "" {
		out.Why = why
		return out
	}
	out.Value = combine(shares, r.across)
	for _, extra := range r.plus {
		f, ok := p.families[extra]
		if !ok {
			continue
		}
		more, why := f.shares(r.where)
		if why != "" {
			out.Why = extra + " " + why
			return out
		}
		out.Value += combine(more, r.across)
		out.Source += " + " + extra
	}
	return out
}

// productOf multiplies gauges: the first is the same on all ranks (a page's size), the others add up.
func productOf(r recipe, p page, wire []string) Signal {
	out := Signal{Value: 1, Source: strings.Join(wire, " * ")}
	for i, w := range wire {
		shares, why := p.families[w].shares(r.where)
		if why != "" {
			return Signal{Source: out.Source, Why: w + " " + why}
		}
		how := sum
		if i == 0 {
			how = most
		}
		out.Value *= combine(shares, how)
	}
	return out
}

// grown is the growth of one counter, with the reason that the page itself gives where there is none.
func (c *core) grown(wire string, p page, now counters, at time.Time, window time.Duration) (float64, time.Duration, string) {
	shares, ok := now[wire]
	if !ok {
		_, why := p.families[wire].shares([2]string{})
		return 0, 0, why
	}
	return c.counters.growth(wire, shares, at, window)
}

// quotient is the growth of one counter over the growth of another in the same window.
func (c *core) quotient(r recipe, p page, now counters, at time.Time, top, bottom, empty string) Signal {
	out := Signal{Source: top + " / " + bottom}
	a, _, why := c.grown(top, p, now, at, r.window)
	if why == "" {
		var b float64
		if b, _, why = c.grown(bottom, p, now, at, r.window); why == "" {
			if b == 0 {
				out.Why = empty + r.window.String()
				return out
			}
			out.Value = a / b
			if r.kind == ratio {
				out.Value = math.Min(out.Value, 1)
			}
			return out
		}
	}
	out.Why = why
	return out
}

// checkRange turns a value that its unit does not allow into a Missing one. Rounding above 1 is forgiven.
func checkRange(s Signal) Signal {
	const slack = 1e-6
	why := implausible(s.Value)
	switch UnitOf(s.Name) {
	case UnitFraction:
		if why == "" && s.Value > 1+slack {
			why = fmt.Sprintf("reads %g, and a fraction cannot be above 1", s.Value)
		}
		s.Value = math.Min(s.Value, 1)
	case UnitBool:
		if why == "" && s.Value != 0 && s.Value != 1 {
			why = fmt.Sprintf("reads %g, neither 0 nor 1", s.Value)
		}
	case UnitTokens:
		if why == "" && s.Value < 1 {
			why = "reads 0, which cannot be a capacity"
		}
	}
	if why != "" {
		s.Value, s.At, s.State, s.Why = 0, time.Time{}, Missing, why
	}
	return s
}

// allMissing is a reading of every signal that has none.
func allMissing(engine, why string) []Signal {
	out := make([]Signal, 0, len(names))
	for _, n := range names {
		out = append(out, Signal{Name: n, State: Missing, Why: why, Source: strings.Join(triedBy(n, engine), ", ")})
	}
	return out
}

// markFlat finds the readings that have stopped following load.
//
// The queues are one reading: running and waiting together must follow the requests in flight, while either
// alone may rightly stand still (a full batch, an empty queue). A reading that agrees with the load is never flat.
func (c *core) markFlat(readings []Signal, now counters, s scraped) {
	at := map[Name]*Signal{}
	for i := range readings {
		at[readings[i].Name] = &readings[i]
	}
	run, wait, kv := at[Running], at[Waiting], at[KVUsed]
	if run.Present() {
		c.queues.see(s.at, [2]float64{run.Value, wait.Value}, s.load)
		if run.Value+wait.Value != float64(s.load) {
			why := c.queues.stuck(s.at, s.load, c.flatAfter)
			flatten(run, why)
			flatten(wait, why)
		}
	}
	if kv.Present() {
		c.kv.see(s.at, [2]float64{kv.Value}, s.load)
		if s.load > 0 || kv.Value > kvIdle {
			flatten(kv, c.kv.stuck(s.at, s.load, c.flatAfter))
		}
	}
	if pre, dec := at[PrefillRate], at[DecodeRate]; pre.Exported || dec.Exported {
		c.tokens.see(s.at, [2]float64{total(now, pre.Source), total(now, dec.Source)}, s.load)
		why := c.tokens.idleUnderLoad(s.at, s.load, c.flatAfter)
		flatten(pre, why)
		flatten(dec, why)
	}
}

// flatten marks one reading.
func flatten(s *Signal, why string) {
	if why != "" && s.Present() {
		s.State, s.Why = Flat, why
	}
}

// total is the sum of a counter's shares; 0 where it was not read, which only ever compares equal to itself.
func total(now counters, wire string) float64 { return combine(now[wire], sum) }
