package dialect

// ending judges the whole response. A success is a finish reason and the terminal mark and no error; engines
// send any two of the three with a failure.
func (f *Filter) ending() Ending {
	o := &f.obs
	switch {
	case f.o.Status >= 300:
		return endingOf(f.o.Status)
	case o.failed && o.outputs > 0:
		return EndError
	case o.failed:
		return endingOf(o.errorCode)
	case o.aborted:
		return EndAborted
	case o.finishError:
		return EndError
	}
	whole := false
	switch f.mode {
	case modeSSE:
		whole = o.terminal && o.allFinished()
	case modeJSON:
		whole = f.done
	case modeUnknown:
		whole = !f.o.Stream && !f.o.Endpoint.Generates() // an empty answer
	case modeOpaque:
		// Speech and plain-text transcripts; every other operation answers JSON.
		if whole = o.kind == KindAudio; !whole {
			return EndError
		}
	}
	if whole {
		return EndWhole
	}
	return EndCut
}

// endingOf judges an error by its status. 401 and 403 are between admitd and the engine: the caller's key never
// gets there.
func endingOf(status int) Ending {
	switch {
	case status == 429 || status == 503 || status == StatusOverloaded:
		return EndRefused
	case status == 401 || status == 403:
		return EndError
	case status >= 400 && status < 500:
		return EndInvalid
	}
	return EndError
}

// allFinished reports whether everything that began has its finish reason.
func (o *observer) allFinished() bool {
	switch o.kind {
	case KindChat, KindCompletions:
		return o.seen.n > 0 && o.finished.n == o.seen.n
	case KindMessages, KindResponses:
		return o.finish != ""
	}
	return true
}

// isUsageOnly reports whether the event is the chunk that include_usage asks for: no choices, but usage. Where
// the engine counts along on every chunk it would have come anyway.
func (o *observer) isUsageOnly() bool {
	return o.ev.usage && o.ev.choices && o.ev.items == 0 && !o.ev.failed && !o.usageWithOutput
}

// markDone takes the OpenAI dialects' terminal mark, which is an event of its own without facts.
func (o *observer) markDone() {
	o.terminal, o.firstSeen = true, true
	o.ev = eventFacts{}
}
