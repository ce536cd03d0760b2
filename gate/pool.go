// Package gate is the front door: the listener that authenticates, reads facts, asks for a decision, relays or
// refuses, settles and records.
//
// Goal: callers see the engine's bytes or a refusal their SDK understands; nothing reaches the engine that was
// not decided; every arrival has one decision and one ending.
//
// Non-goals: deciding (admission and policy do), knowing how the engine is run.
//
// Invariants: bytes are relayed unchanged both ways but for spliced fields; a refusal comes before any stream
// byte; admitd sends a request to the engine at most once once it may have started; prompt text and secrets
// go nowhere but to the engine.
package gate

import (
	"net/http"
	"time"

	"admitd/gate/journal"
	"admitd/signals"
	"admitd/supervisor"
)

// Pool is one served model: its engine, signals, admission and journal. Nothing in this package assumes that
// there is only one.
type Pool struct {
	// Model is the name callers use; Aliases are further ones.
	Model   string
	Aliases []string
	// EngineModel is the name the engine serves it under; the gate splices it in when it differs.
	EngineModel string
	Engine      supervisor.Engine
	// Snapshot returns the latest scrape; never nil after start.
	Snapshot  func() *signals.Snapshot
	Admission *Admission
	Journal   *journal.Journal
	// Offer takes a load report that the engine put beside an answer, and when that came; nil means that nobody wants it.
	Offer func(signals.ORCA, time.Time)
}

// offered hands on the load report among the headers of an answer, if there is one.
func (p *Pool) offered(h http.Header) {
	if p.Offer == nil {
		return
	}
	if o, ok := signals.ParseORCA(h); ok {
		p.Offer(o, time.Now())
	}
}
