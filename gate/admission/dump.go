package admission

import (
	"maps"
	"sort"
	"time"

	"admitd/gate/policy"
)

// Dump implements Controlling.
func (c *Controller) Dump(now time.Time, d Depth) Digest {
	g := Digest{
		At: now, InFlight: c.books.seqs, Held: c.hold.len(), ReservedTokens: c.books.reserved, Slots: c.slots(),
		Arrivals: c.counts.arrivals, Admitted: c.counts.admitted, Deferred: c.counts.deferred,
		Rejected: c.counts.rejected, Settled: c.counts.settled, Withdrawn: c.counts.withdrawn,
		TicketsHonoured: c.tickets.honoured, TicketsEarly: c.tickets.early, TicketsIgnored: c.tickets.ignored,
		Promised: len(c.tickets.promises), ReleaseRate: c.rate.at(now, c.books.seqs > 0).perSecond(),
		EstimateCorrection: c.est.correction, ExpectedOutput: c.est.expectedOutput(),
	}
	if d >= PerTenant {
		g.ByTenant = make(map[string]int, len(c.books.tenants))
		maps.Copy(g.ByTenant, c.books.tenants)
	}
	if d >= PerRequest {
		g.Requests = c.reservations()
		c.hold.each(func(h *heldItem) {
			g.HeldRequests = append(g.HeldRequests, HeldRequest{
				ID: h.a.ID, Tenant: h.a.Tenant, Since: h.since, Until: h.until, Returned: h.returned, PromptTokens: h.est.prompt, Reason: h.last.Reason,
			})
		})
	}
	return g
}

func (c *Controller) reservations() []Reservation {
	fs := make([]*flight, 0, len(c.books.flights))
	for _, f := range c.books.flights {
		fs = append(fs, f)
	}
	sort.Slice(fs, func(i, j int) bool { return fs[i].order < fs[j].order })
	out := make([]Reservation, len(fs))
	for i, f := range fs {
		out[i] = Reservation{
			ID: f.id, Tenant: f.tenant, AdmittedAt: f.sentAt, FirstTokenAt: f.firstAt,
			PromptTokens: f.est.prompt, ReservedTokens: f.reserved, Generated: f.generated, Sequences: f.est.seqs,
		}
	}
	return out
}

// EstimateError tells how far prompt estimates were from what the engine said.
func (c *Controller) EstimateError() EstimateError { return c.est.stats() }

// State returns what a policy would see at the time now for a fresh arrival. It changes nothing.
func (c *Controller) State(now time.Time) policy.State { return c.state(now, c.promisedTo(now, false)) }

// ViewOf is the part of a state that a journal record keeps.
func ViewOf(s policy.State) View {
	return View{
		InFlight: s.InFlight, Unseen: s.Unseen, Unstarted: s.Unstarted, Promised: s.Promised,
		Held: s.Held, ReservedTokens: s.ReservedTokens, Slots: s.Slots,
	}
}

// Rejudge asks what a policy would say of a recorded request in a recorded state: for explain and for a dry run of a
// new policy over the past. It answers Admit or Defer; hold queue and schedule are not part of the record.
func Rejudge(p *policy.Compiled, r policy.Request, s policy.State) policy.Decision {
	return p.Policy.Decide(r, s)
}
