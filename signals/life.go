package signals

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"
)

// ConditionCode names a way in which a page is whole and still cannot be believed as it stands.
type ConditionCode string

const (
	// RankMissing: a data-parallel rank that was on the page is not on it any more, so that a sum would be too small and the
	// fullest rank may be the one that is not seen.
	RankMissing ConditionCode = "rank_missing"
	// MixedEngines: pages of different engine processes come in turn, as behind a balancer or with two servers on one port.
	MixedEngines ConditionCode = "mixed_engines"
)

// ConditionCodes lists every code. The caller may keep the slice.
func ConditionCodes() []ConditionCode { return []ConditionCode{RankMissing, MixedEngines} }

// Has reports whether a snapshot has a condition. A nil Snapshot has none.
func (s *Snapshot) Has(code ConditionCode) bool {
	return s != nil && slices.ContainsFunc(s.Conditions, func(c Condition) bool { return c.Code == code })
}

// Condition is one such finding, with its words.
type Condition struct {
	Code ConditionCode
	Text string
}

// Bounds on how engine lives and ranks are told apart.
const (
	// startSlack is how far a start time may move without meaning another process: some libraries compute it anew from a clock
	// that is being corrected.
	startSlack = 2.0
	// mixedLives within mixedWithin are more than any engine restarts: several processes answer in turn.
	mixedLives  = 3
	mixedWithin = time.Minute
	// rankGrace is how long a rank may be absent until it counts as taken out of service.
	rankGrace = time.Minute
)

// lineage is what tells one engine process from the next.
type lineage struct {
	// born are the start times that the page tells: of the process, and of its token counters by series.
	born map[string]float64
	// models are the served names on the page.
	models []string
	// lives are when lives began that nobody had announced, oldest first.
	lives []time.Time
	// ranks is when each rank of a family was last on a page.
	ranks map[string]map[string]time.Time
	// mixed is the time of the page that showed last that several processes answer.
	mixed time.Time
}

func newLineage() lineage { return lineage{ranks: map[string]map[string]time.Time{}} }

// createdNames are gauges that tell when the engine's token counters were made: its start, in processes that tell no other.
func createdNames() []string {
	return []string{"vllm:generation_tokens_created", "vllm:prompt_tokens_created"}
}

// bornOf collects the start times of a page.
func bornOf(p page) map[string]float64 {
	out := map[string]float64{}
	for _, name := range append(createdNames(), startTimeName) {
		for _, s := range p.families[name].series {
			if implausible(s.value) == "" {
				out[name+"{"+labelKey(s.labels, nil)+"}"] = s.value
			}
		}
	}
	return out
}

// modelsOf lists the served names that the queue gauges of a page carry, sorted.
func modelsOf(p page, engine string) []string {
	var out []string
	for _, r := range table[Running] {
		if r.engine != engine {
			continue
		}
		for _, s := range p.families[r.names[0]].series {
			if m := s.labels["model_name"]; m != "" && !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	sort.Strings(out)
	return out
}

// renewed says why a page comes from another engine process than the one before; "" when nothing tells so.
func (l *lineage) renewed(born map[string]float64, models []string) string {
	for key, was := range l.born {
		if is, still := born[key]; still && math.Abs(is-was) > startSlack {
			return "its start time changed"
		}
	}
	if len(l.models) > 0 && len(models) > 0 && !slices.Equal(l.models, models) {
		return fmt.Sprintf("it serves %q now, not %q", models, l.models)
	}
	return ""
}

// begin notes a life that nobody announced.
func (l *lineage) begin(at time.Time) {
	keep := 0
	for keep < len(l.lives) && at.Sub(l.lives[keep]) > mixedWithin {
		keep++
	}
	l.lives = append(l.lives[keep:], at)
	if len(l.lives) >= mixedLives {
		l.mixed = at
	}
}

// condition says whether several processes are known to answer in turn at the time at.
func (l *lineage) condition(at time.Time) []Condition {
	if l.mixed.IsZero() || at.Sub(l.mixed) > mixedWithin {
		return nil
	}
	return []Condition{{MixedEngines, fmt.Sprintf("the engine's counters began anew %d times within %s: more than one engine answers at this address",
		len(l.lives), mixedWithin)}}
}

// rankOf is the data-parallel rank of a series, "" when it has none.
func rankOf(labels map[string]string) string {
	if r := labels["engine"]; r != "" {
		return r
	}
	return labels["dp_rank"]
}

// checkRanks breaks the families of a page that lack a rank which they had, for the time that it may come back.
func (l *lineage) checkRanks(p page, at time.Time) []Condition {
	var gone []string
	for name, f := range p.families {
		if f.broken != "" || len(f.series) == 0 {
			continue
		}
		known := l.ranks[name]
		if known == nil {
			known = map[string]time.Time{}
			l.ranks[name] = known
		}
		ranked := false
		for _, s := range f.series {
			if r := rankOf(s.labels); r != "" {
				known[r], ranked = at, true
			}
		}
		if !ranked {
			delete(l.ranks, name) // it is labelled in another way now
			continue
		}
		var lost []string
		for r, seen := range known {
			switch {
			case seen.Equal(at):
			case at.Sub(seen) > rankGrace:
				delete(known, r)
			default:
				lost = append(lost, r)
			}
		}
		if len(lost) == 0 {
			continue
		}
		sort.Strings(lost)
		why := fmt.Sprintf("rank %s of %d is missing from the page", strings.Join(lost, ", "), len(known))
		p.families[name] = family{broken: why}
		gone = append(gone, why)
	}
	if len(gone) == 0 {
		return nil
	}
	sort.Strings(gone)
	return []Condition{{RankMissing, gone[0]}}
}

// mixedUp withdraws what one of several engines says of itself: nobody knows which one the next request meets.
func mixedUp(readings []Signal, conditions []Condition) {
	for _, c := range conditions {
		if c.Code != MixedEngines {
			continue
		}
		for i := range readings {
			if readings[i].Present() || readings[i].Exported {
				r := &readings[i]
				r.Value, r.At, r.State, r.Why = 0, time.Time{}, Missing, "more than one engine answers at this address"
			}
		}
	}
}
