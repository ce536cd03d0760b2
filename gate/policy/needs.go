package policy

import (
	"fmt"
	"strings"

	"admitd/signals"
)

// NeedsError says that the engine does not export a signal that the policy cannot work without.
type NeedsError struct {
	// Policy is the policy's name; Signal and Why come from its Need.
	Policy string
	Signal signals.Name
	Why    string
	// Tried lists the metric names that were looked for.
	Tried []string
	// Engine and Version as the engine states them, "" while unknown.
	Engine  string
	Version string
	// Unread is why the engine's metrics could not be read at all, "" when they were and the signal was not among them.
	Unread string
	// All lists every signal that the policy needs; set with Unread.
	All []signals.Name
}

// Error implements error.
func (e *NeedsError) Error() string {
	if e.Unread != "" {
		names := make([]string, len(e.All))
		for i, n := range e.All {
			names[i] = string(n)
		}
		return fmt.Sprintf("policy %s needs %s, and the engine's metrics cannot be read: %s; mend that, or choose a policy that does without, such as %s",
			e.Policy, strings.Join(names, " and "), e.Unread, Concurrency)
	}
	engine := e.Engine
	if engine == "" {
		engine = "of unknown kind"
	} else if e.Version != "" {
		engine += " " + e.Version
	}
	tried := "anything that admitd knows it by"
	if len(e.Tried) > 0 {
		tried = strings.Join(e.Tried, ", ")
	}
	return fmt.Sprintf("policy %s needs %s: %s; the engine (%s) exports none of: %s; choose a policy that does without it, such as %s",
		e.Policy, e.Signal, e.Why, engine, tried, Concurrency)
}

// CheckNeeds compares what a policy needs with what the engine exported in snap, and returns a *NeedsError for
// the first signal that was not there. A snapshot without any good scrape proves nothing, so the answer is nil
// then: ask again after the first good one. tried names the metrics that were looked for; it may be nil.
func CheckNeeds(c *Compiled, snap *signals.Snapshot, tried func(signals.Name) []string) error {
	if snap == nil || snap.At.IsZero() {
		return nil
	}
	for _, n := range c.Policy.Needs() {
		if snap.Get(n.Signal, snap.At).Present() {
			continue
		}
		e := &NeedsError{Policy: c.Policy.Name(), Signal: n.Signal, Why: n.Why, Engine: snap.Engine, Version: snap.Version}
		if tried != nil {
			e.Tried = tried(n.Signal)
		}
		return e
	}
	return nil
}

// CheckUnread is CheckNeeds for an engine of which no scrape has been good: it returns a *NeedsError naming every signal
// that the policy needs, nil when it needs none. why says what is wrong with the scrapes.
func CheckUnread(c *Compiled, why string) error {
	needs := c.Policy.Needs()
	if len(needs) == 0 {
		return nil
	}
	e := &NeedsError{Policy: c.Policy.Name(), Signal: needs[0].Signal, Why: needs[0].Why, Unread: why}
	for _, n := range needs {
		e.All = append(e.All, n.Signal)
	}
	return e
}
