package supervisor

import (
	"fmt"
	"time"
)

// Bounds on how a stall is judged.
const (
	// probePatience is how long a probe may be on its way before its silence is held against the engine.
	probePatience = 3 * time.Second
	// lookLasts is how long a probe's result counts as a fresh one.
	lookLasts = 2 * time.Second
	// secondChance is the most that an engine which answers again gets to bring out a token.
	secondChance = 10 * time.Second
	// silence is how long a probe goes unanswered when the engine is more than slow.
	silence = time.Second
)

// liveness judges from health probes and token counters whether a ready engine still works. An answer of /health proves
// nothing (it does not touch the engine), and a missing one may be a burst: only both together, or work in hand with no
// counter moving, count. Pure: time comes in.
type liveness struct {
	failures   int
	stallAfter time.Duration

	fails     int
	lastError string
	// probing is when the probe on its way began, zero when there is none; unanswered when the first one began that was not
	// answered well, zero when the last one was; resulted when the last one ended.
	probing, unanswered, resulted time.Time
	// known and running are the latest progress report; tokens is the last count that was known, if counted.
	known, counted bool
	running        int
	tokens         float64
	// idleSince is when the counter last changed or nothing was in hand; heard when the engine last answered anything.
	idleSince, heard time.Time
	// movedAt is when tokens last grew; firstFail when the present row of failures began.
	movedAt, firstFail time.Time
	// hinted is set when the engine's own words say that it is dead: then one failed probe is enough. Words alone are not,
	// because an engine that logs its requests prints what callers wrote.
	hinted bool
	// doubt is set by declare: the engine must prove itself, by tokens or by a probe that generates one.
	doubt bool
	// resumed is when an engine in doubt answered again after it had been silent.
	resumed time.Time

	// provenAt is when a token last came out, or the engine became ready.
	provenAt time.Time
	// deaf counts looks at the model list in a row that failed while health answered; barren, canaries in a row without a token.
	deaf, barren int
	// lostAt is when a process of the engine was found to have gone and no token has come out since; zero otherwise.
	lostAt time.Time
}

// lossLag is how long after the loss of a process the counters may still grow by what came out before it.
const lossLag = 5 * time.Second

// canaries is how many tokens asked for in vain, with nothing else in hand, make an engine stalled: one may have met a hiccup.
const canaries = 2

// asked records that a health probe begins at now.
func (l *liveness) asked(now time.Time) {
	l.probing = now
	if l.unanswered.IsZero() {
		l.unanswered = now
	}
}

// healthy records a health probe's result at now.
func (l *liveness) healthy(now time.Time, err error) {
	l.probing, l.resulted = time.Time{}, now
	if err == nil {
		if l.doubt && l.resumed.IsZero() && !l.unanswered.IsZero() && now.Sub(l.unanswered) >= silence {
			l.resumed = now
		}
		l.fails, l.lastError, l.hinted = 0, "", false
		l.unanswered, l.heard = time.Time{}, now
		return
	}
	if l.fails == 0 {
		l.firstFail = now
	}
	l.fails++
	l.lastError = err.Error()
}

// progress records a progress report at now. running always counts; known says whether tokens do. A counter that is the same
// after a gap in which it was not known has stood still in it, because it only grows; one that fell is another engine's.
func (l *liveness) progress(now time.Time, running int, tokens float64, known bool) {
	grew := known && l.counted && tokens > l.tokens
	if grew {
		l.movedAt, l.provenAt, l.doubt = now, now, false
		l.deaf, l.barren = 0, 0
		if now.Sub(l.lostAt) > lossLag {
			l.lostAt = time.Time{}
		}
	}
	fresh := known && (!l.counted || tokens < l.tokens)
	if grew || fresh || running <= 0 || l.running <= 0 {
		l.idleSince = now
	}
	if known {
		l.tokens, l.counted, l.heard = tokens, true, now
	}
	l.known, l.running = known, running
}

// proved records that a probe brought a token out of the engine.
func (l *liveness) proved(now time.Time) {
	l.doubt = false
	l.idleSince, l.provenAt = now, now
	l.deaf, l.barren, l.lostAt = 0, 0, time.Time{}
}

// bereaved records that a process of the engine has gone which was there when it became ready. That may have been a helper,
// or all that brought out tokens: health answers either way (sglang#6624).
func (l *liveness) bereaved(now time.Time) { l.lostAt = now }

