package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"admitd/gate/admission"
	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/gate/quota"
	"admitd/gate/reason"
	"admitd/supervisor"
)

// unknownLabel stands in records for what a caller sent and the gate does not know: a path or a model name can
// hold anything, a key included.
const unknownLabel = "(unknown)"

// arrival is one request on its walk. Only the goroutine that serves it touches it.
type arrival struct {
	s *Server
	w *writer
	r *http.Request
	// writer is what w points to.
	writer writer
	id     string
	began  time.Time
	// decideAt is when the gate last began to work instead of waiting for bytes.
	decideAt time.Time

	ep    dialect.Endpoint
	grant quota.Grant
	class string
	facts dialect.Facts
	pool  *Pool
	// rid is the request's name at the engine, "" when it has none; see nameForEngine.
	rid  string
	body []byte
	// more takes what a body has beyond its declared length: nothing.
	more [1]byte
	// buffered is what this arrival has taken from the buffer budget.
	buffered int64
	// judged is the decision as it is recorded; verdict is the one in it, nil while there is none.
	judged  *judged
	verdict *admission.Verdict
	// by is the revision that judged, or would have: its name and its status codes are told together.
	by *policyMark

	// decided: the journal has the decision. admitted: a reservation or helper slot must be given back; settled: it was.
	decided  bool
	admitted bool
	settled  bool
	// released: what it held of the engine was given back, which can be long before the caller has everything.
	released bool
	helper   bool
	// abort: end the connection instead of the response, so that a cut body cannot pass for a whole one.
	abort bool
	out   outcome
	// flight is set while the request is at the engine.
	flight *flight
}

// writer remembers whether a status was sent. Unwrap keeps http.ResponseController working through it.
type writer struct {
	http.ResponseWriter
	status int
}

func (w *writer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap returns the wrapped writer.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// walk takes the arrival from the door to its answer.
func (a *arrival) walk() {
	a.hurryBody()
	if ref := a.front(); ref != nil {
		a.refuse(*ref)
		return
	}
	if a.ep.Class == dialect.Own {
		a.own()
		return
	}
	if ref := a.beforeBody(); ref != nil {
		a.refuse(*ref)
		return
	}
	if ref := a.understand(); ref != nil {
		a.refuse(*ref)
		return
	}
	if a.ep.Class == dialect.Helper {
		a.admitHelper()
	} else if !a.decide() {
		return
	}
	a.forward()
}

// front refuses what the request line and the headers alone condemn.
func (a *arrival) front() *refusal {
	a.ep = a.s.paths.Classify(a.r.Method, a.r.URL.EscapedPath())
	switch {
	case wantsUpgrade(a.r.Header):
		return &refusal{code: reason.UpgradeRefused}
	case keyInQuery(a.r.URL.RawQuery):
		return &refusal{code: reason.KeyInQuery}
	case a.ep.Class == dialect.Unknown:
		return &refusal{code: reason.PathUnknown}
	case a.ep.Class == dialect.Blocked:
		return &refusal{code: reason.PathBlocked}
	case !slices.Contains(a.ep.Methods, a.r.Method):
		return &refusal{code: reason.MethodNotAllowed, allow: a.ep.Methods,
			message: fmt.Sprintf("This path takes %s.", strings.Join(a.ep.Methods, ", "))}
	case a.ep.Kind == dialect.KindHealth:
		// Probes have no keys, and the answer tells nothing but up or not.
		return nil
	}
	var code reason.Code
	if a.grant, code = a.s.o.Keys.Authenticate(a.r.Header, a.began); code != reason.OK {
		return &refusal{code: code}
	}
	a.class = a.s.o.DefaultClass
	if a.grant.Class != "" {
		a.class = a.grant.Class
	}
	return nil
}

// wantsUpgrade reports an upgrade that the caller depends on. An offer of h2c is one that a server may ignore, and
// some HTTP clients make it with every request.
func wantsUpgrade(h http.Header) bool {
	for _, line := range h.Values("Upgrade") {
		for proto := range strings.SplitSeq(line, ",") {
			if p := strings.TrimSpace(proto); p != "" && !strings.EqualFold(p, "h2c") {
				return true
			}
		}
	}
	return false
}

// queryKeys are query parameters in which callers elsewhere send secrets, lower case.
var queryKeys = []string{"key", "api_key", "api-key", "apikey", "x-api-key", "x_api_key", "access_token", "auth_token", "token",
	"authorization", "auth", "bearer", "secret"}

func keyInQuery(raw string) bool {
	for part := range strings.FieldsFuncSeq(raw, func(r rune) bool { return r == '&' || r == ';' }) {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if slices.Contains(queryKeys, strings.ToLower(strings.TrimSpace(name))) {
			return true
		}
	}
	return false
}

// beforeBody refuses what needs no body to be refused, so that a caller who waits for 100 Continue never uploads.
func (a *arrival) beforeBody() *refusal {
	if p, ref := a.s.noneReady(a.began); ref != nil {
		return a.s.space(p, ref, a.began)
	}
	if limit := a.s.o.Limits.MaxBodyBytes; a.r.ContentLength > limit {
		return tooLarge(limit)
	}
	if enc := a.r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return &refusal{code: reason.BadRequest,
			message: "The body is compressed, and the gate reads only plain bodies; send it without Content-Encoding."}
	}
	return nil
}

