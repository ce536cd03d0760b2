package dialect

// Through reports whether the response has said all that it can say, and told how it went: a whole stream with its terminal
// mark, a whole JSON body, or the end of one that is not read. The connection may still be open, as engines close streams a
// little after the terminal mark. ended tells that the body has ended.
func (f *Filter) Through(ended bool) bool {
	switch f.mode {
	case modeSSE:
		return f.obs.terminal && f.ending() == EndWhole
	case modeJSON:
		return f.done
	case modeUnknown, modeOpaque:
	}
	return ended
}

// Result is what was seen so far. Close returns the whole of it.
func (f *Filter) Result() Result {
	r := Result{
		Ending: f.ending(), Usage: f.obs.usage(), OutputEvents: f.obs.outputs, FinishReason: f.obs.finish,
		ErrorCode: f.obs.errorCode, ErrorMessage: f.obs.errorMessage, UsageUnknown: f.obs.unreadable,
	}
	if r.ErrorCode == 0 && f.o.Status >= 400 {
		r.ErrorCode = f.o.Status
	}
	return r
}
