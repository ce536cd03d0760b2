package admission

import "time"

// Adopt takes requests into the books that another gate has admitted and still serves: the engine owes them something, so
// they count like our own until Settle. One whose id is in flight here already is left as it is. They count as arrived and
// admitted, so that what was admitted equals what was settled and what is in flight.
func (c *Controller) Adopt(now time.Time, flights []Reservation) {
	for _, r := range flights {
		if r.ID == "" || c.books.flights[r.ID] != nil {
			continue
		}
		reserved := max(r.ReservedTokens, 0)
		prompt := min(max(r.PromptTokens, 0), reserved)
		// cut: the sizes behind the estimate are not known here, so nothing is to be learnt from how far it was off.
		e := estimate{prompt: prompt, output: reserved - prompt, seqs: min(max(r.Sequences, 1), maxSeqs), cut: true, generates: reserved > prompt}
		sent := r.AdmittedAt
		if sent.IsZero() || sent.After(now) {
			sent = now
		}
		f := c.books.add(sent, Arrival{ID: r.ID, Tenant: r.Tenant}, e)
		if r.Generated > 0 {
			at := r.FirstTokenAt
			if at.IsZero() || at.After(now) {
				at = now
			}
			c.books.progress(at, f, r.Generated)
		}
		c.counts.arrivals++
		c.counts.admitted++
	}
}
