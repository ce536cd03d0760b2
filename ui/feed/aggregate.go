package feed

import (
	"cmp"
	"slices"
	"time"

	"admitd/gate/reason"
	"admitd/ui/api"
)

// TopRows is the number of tenants or sessions listed; the others are summed in one row.
const TopRows = 50

// sums gathers what api.Counts shows.
type sums struct {
	api.Counts
	meant, meantEnded, met int
	estimated, real        int64
	ttft                   []float64
}

func (s *sums) add(it *item) {
	d, o := it.decision, it.outcome
	s.Arrivals++
	if s.FirstAt.IsZero() || it.at.Before(s.FirstAt) {
		s.FirstAt = it.at
	}
	if it.at.After(s.LastAt) {
		s.LastAt = it.at
	}
	if d.Attempt > 0 {
		s.Retries++
	}
	if MeantRefused(d) {
		s.meant++
	}
	switch d.Verdict {
	case reason.VerdictDefer:
		s.Deferred++
		return
	case reason.VerdictReject:
		s.Rejected++
		return
	}
	s.Admitted++
	s.ReservedTokens += int64(d.ReservedTokens)
	if o == nil {
		s.InFlight++
		return
	}
	s.Ended++
	if o.SLOMet {
		s.SLOMet++
	}
	if MeantEnded(d, o) {
		s.meantEnded++
		if o.SLOMet {
			s.met++
		}
	}
	s.tokens(it)
}

func (s *sums) tokens(it *item) {
	o := it.outcome
	if o.PromptTokens != nil {
		s.PromptTokens += int64(*o.PromptTokens)
		if !o.Estimated {
			s.estimated += int64(it.decision.PromptTokens)
			s.real += int64(*o.PromptTokens)
		}
	}
	if o.CompletionTokens != nil {
		s.CompletionTokens += int64(*o.CompletionTokens)
	}
	if o.TTFTMS != nil {
		s.ttft = append(s.ttft, *o.TTFTMS)
	}
}

func (s *sums) counts() api.Counts {
	c := s.Counts
	c.Goodput = ratio(s.met, s.meant+s.meantEnded)
	if s.real > 0 {
		b := float64(s.estimated) / float64(s.real)
		c.EstimateBias = &b
	}
	slices.Sort(s.ttft)
	c.TTFTP95 = rank(s.ttft, 0.95)
	return c
}

// merge adds another row's sums to this one.
func (s *sums) merge(o *sums) {
	s.Arrivals += o.Arrivals
	s.Admitted += o.Admitted
	s.Deferred += o.Deferred
	s.Rejected += o.Rejected
	s.InFlight += o.InFlight
	s.Ended += o.Ended
	s.SLOMet += o.SLOMet
	s.Retries += o.Retries
	s.ReservedTokens += o.ReservedTokens
	s.PromptTokens += o.PromptTokens
	s.CompletionTokens += o.CompletionTokens
	s.meant += o.meant
	s.meantEnded += o.meantEnded
	s.met += o.met
	s.estimated += o.estimated
	s.real += o.real
	s.ttft = append(s.ttft, o.ttft...)
	if s.FirstAt.IsZero() || !o.FirstAt.IsZero() && o.FirstAt.Before(s.FirstAt) {
		s.FirstAt = o.FirstAt
	}
	if o.LastAt.After(s.LastAt) {
		s.LastAt = o.LastAt
	}
}

type group struct {
	sums
	name       string
	last       *item
	maxAttempt int
	sessions   map[string]struct{}
}

// groups sums the decisions by a key; those for which it is "" are left out. It also tells the oldest decision's time.
func (f *Feed) groups(key func(*item) string) (list []*group, from *time.Time) {
	by := map[string]*group{}
	f.items.each(func(it *item) bool {
		if from == nil {
			at := it.at
			from = &at
		}
		k := key(it)
		if k == "" {
			return true
		}
		g := by[k]
		if g == nil {
			g = &group{name: k, sessions: map[string]struct{}{}}
			by[k] = g
			list = append(list, g)
		}
		g.add(it)
		g.last = it
		g.maxAttempt = max(g.maxAttempt, it.decision.Attempt)
		if s := it.decision.Session; s != "" {
			g.sessions[s] = struct{}{}
		}
		return true
	})
	return list, from
}

// cut keeps the first TopRows groups and sums the rest, nil when there is no rest.
func cut(list []*group) ([]*group, *group) {
	if len(list) <= TopRows {
		return list, nil
	}
	rest := &group{name: "others", sessions: map[string]struct{}{}}
	for _, g := range list[TopRows:] {
		rest.merge(&g.sums)
		rest.maxAttempt = max(rest.maxAttempt, g.maxAttempt)
		for s := range g.sessions {
			rest.sessions[s] = struct{}{}
		}
	}
	return list[:TopRows], rest
}

// Tenants sums the decisions in the ring by tenant, busiest first.
func (f *Feed) Tenants() api.Tenants {
	f.mu.Lock()
	defer f.mu.Unlock()
	list, from := f.groups(func(it *item) string { return it.decision.Tenant })
	slices.SortStableFunc(list, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.Arrivals, a.Arrivals), cmp.Compare(a.name, b.name))
	})
	list, rest := cut(list)
	out := api.Tenants{From: from, Tenants: []api.TenantRow{}}
	for _, g := range list {
		out.Tenants = append(out.Tenants, g.tenant())
	}
	if rest != nil {
		r := rest.tenant()
		out.Others = &r
	}
	return out
}

func (g *group) tenant() api.TenantRow {
	r := api.TenantRow{Tenant: g.name, Sessions: len(g.sessions), Counts: g.counts()}
	if g.last != nil {
		r.LastVerdict, r.LastReason = g.last.decision.Verdict, g.last.decision.Reason
	}
	return r
}

// Sessions sums the decisions in the ring by session, latest first.
func (f *Feed) Sessions() api.Sessions {
	f.mu.Lock()
	defer f.mu.Unlock()
	list, from := f.groups(func(it *item) string {
		if it.decision.Session == "" {
			return ""
		}
		return it.decision.Tenant + "\x00" + it.decision.Session
	})
	slices.SortStableFunc(list, func(a, b *group) int { return b.LastAt.Compare(a.LastAt) })
	list, rest := cut(list)
	out := api.Sessions{From: from, Sessions: []api.SessionRow{}}
	for _, g := range list {
		out.Sessions = append(out.Sessions, g.session())
	}
	if rest != nil {
		r := rest.session()
		out.Others = &r
	}
	return out
}

func (g *group) session() api.SessionRow {
	r := api.SessionRow{Session: g.name, Counts: g.counts(), MaxAttempt: g.maxAttempt}
	if g.last != nil {
		d := g.last.decision
		r.Session, r.Tenant, r.Class, r.Source = d.Session, d.Tenant, d.Class, d.SessionSource
		r.LastVerdict, r.LastReason = d.Verdict, d.Reason
	}
	return r
}
