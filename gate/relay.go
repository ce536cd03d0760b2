package gate

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"admitd/gate/admission"
	"admitd/gate/dialect"
	"admitd/gate/reason"
	"admitd/gate/wire"
)

const (
	// maxPending bounds what is kept back while a stream's status waits for its first event, in bytes.
	maxPending = 64 << 10
	// progressTokens and progressEvery bound how often the controller hears of a stream.
	progressTokens = 16
	progressEvery  = 250 * time.Millisecond
	// engineFullWait is told when the engine's own queue was full: it knows no time.
	engineFullWait = 2 * time.Second
	// engineDownWait is told when the engine could not be reached although it should be there.
	engineDownWait = 5 * time.Second
)

// flow is one admitted request on its way through the engine. All of it runs in the goroutine that serves the request,
// but for what cannot wait there: see source.go for how the engine is read, outlet for how the caller is written to.
type flow struct {
	a    *arrival
	ctx  *wire.Context
	body *payload
	// up is the header that the engine gets; sent: nobody reads it any more.
	up     http.Header
	sent   bool
	out    outlet
	filter dialect.Filter
	resp   *http.Response

	// committed: a status was sent. kept: it was sent for a keep-alive, before the engine's own was known.
	committed, kept bool
	// closed: the filter was asked for its findings.
	closed bool
	// pending is what came before that.
	pending []byte
	edge    edge

	// firstBy is when a stream's status goes out without its first event, aliveAt when the next keep-alive does; zero
	// means never.
	firstBy, aliveAt time.Time

	// counted output events; reported to the controller so many tokens, at that time.
	counted  int
	reported int
	reportAt time.Time
}

// forward sends the admitted request and relays the response. What it leaves in a.out, finish settles.
func (a *arrival) forward() {
	if gone(a.r.Context()) {
		// Decided and left in the same instant: what nobody waits for is not sent.
		a.out.result.Ending, a.abort = dialect.EndCaller, true
		return
	}
	body, err := a.splice()
	if err != nil {
		a.out.result.Ending, a.out.err = dialect.EndInvalid, "the body could not be spliced"
		a.reject(reason.BadRequest, "The body cannot be passed on with the model name that the engine needs; send plain JSON.", 0)
		return
	}
	a.flight = newFlight(a.r.Context())
	ctx := &a.flight.ctx
	defer ctx.Cancel()
	if a.verdict != nil {
		a.pool.Admission.flights.add(admission.ID(a.id), a.flight)
		defer a.pool.Admission.flights.remove(admission.ID(a.id))
	}
	f, ok := a.s.flows.Get().(*flow)
	if !ok {
		f = &flow{up: http.Header{}}
	}
	f.a, f.ctx, f.body = a, ctx, &payload{data: body}
	// A caller that cannot be written to has left.
	f.out.init(a.w, a.s.ahead, max(a.s.o.WriteStall, 0), ctx)
	// Also when something panics: nothing may write to the caller once the handler has returned.
	through := false
	defer func() {
		_ = f.out.close()
		if through && f.sent && f.out.alone() {
			up := f.up
			clear(up)
			*f = flow{up: up}
			a.s.flows.Put(f)
		}
	}()
	f.rearm()
	f.run()
	// The engine is through with this request, whatever the caller still has to read.
	ctx.Cancel()
	if f.body.drop() {
		a.dropBody()
	}
	left := a.out.result.Ending == dialect.EndCaller || a.flight.wasEvicted()
	a.release()
	f.drain()
	through = true
	if left {
		a.endAtEngine()
	}
}

// drain waits until the caller has everything, leaves, or stops reading.
func (f *flow) drain() {
	if done := f.out.end(); done != nil {
		select {
		case <-done:
		case <-f.a.r.Context().Done():
		}
	}
	if err := f.out.close(); err != nil {
		f.callerGone(err)
	}
}

// callerGone ends a request whose caller does not get the whole answer.
func (f *flow) callerGone(err error) {
	a := f.a
	a.out.result.Ending, a.out.err = dialect.EndCaller, ""
	if errors.Is(err, errStalled) {
		a.out.err = fmt.Sprintf("the caller read nothing for %s", a.s.o.WriteStall)
	}
	// Whoever only closed its sending half still reads: what it got must not end like a whole answer.
	a.abort = true
}

