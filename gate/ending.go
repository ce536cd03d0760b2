package gate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"admitd/gate/admission"
	"admitd/gate/dialect"
	"admitd/gate/reason"
)

// onEnd ends the response when the engine's body has: io.EOF, or the error that cut it.
func (f *flow) onEnd(err error) {
	a, whole := f.a, errors.Is(err, io.EOF)
	rest := f.closeFilter()
	a.out.endedAt = a.s.now()
	if !whole && gone(a.r.Context()) {
		f.left()
		return
	}
	if !whole && a.out.result.Ending == dialect.EndWhole {
		a.out.result.Ending = dialect.EndCut
	}
	f.noteEngineError()
	switch {
	case f.misfit():
		f.tellMisfit()
	case f.committed:
		f.finish(rest, whole)
	default:
		f.finishUncommitted(rest, whole)
	}
}

// finishUncommitted ends a stream whose status has not been sent: it may still become a real one.
func (f *flow) finishUncommitted(rest []byte, whole bool) {
	f.pending = append(f.pending, rest...)
	ev, seen := f.filter.FirstEvent()
	switch {
	case seen && ev.IsError:
		f.convert(ev)
	case f.a.out.result.Ending != dialect.EndWhole && (!seen || f.a.out.result.UsageUnknown):
		// A part of an event is no event, nor are comments; a last one that lacks only its blank line is.
		f.a.out.result.Ending, f.a.out.err = dialect.EndError, "the engine ended the stream before its first event"
		f.a.reject(reason.EngineDown, "The engine ended the response before its first event; try again in a moment.", engineDownWait)
	default:
		f.commit()
		f.finish(nil, whole)
	}
}

// finish passes on the last bytes and makes a cut response look like one.
func (f *flow) finish(rest []byte, whole bool) {
	f.write(rest)
	switch {
	case f.a.out.events && f.a.out.result.Ending == dialect.EndCut:
		f.tell(http.StatusBadGateway, "The engine stopped in the middle of this answer; what came before is not complete.")
	case !f.a.out.events && !whole:
		f.a.abort = true
	}
}

func (f *flow) tellMisfit() {
	r := &f.a.out.result
	status, message := f.resp.StatusCode, r.ErrorMessage
	if denied(status) {
		f.noteDenied(status)
		status, message = http.StatusBadGateway, deniedMessage
	}
	if status < 400 {
		status = http.StatusBadGateway
	}
	if message == "" {
		message = fmt.Sprintf("The engine answered status %d instead of a stream.", f.resp.StatusCode)
	}
	if r.Ending == dialect.EndWhole {
		r.Ending = dialect.EndError
	}
	f.tell(status, message)
}

// noteEngineError says for the record how a response failed. The engine's own words are not kept: they may quote
// the prompt.
func (f *flow) noteEngineError() {
	r := &f.a.out.result
	code := r.ErrorCode
	if code == 0 {
		code = f.resp.StatusCode
	}
	switch r.Ending {
	case dialect.EndError, dialect.EndInvalid:
		f.a.out.err = fmt.Sprintf("the engine answered error %d", code)
	case dialect.EndRefused:
		f.a.out.err = "the engine's queue was full"
	case dialect.EndAborted:
		f.a.out.err = "the engine ended the request itself"
	case dialect.EndCut:
		f.a.out.err = "the engine stopped in the middle of its answer"
	case dialect.EndWhole, dialect.EndCaller:
	}
}

// engineFull refuses a request that the engine's own queue had no room for: in the caller's shape, and with a time to
// come back, which engines do not give.
func (f *flow) engineFull() {
	f.ctx.Cancel()
	f.closeFilter()
	f.a.out.result.Ending, f.a.out.err = dialect.EndRefused, "the engine's queue was full"
	f.a.reject(reason.EngineFull, "", engineFullWait)
}

