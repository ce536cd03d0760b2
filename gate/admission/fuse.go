package admission

import (
	"time"

	"admitd/gate/policy"
	"admitd/signals"
)

// endingGrace is how long after an ending a scrape may still show the request. vLLM 0.32 was seen to need 30 ms
// after a caller left; its metrics lag one engine step more.
const endingGrace = time.Second

// lastKVGood is how long the KV use of the last honest scrape is a floor under contradicted ones.
const lastKVGood = 5 * time.Second

// load is the fused view of the engine's batch and queue.
type load struct {
	running, waiting int
	// pendingNew is the part of stillNew that the engine has taken no KV for: waiting, or not yet in its gauges.
	pendingNew int
	// untaken are all that no gauge and no token proves to have left the engine's queue.
	untaken int
}

// fuseLoad corrects a scrape's running and waiting by what the ledger did since:
//
//	endings    each one that had been running lets one waiting request run
//	first tokens   a request that waited and has produced one since runs
//	sent since     runs while slots are known to be free and nothing waits, else waits
//	not shown      what the ledger had in flight and the scrape does not show is counted all the same: as sent
//	               since when it had no token yet (gauges move only with an engine step), else as running
//
// The two kinds of proof that a waiting request started (an ending made room, a first token came) tell of the
// same requests, so the larger one counts, not both. No more can run than there are slots, unless the engine itself
// shows more: the excess waits.
func fuseLoad(running, waiting, slots int, t tally) load {
	missing := max(0, t.atScrape-(running+waiting))
	missingNew := min(missing, t.stillNew)
	missingOld := missing - missingNew
	waitingNew := min(waiting, max(0, t.newAtScrape-missingNew))
	stillWaitingNew := min(waitingNew, max(0, t.stillNew-missingNew))
	seenWaiting := min(max(0, waiting-t.goneRan), waiting-waitingNew+stillWaitingNew)
	seenRunning := max(0, running+waiting+missingOld-t.gone-seenWaiting)

	run := seenRunning + t.unseenStarted
	fresh := t.unseenNew + missingNew
	queued := fresh
	if slots > 0 && seenWaiting == 0 {
		queued = max(0, fresh-max(0, slots-run))
	}
	run += fresh - queued
	excess := 0
	if slots > 0 {
		excess = max(0, run-max(slots, running))
	}
	return load{
		running:    run - excess,
		waiting:    seenWaiting + queued + excess,
		pendingNew: min(t.stillNew, missingNew+stillWaitingNew),
		untaken:    seenWaiting + fresh,
	}
}

// fuseKV corrects a scrape's KV use, as a fraction of capacity tokens, by what the ledger did since: prompts sent or
// still to be started and tokens generated are added whole; endings give back only the share of their tokens that
// the engine's own figure shows ledger tokens to take (shared prefixes are counted once by the engine).
func fuseKV(kv, capacity float64, l load, t tally) float64 {
	if capacity <= 0 {
		return kv
	}
	pending := 0
	if t.stillNew > 0 {
		pending = int(int64(t.stillNewTokens) * int64(l.pendingNew) / int64(t.stillNew))
	}
	share := 1.0
	if t.tokensAtScrape > 0 {
		share = min(1, kv*capacity/float64(t.tokensAtScrape))
	}
	tokens := kv*capacity + float64(t.unseenTokens+t.grown+pending) - share*float64(t.goneTokens)
	return max(0, tokens/capacity)
}

// contradiction says how a scrape disagrees with the ledger, "" when it does not.
//
// A real vLLM 0.32 showed running 0, waiting 7 and KV 0 in the middle of an overload, between two preemptions;
// believed, that is "all free" exactly when it is worst.
func contradiction(running, waiting int, t tally) string {
	if running == 0 && waiting > 0 && t.streaming > 0 {
		return "nothing is said to run while answers stream"
	}
	if shown := running + waiting; 2*shown < t.mustSee && t.mustSee-shown >= 2 {
		return "far fewer requests are shown than are known to be there"
	}
	return ""
}

// kvContradiction does the same for the KV gauge. A gauge may round 2 % down to 0.
func kvContradiction(kv, capacity float64, t tally) string {
	if kv == 0 && capacity > 0 && t.mustSee > 0 && float64(t.tokensAtScrape) > 0.02*capacity {
		return "KV use is said to be 0 while answers stream"
	}
	return ""
}

// state builds what the policy sees at the time now. promised is the room kept for ticket holders.
func (c *Controller) state(now time.Time, promised int) policy.State {
	s := policy.State{
		Now:            now,
		InFlight:       c.books.seqs,
		Unstarted:      c.books.unstarted,
		Promised:       promised,
		ReservedTokens: c.books.reserved,
		Held:           len(c.hold.items),
		Slots:          c.slots(),
		KVCapacity:     c.kvCapacity(),
	}
	running, waiting, kv := c.read(signals.Running, now), c.read(signals.Waiting, now), c.read(signals.KVUsed, now)
	var t tally
	if c.snap != nil {
		t = c.books.view(c.snap.At, c.prevAt)
		s.Unseen = t.unseenNew + t.unseenStarted
	} else {
		s.Unseen = c.books.seqs
	}
	s.Running, s.Waiting, s.KVUsed = running, waiting, kv
	if c.books.seqs == 0 && !c.cfg.Shared {
		c.idleView(&s, t)
		return s
	}
	c.fuse(&s, t)
	return s
}