// splice makes the body that the engine gets. For a moment there may be two of them; the budget knows.
func (a *arrival) splice() ([]byte, error) {
	twice := int64(len(a.body))
	a.s.buffers.owe(twice)
	defer a.s.buffers.give(twice)
	body, err := dialect.Splice(a.ep, a.body, a.edits())
	a.body = nil
	return body, err
}

// edits are the only changes of the request.
func (a *arrival) edits() dialect.Edits {
	a.nameForEngine()
	e := dialect.Edits{DropPriority: true, IncludeUsage: a.addsUsage(), RequestID: a.rid}
	if a.pool.EngineModel != "" && a.facts.Model != "" && a.pool.EngineModel != a.facts.Model {
		e.Model = &a.pool.EngineModel
	}
	return e
}

// addsUsage: the gate wants to know what a stream cost, whether or not the caller does.
func (a *arrival) addsUsage() bool {
	k := a.ep.Kind
	return a.facts.Stream && !a.facts.IncludeUsage && (k == dialect.KindChat || k == dialect.KindCompletions)
}

// responseModel is the name to put into the response; "" when it stays.
func (a *arrival) responseModel() string {
	if a.s.o.ModelNameInResponse != ModelAsked || a.facts.Model == "" || a.pool.EngineModel == "" || a.facts.Model == a.pool.EngineModel {
		return ""
	}
	return a.facts.Model
}

// reject answers an arrival that had been admitted; the decision is on record already, the outcome will be.
func (a *arrival) reject(code reason.Code, message string, after time.Duration) {
	if after > 0 {
		// One failure lets many callers down at once.
		after = a.s.spaces[a.pool].broken.after(a.s.now(), after)
	}
	a.writeRefusal(a.complete(refusal{code: code, message: message, retryAfter: after}))
}

// left ends a request whose caller went away: the engine is told by cancelling, and what it produced so far counts.
// A response that was passed on whole stays whole; drain finds out.
func (f *flow) left() {
	f.ctx.Cancel()
	rest := f.closeFilter()
	if f.a.flight.wasEvicted() && !gone(f.a.r.Context()) {
		f.taken(rest)
		return
	}
	if !f.committed || f.a.out.result.Ending != dialect.EndWhole {
		f.callerGone(nil)
		return
	}
	f.write(rest)
}

// closeFilter takes the filter's findings, once; rest is what it still held back.
func (f *flow) closeFilter() (rest []byte) {
	if f.closed {
		return nil
	}
	f.closed = true
	if f.resp == nil {
		f.a.out.result.Ending = dialect.EndError
		return nil
	}
	rest, f.a.out.result = f.filter.Close()
	return rest
}

// onHead takes the engine's head, and reports whether its body is wanted.
func (f *flow) onHead(resp *http.Response) (more bool) {
	a := f.a
	f.resp = resp
	a.pool.offered(resp.Header)
	if f.body.drop() {
		a.dropBody()
	}
	a.out.events = isEventStream(resp)
	f.filter.Init(dialect.FilterOptions{Endpoint: a.ep, Stream: a.out.events, Status: resp.StatusCode,
		StripUsage: a.addsUsage(), RewriteModel: a.responseModel()})
	if f.committed {
		return true
	}
	if full(resp.StatusCode) {
		// Said with a status of its own, but without Retry-After and in the engine's own shape.
		f.engineFull()
		return false
	}
	if denied(resp.StatusCode) {
		f.engineDenied(resp.StatusCode)
		return false
	}
	if !a.out.events || resp.StatusCode != http.StatusOK || a.s.o.FirstEventWait < 0 {
		f.commit()
		return true
	}
	f.firstBy = time.Now().Add(a.s.o.FirstEventWait)
	return true
}

// full: what engines answer when their own queue is full.
func full(status int) bool {
	return status == http.StatusServiceUnavailable || status == dialect.StatusOverloaded
}

func isEventStream(r *http.Response) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}

