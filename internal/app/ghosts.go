package app

import (
	"fmt"
	"time"

	"admitd/gate/admission"
	"admitd/gate/journal"
)

// ghostsAfter is how long an engine may work for nobody before that is told: shorter is a caller that has just left.
const ghostsAfter = 10 * time.Second

// watchGhosts tells, once for each time, that the engine works on requests nobody waits for. They take slots and memory
// that callers wait for, and only a restart of the engine ends them before their time.
func (p *pool) watchGhosts() {
	n, since, now := 0, time.Time{}, time.Time{}
	p.admission.With(func(at time.Time, _ admission.Controlling) {
		now = at
		n, since = p.controller.Ghosts(at)
	})
	switch {
	case n == 0:
		p.haunted = false
	case !p.haunted && now.Sub(since) >= ghostsAfter:
		p.haunted = true
		text := fmt.Sprintf("the engine has worked for %s on %d requests that nobody waits for: their callers have left and it has not noticed",
			now.Sub(since).Round(time.Second), n)
		p.logger.Warn("engine works for nobody", "requests", n, "since", since)
		p.journal.Append(journal.Entry{At: now, Kind: journal.KindEvent,
			Event: &journal.Event{Name: "engine_ghosts", Level: "warn", Pool: p.name, Text: text}})
	}
}