// idleView is the view with nothing in flight on an engine that only we use: whatever the gauges say, nothing runs, unless
// tokens come out all the same.
func (c *Controller) idleView(s *policy.State, t tally) {
	if c.haunted(s.Now) {
		return
	}
	// Gauges that still show what ended a moment ago are late, not wrong.
	late := c.snap != nil && !c.snap.At.After(c.books.lastEnd.Add(endingGrace)) && !c.books.lastEnd.IsZero()
	for _, sig := range []*signals.Signal{&s.Running, &s.Waiting, &s.KVUsed} {
		if !fresh(*sig) || sig.Value == 0 {
			continue
		}
		if !late && t.fading == 0 {
			sig.State, sig.Why = signals.Contradicted, "nothing is in flight"
		}
		sig.Value = 0
	}
}

func (c *Controller) fuse(s *policy.State, t tally) {
	l := load{pendingNew: t.stillNew}
	why := ""
	capacity := s.KVCapacity.Value
	if !s.KVCapacity.Present() {
		capacity = 0
	}
	if fresh(s.Waiting) && fresh(s.Running) {
		r, w := gauge(s.Running), gauge(s.Waiting)
		if ghosts := min(t.fading, r+w-t.atScrape); ghosts > 0 && !c.cfg.Shared {
			// What ended a moment before the scrape and still shows in it has ended all the same.
			t.gone += ghosts
			t.goneRan += ghosts
		}
		l = fuseLoad(r, w, s.Slots, t)
		if why = contradiction(r, w, t); why != "" {
			l.waiting = max(l.waiting, c.ledgerWaiting(s))
			l.running = max(l.running, s.InFlight-l.waiting)
			s.Running.State, s.Running.Why = signals.Contradicted, why
			s.Waiting.State, s.Waiting.Why = signals.Contradicted, why
		}
		s.Running.Value, s.Waiting.Value = float64(l.running), float64(l.waiting)
	} else if fresh(s.Waiting) {
		// Without running, what was sent since can only be counted as waiting.
		s.Waiting.Value += float64(t.unseenNew)
	}
	if !fresh(s.KVUsed) {
		return
	}
	raw := s.KVUsed.Value
	if s.KVUsed.At.After(c.snap.At) {
		t, l = c.since(s.KVUsed.At, t, l)
	}
	if why == "" {
		why = kvContradiction(raw, capacity, t)
	}
	s.KVUsed.Value = fuseKV(raw, capacity, l, t)
	if why == "" {
		return
	}
	s.KVUsed.State, s.KVUsed.Why = signals.Contradicted, why
	if capacity > 0 {
		s.KVUsed.Value = max(s.KVUsed.Value, float64(s.ReservedTokens)/capacity)
	}
	if s.Now.Sub(c.lastKVAt) <= lastKVGood {
		s.KVUsed.Value = max(s.KVUsed.Value, c.lastKV)
	}
}

// since is the view of a KV reading that is younger than its scrape, because it came with an answer: what happened in between is in
// it. What was sent in between and has brought no token yet is taken to have no KV yet.
func (c *Controller) since(at time.Time, t tally, l load) (tally, load) {
	k := c.books.tally(at, c.snap.At)
	l.pendingNew = min(k.stillNew, l.pendingNew+max(0, k.stillNew-t.stillNew))
	return k, l
}

func (c *Controller) ledgerWaiting(s *policy.State) int {
	if s.Slots > 0 {
		return max(0, s.InFlight-s.Slots)
	}
	return s.Unstarted
}

// read gives a signal as the snapshot has it, stale also by the controller's own limit.
func (c *Controller) read(n signals.Name, now time.Time) signals.Signal {
	sig := c.snap.Get(n, now)
	if limit := c.cfg.SignalStaleAfter; limit > 0 && fresh(sig) && sig.Age(now) > limit {
		sig.State, sig.Why = signals.Stale, "older than "+limit.String()
	}
	return sig
}

// kvCapacity is what the engine said as it started, else what the latest scrape says, else what was configured; it does not age.
// A scrape comes second because its blocks times their size are not the capacity of a hybrid model.
func (c *Controller) kvCapacity() signals.Signal {
	if sig := c.snap.Get(signals.KVCapacity, c.engine.at); !c.engine.kvTold && sig.Present() && sig.Value > 0 {
		sig.State, sig.Why = signals.Live, ""
		return sig
	}
	if c.engine.kvCapacity > 0 {
		return signals.Signal{
			Name: signals.KVCapacity, Value: float64(c.engine.kvCapacity), Unit: signals.UnitTokens,
			Source: "engine start-up", At: c.engine.at, State: signals.Live,
		}
	}
	return signals.Signal{Name: signals.KVCapacity, Unit: signals.UnitTokens, State: signals.Missing, Why: "neither scraped nor told"}
}

func fresh(s signals.Signal) bool {
	return s.State == signals.Live || s.State == signals.Flat || s.State == signals.Contradicted
}

// gauge rounds a count up: it may be the mean or the sum over several engines.
func gauge(s signals.Signal) int {
	const most = 1 << 30
	if !(s.Value > 0) {
		return 0
	}
	if s.Value > most {
		return most
	}
	n := int(s.Value)
	if float64(n) < s.Value {
		n++
	}
	return n
}
