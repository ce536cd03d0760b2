package supervisor

import (
	"fmt"
	"time"
)

// liveness judges from health probes and token counters whether a ready engine still works. An answer of /health proves
// nothing (it does not touch the engine), and a missing one may be a burst: only both together, or work in hand with no
// counter moving, count. Pure: time comes in.
type liveness struct {
	failures   int
	stallAfter time.Duration

	fails     int
	lastError string
	// known, running and tokens are the latest progress report; moved when the counter last changed or nothing was in hand.
	known     bool
	running   int
	tokens    float64
	idleSince time.Time
	// movedAt is when tokens last grew; firstFail when the present row of failures began.
	movedAt, firstFail time.Time
	// hinted is set when the engine's own words say that it is dead: then one failed probe is enough. Words alone are not,
	// because an engine that logs its requests prints what callers wrote.
	hinted bool
	// doubt is set by declare: the engine must prove itself, by tokens or by a probe that generates one.
	doubt bool
}

// healthy records a health probe's result at now.
func (l *liveness) healthy(now time.Time, err error) {
	if err == nil {
		l.fails, l.lastError, l.hinted = 0, "", false
		return
	}
	if l.fails == 0 {
		l.firstFail = now
	}
	l.fails++
	l.lastError = err.Error()
}

// progress records a progress report at now. One that is not known ends the observation: what was not seen is not held
// against the engine.
func (l *liveness) progress(now time.Time, running int, tokens float64, ok bool) {
	if !ok {
		l.known = false
		return
	}
	moved := l.known && tokens != l.tokens
	if moved {
		l.movedAt = now
		l.doubt = false
	}
	if moved || !l.known || running <= 0 || l.running <= 0 {
		l.idleSince = now
	}
	l.known, l.running, l.tokens = true, running, tokens
}

// proved records that a probe brought a token out of the engine.
func (l *liveness) proved(now time.Time) {
	l.doubt = false
	l.idleSince = now
}

// stalled reports whether the engine does not work at now, and why.
func (l *liveness) stalled(now time.Time) (why string, yes bool) {
	switch {
	case l.hinted && l.fails > 0:
		return "it reports its own death: " + l.lastError, true
	case l.fails >= l.failures && !l.movedAt.After(l.firstFail):
		return fmt.Sprintf("%d health probes in a row failed and no token came out: %s", l.fails, l.lastError), true
	case l.known && l.running > 0 && now.Sub(l.idleSince) >= l.stallAfter:
		return fmt.Sprintf("%d requests are in hand and no token counter moved for %s", l.running, now.Sub(l.idleSince).Round(time.Second)), true
	case l.doubt:
		return "it stalled and has not produced a token since", true
	}
	return "", false
}

// declare says that the engine was found stalled; from now on only a token clears it.
func (l *liveness) declare() { l.doubt = true }

// askToken reports whether a probe that generates a token should be tried: in doubt, with nothing known to be in hand
// whose own tokens would tell.
func (l *liveness) askToken() bool { return l.doubt && l.fails == 0 && (!l.known || l.running <= 0) }