// takeHelper takes a place among the helper calls at the engine. The body has been read: a caller who is slow to send
// it keeps nobody out.
func (a *arrival) takeHelper() *refusal {
	select {
	case a.s.helpers <- struct{}{}:
		a.helper = true
		return nil
	default:
		return &refusal{code: reason.HelperRate, retryAfter: time.Second,
			message: fmt.Sprintf("%d helper calls are at the engine, the limit is %d; try again when one has ended.",
				cap(a.s.helpers), cap(a.s.helpers))}
	}
}

// understand reads the body and finds out which pool and class it is for.
func (a *arrival) understand() *refusal {
	ref := a.readBody()
	a.decideAt = a.s.now()
	if ref != nil {
		return ref
	}
	if ref := a.read(a.ep); ref != nil {
		return ref
	}
	now := a.s.now()
	if ref := a.s.space(a.pool, a.s.notReady(a.pool, now), now); ref != nil || a.ep.Class != dialect.Helper {
		return ref
	}
	return a.takeHelper()
}

// read takes the facts from the body and resolves model and class.
func (a *arrival) read(ep dialect.Endpoint) *refusal {
	facts, problem := dialect.Read(ep, a.r.Header, a.body)
	a.facts = facts
	if problem != nil {
		return &refusal{code: problem.Reason, message: problem.Message, param: problem.Param}
	}
	if ref := a.resolve(); ref != nil {
		return ref
	}
	if _, known := a.s.o.Classes[facts.Class]; known && a.grant.MayChooseClass {
		a.class = facts.Class
	}
	return nil
}

// resolve leads the name asked for to its one pool. Nothing is ever passed on to a pool of another name.
func (a *arrival) resolve() *refusal {
	name := a.facts.Model
	if name == "" {
		if len(a.s.o.Pools) > 1 {
			return &refusal{code: reason.BadRequest, param: "model",
				message: `The field "model" is missing, and several models are served here; GET /v1/models lists the names.`}
		}
		a.pool = a.s.o.Pools[0]
	} else if a.pool = a.s.byName[name]; a.pool == nil {
		return &refusal{code: reason.ModelUnknown, param: "model"}
	}
	if !a.s.allowed(a.grant, a.pool) {
		return &refusal{code: reason.ModelForbidden, param: "model"}
	}
	return nil
}

// allowed reports whether a grant covers a pool; the names in it may be aliases.
func (s *Server) allowed(g quota.Grant, p *Pool) bool {
	return len(g.Models) == 0 || slices.ContainsFunc(g.Models, func(name string) bool { return s.byName[name] == p })
}