// unreachable: no byte of an answer came. The request is not sent again, for it may have started.
func (f *flow) unreachable(err error) {
	if gone(f.a.r.Context()) {
		f.left()
		return
	}
	a := f.a
	a.s.o.Logger.Warn("the engine could not be reached", "request_id", a.id, "pool", a.pool.Model, "error", plainError(err))
	a.out.result.Ending, a.out.err = dialect.EndError, "the engine could not be reached"
	f.refuseOrTell(reason.EngineDown, "The engine closed the connection before it answered; admitd is looking after it. Try again in a moment.", engineDownWait)
}

// refuseOrTell refuses while no status was sent, and says it inside the stream after that.
func (f *flow) refuseOrTell(code reason.Code, message string, after time.Duration) {
	if !f.committed {
		f.a.reject(code, message, after)
		return
	}
	entry, _ := reason.Lookup(code)
	f.tell(f.a.statusOf(code, entry), message)
}

// tell writes an error event and the dialect's terminal mark into a stream that has begun.
func (f *flow) tell(status int, message string) {
	if gap := f.edge.close(); gap != "" {
		f.write([]byte(gap))
	}
	if f.resp != nil {
		f.write(f.filter.StreamError(status, message))
		return
	}
	f.write(dialect.StreamError(f.a.ep.Family, f.a.ep.Kind, status, message))
}

// onChunk takes what one read of the engine's body gave.
func (f *flow) onChunk(data []byte, err error) (more bool) {
	data = f.filter.Feed(data)
	f.count()
	f.giveBack(err)
	ok := f.forwardBytes(data)
	if ok && err != nil {
		f.onEnd(err)
	}
	return ok && err == nil
}

// giveBack releases the request's place when the engine has said everything, before the caller can have it: whoever has its
// whole answer may ask again. err is how the engine's body ended, nil while it has not. Endings that are still to be turned
// into something else, and those that were cut, are released when that is done.
func (f *flow) giveBack(err error) {
	a := f.a
	if a.released || !f.committed && !a.out.events || f.misfit() || !f.filter.Through(errors.Is(err, io.EOF)) {
		return
	}
	result := f.filter.Result()
	if !f.committed && result.Ending != dialect.EndWhole {
		return
	}
	a.out.result = result
	a.release()
}

// forwardBytes passes bytes on, or keeps them while the status waits. It reports whether to go on.
func (f *flow) forwardBytes(data []byte) bool {
	switch {
	case f.misfit():
		return true
	case f.committed:
		f.write(data)
		return true
	}
	f.pending = append(f.pending, data...)
	ev, seen := f.filter.FirstEvent()
	if seen && ev.IsError {
		f.convert(ev)
		return false
	}
	if seen || len(f.pending) > maxPending {
		f.commit()
	}
	return true
}

// misfit: a keep-alive promised an event stream, and the engine answered something else. Its bytes cannot be
// passed on; its ending is told inside the stream.
func (f *flow) misfit() bool {
	return f.kept && (!f.a.out.events || f.resp.StatusCode != http.StatusOK)
}

// commit sends the status, the headers and what had been kept back.
func (f *flow) commit() {
	if f.committed {
		return
	}
	f.committed, f.firstBy = true, time.Time{}
	a := f.a
	h := a.w.Header()
	status := http.StatusOK
	if f.resp != nil {
		downstreamHeader(h, f.resp.Header, a.addsUsage() || a.responseModel() != "")
		status = f.resp.StatusCode
	} else {
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
	}
	own := []string{reason.VerdictAdmit, a.id}
	h["X-Admitd-Decision"], h["X-Admitd-Request-Id"] = own[0:1:1], own[1:2:2]
	if a.out.events || f.kept {
		streamHeader(h)
	}
	a.w.WriteHeader(status)
	f.edge.see(f.pending)
	f.out.start(a.out.events || f.kept, f.pending)
	f.pending = nil
	f.rearm()
}

// write passes bytes on at once, but for a caller that is behind. One that cannot be written to has left: run sees it.
func (f *flow) write(data []byte) {
	if len(data) == 0 {
		return
	}
	f.edge.see(data)
	f.out.put(data)
	f.rearm()
}