// listed records a look at the model list of an engine whose health had just answered.
func (l *liveness) listed(err error) {
	if err == nil {
		l.deaf = 0
		return
	}
	l.deaf++
	l.lastError = err.Error()
}

// unproved records that a canary brought out no token.
func (l *liveness) unproved(err error) {
	l.barren++
	l.lastError = err.Error()
}

// canaryDue reports whether an engine without work should be asked for a token: none has come out for after (never, if that is
// not positive), a process of it has gone, or its server answers nothing but /health. The caller makes sure that nothing is in
// hand.
func (l *liveness) canaryDue(now time.Time, after time.Duration) bool {
	if l.doubt || l.fails > 0 || l.running > 0 {
		return false
	}
	return l.deaf >= l.failures || l.barren > 0 || !l.lostAt.IsZero() || after > 0 && now.Sub(l.provenAt) >= after
}

// quiet is how long the engine has answered nothing while it had work.
func (l *liveness) quiet(now time.Time) time.Duration {
	if l.heard.After(l.idleSince) {
		return now.Sub(l.heard)
	}
	return now.Sub(l.idleSince)
}

// stalled reports whether the engine does not work at now, and why.
func (l *liveness) stalled(now time.Time) (f finding, yes bool) {
	still := now.Sub(l.idleSince).Round(time.Second)
	switch {
	case l.hinted && l.fails > 0:
		return finding{CoreDead, "it reports its own death: " + l.lastError}, true
	case l.fails >= l.failures && !l.movedAt.After(l.firstFail):
		return finding{Unhealthy, fmt.Sprintf("%d health probes in a row failed and no token came out: %s", l.fails, l.lastError)}, true
	case l.known && l.running > 0 && now.Sub(l.idleSince) >= l.stallAfter:
		return finding{NoProgress, fmt.Sprintf("%d requests are in hand and no token counter moved for %s", l.running, still)}, true
	case l.mute(now):
		return finding{Mute, fmt.Sprintf("%d requests are in hand and neither its metrics nor its health answered for %s", l.running, l.quiet(now).Round(time.Second))}, true
	case !l.known && l.running > 0 && l.deaf >= l.failures && now.Sub(l.idleSince) >= l.stallAfter:
		return finding{Hollow, fmt.Sprintf("%d requests are in hand for %s and only /health answers: %s", l.running, still, l.lastError)}, true
	case l.barren >= canaries && l.deaf >= l.failures:
		return finding{Hollow, "it answers /health and nothing else, and brought out no token: " + l.lastError}, true
	case l.barren >= canaries:
		return finding{Frozen, fmt.Sprintf("it has nothing to do and brought out no token when asked %d times: %s", l.barren, l.lastError)}, true
	case l.doubt:
		return finding{Frozen, "it stalled and has not produced a token since"}, true
	}
	return finding{}, false
}

// mute reports whether an engine with work has answered nothing for too long. Not having been asked does not count.
func (l *liveness) mute(now time.Time) bool {
	return !l.known && l.running > 0 && l.quiet(now) >= l.stallAfter &&
		!l.unanswered.IsZero() && now.Sub(l.unanswered) >= min(probePatience, l.stallAfter/2)
}

// declare says that the engine was found stalled; from now on only a token clears it.
func (l *liveness) declare() { l.doubt, l.resumed = true, time.Time{} }

// overdue reports whether a stall that began at since has lasted for limit. An engine that answers again after a silence is
// given time to bring out a token, once.
func (l *liveness) overdue(now, since time.Time, limit time.Duration) bool {
	if !l.resumed.IsZero() && now.Sub(l.resumed) < min(limit, secondChance) {
		return false
	}
	return now.Sub(since) >= limit
}

// looked reports whether the engine was asked a moment ago, so that what is known of it is not old news; patience is how long an
// answer may be waited for.
func (l *liveness) looked(now time.Time, patience time.Duration) bool {
	if !l.probing.IsZero() {
		return now.Sub(l.probing) >= patience
	}
	return !l.resulted.IsZero() && now.Sub(l.resulted) <= lookLasts
}

// askToken reports whether a probe that generates a token should be tried: in doubt, with nothing known to be in hand
// whose own tokens would tell.
func (l *liveness) askToken() bool { return l.doubt && l.fails == 0 && (!l.known || l.running <= 0) }

// askHealth reports whether a probe should come before its time: work is in hand, and nothing has told of it for a while.
func (l *liveness) askHealth(now time.Time) bool {
	return !l.known && l.running > 0 && l.unanswered.IsZero() && l.quiet(now) >= l.stallAfter/4
}