// decide asks for the decision and answers the arrival unless it was admitted.
func (a *arrival) decide() (admitted bool) {
	v := a.pool.Admission.decide(a.r.Context(), a.question())
	a.judged = &judged{verdict: v.Verdict}
	a.verdict, a.by = &a.judged.verdict, v.by
	switch v.Decision.Verdict {
	case policy.Admit:
		a.admitted = true
		a.record(reason.VerdictAdmit, reason.OK, "", 0, 0)
		return true
	case policy.Hold:
		// Nobody is there to answer: no status was sent, which is how the record tells this ending. Nor may net/http
		// send one: a caller who only closed its sending half would take the empty 200 for the answer.
		a.abort = true
		a.record(reason.VerdictDefer, v.Decision.Reason,
			fmt.Sprintf("The caller left after being held for %d ms.", v.HeldFor.Milliseconds()), 0, 0)
	case policy.Defer, policy.Reject:
		a.refuse(refusalOf(v.Verdict))
	}
	return false
}

func (a *arrival) question() admission.Arrival {
	q := admission.Arrival{ID: admission.ID(a.id), Facts: a.facts, Tenant: a.grant.Tenant, Class: a.class}
	if a.facts.Deadline > 0 {
		q.HoldDeadline = a.began.Add(a.facts.Deadline)
	}
	return q
}

func (a *arrival) admitHelper() {
	a.admitted = true
	a.record(reason.VerdictAdmit, reason.OK, "", 0, 0)
}

// finish runs on every way out, panics included: it gives back what the arrival holds and completes its records.
func (a *arrival) finish() {
	caught := recover()
	if err, ok := caught.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		a.abort = true
	} else if caught != nil {
		a.panicked(caught)
	}
	if a.admitted && !a.settled {
		a.settle()
	}
	if a.helper {
		<-a.s.helpers
	}
	a.dropBody()
	// net/http writes what it has kept back after this.
	a.hurryAnswer()
	if a.abort {
		panic(http.ErrAbortHandler)
	}
}

// panicked answers for a defect of ours. The value of a panic may hold anything, so only runtime errors are quoted.
func (a *arrival) panicked(caught any) {
	text := fmt.Sprintf("%T", caught)
	if err, ok := caught.(runtime.Error); ok {
		text = err.Error()
	}
	a.s.o.Logger.Error("panic while serving a request", "request_id", a.id, "panic", text, "stack", string(debug.Stack()))
	a.out.result.Ending, a.out.err = dialect.EndError, "internal error"
	if a.w.status != 0 {
		a.abort = true
		return
	}
	a.refuse(refusal{code: reason.InternalError, status: http.StatusInternalServerError})
}

// gone reports whether the caller has left.
func gone(ctx context.Context) bool { return ctx.Err() != nil }

// noneReady refuses when no pool at all can take a request, with the pool that is back first; with one pool that is
// the whole answer.
func (s *Server) noneReady(now time.Time) (soonest *Pool, first *refusal) {
	for _, p := range s.o.Pools {
		ref := s.notReady(p, now)
		if ref == nil {
			return nil, nil
		}
		if first == nil || ref.retryAfter < first.retryAfter {
			soonest, first = p, ref
		}
	}
	return soonest, first
}

// notReady refuses when a pool cannot take a request, with what its engine is doing; nil when it can. A gate that is
// being closed for good says so, whatever the engine does.
func (s *Server) notReady(p *Pool, now time.Time) *refusal {
	shut := p.Admission.closed()
	if st := p.Engine.Status(); st.State != supervisor.Ready && (shut == nil || shut.why != reason.Draining) {
		return engineRefusal(st, now)
	}
	if shut != nil {
		return &refusal{code: shut.why, message: shut.message, retryAfter: unknownWait}
	}
	return nil
}