// denied: the engine did not take the key that it was sent. That key is admitd's own; the caller's never gets there.
func denied(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// deniedMessage is for callers: it must not read as if their own key were wrong.
const deniedMessage = "The engine did not accept admitd's own key; your key is not concerned. An operator must correct it."

// engineDenied answers for an engine that refused admitd's key.
func (f *flow) engineDenied(status int) {
	f.ctx.Cancel()
	f.closeFilter()
	f.noteDenied(status)
	f.a.reject(reason.EngineDown, deniedMessage, longWait)
}

func (f *flow) noteDenied(status int) {
	a := f.a
	a.s.o.Logger.Error("the engine did not accept admitd's key; check that both have the same one", "request_id", a.id,
		"pool", a.pool.Model, "status", status)
	a.out.result.Ending = dialect.EndError
	a.out.err = fmt.Sprintf("the engine answered error %d to admitd's own key", status)
}

// convert turns an error that came as a stream's first event into a real status, while that is still possible.
// 503 and 529 are the engine's full queue and become engine_full; any other keeps the engine's code, 500 where it has none.
func (f *flow) convert(ev dialect.FirstEvent) {
	switch {
	case full(ev.Code):
		f.engineFull()
		return
	case denied(ev.Code):
		f.engineDenied(ev.Code)
		return
	}
	f.ctx.Cancel()
	f.closeFilter()
	a := f.a
	status := ev.Code
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	a.out.result.Ending = dialect.EndError
	if status < 500 {
		a.out.result.Ending = dialect.EndInvalid
	}
	a.out.err = fmt.Sprintf("the engine answered error %d as its first event", status)
	contentType, body := dialect.Refusal(a.ep.Family, engineError, status, ev.Message, "")
	h := a.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Admitd-Decision", reason.VerdictAdmit)
	h.Set("X-Admitd-Request-Id", a.id)
	a.answer(status, body)
}

// engineError is the error code of an answer that is the engine's own, not a refusal of ours.
const engineError reason.Code = "engine_error"

// count notes when tokens came, and tells the controller, not for every token.
func (f *flow) count() {
	a := f.a
	if !a.out.events {
		return
	}
	n := f.filter.OutputEvents()
	if n == f.counted {
		return
	}
	f.counted = n
	now := a.s.now()
	a.out.lastAt = now
	if a.out.firstAt.IsZero() {
		a.out.firstAt = now
	}
	if told, ok := f.filter.RunningCompletionTokens(); ok && told > n {
		n = told
	}
	due := f.reported == 0 || n-f.reported >= progressTokens || now.Sub(f.reportAt) >= progressEvery
	if a.verdict == nil || !due || n <= f.reported {
		return
	}
	f.reported, f.reportAt = n, now
	a.pool.Admission.Progress(admission.ID(a.id), n)
}

// keepsAlive reports whether this request's stream is never to be silent for long.
func (f *flow) keepsAlive() bool {
	return f.a.s.o.KeepAliveComment > 0 && f.a.facts.Stream && f.a.ep.Generates()
}

// rearm starts the wait for the next keep-alive again.
func (f *flow) rearm() {
	if f.keepsAlive() {
		f.aliveAt = time.Now().Add(f.a.s.o.KeepAliveComment)
	}
}

// keepAlive sends what every reader of the dialect passes over, between two events only. The first one spends the
// status: an engine error after it comes inside the stream.
func (f *flow) keepAlive() {
	if f.aliveAt = (time.Time{}); f.committed && !f.kept && !f.a.out.events {
		return
	}
	if !f.committed {
		f.kept = true
		f.commit()
	}
	switch {
	case !f.edge.clean() || f.out.behind():
		f.rearm()
	case f.a.ep.Family == dialect.Anthropic:
		f.write([]byte("event: ping\ndata: {\"type\": \"ping\"}\n\n"))
	default:
		f.write([]byte(": keep-alive\n\n"))
	}
}

// edge knows whether what was written to an event stream ends between two events.
type edge struct {
	last [4]byte
	n    int
}

func (e *edge) see(p []byte) {
	if len(p) >= len(e.last) {
		e.n = copy(e.last[:], p[len(p)-len(e.last):])
		return
	}
	keep := min(e.n, len(e.last)-len(p))
	copy(e.last[:], e.last[e.n-keep:e.n])
	e.n = keep + copy(e.last[keep:], p)
}

func (e *edge) tail() []byte { return e.last[:e.n] }

func (e *edge) clean() bool {
	return e.n == 0 || bytes.HasSuffix(e.tail(), []byte("\n\n")) || bytes.HasSuffix(e.tail(), []byte("\r\n\r\n")) ||
		bytes.HasSuffix(e.tail(), []byte("\r\r"))
}

// close returns what ends an event that was broken off, so that an event of ours does not become part of it.
func (e *edge) close() string {
	switch {
	case e.clean():
		return ""
	case bytes.HasSuffix(e.tail(), []byte("\n")):
		return "\n"
	}
	return "\n\n"
}
