package gate

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"admitd/gate/admission"
	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/gate/reason"
)

// Bounds of Retry-After: the only values that every common SDK honours.
const (
	minRetry = time.Second
	maxRetry = 60 * time.Second
)

// refusal is why an arrival is not served, before it is written in the caller's dialect.
type refusal struct {
	code reason.Code
	// verdict is the word of the catalogue when empty.
	verdict string
	// message is the catalogue's sentence when empty. It holds nothing that the caller sent.
	message string
	param   string
	// status is found by code when 0.
	status int
	// retryAfter is when to come back; 0 with a rejection means that coming back is hopeless.
	retryAfter time.Duration
	ticket     string
	allow      []string
}

// refusalOf turns the controller's verdict into a refusal.
func refusalOf(v admission.Verdict) refusal {
	ref := refusal{code: v.Decision.Reason, verdict: reason.VerdictDefer, message: v.Decision.Message,
		retryAfter: v.RetryAfter, ticket: v.Ticket}
	if v.Decision.Verdict == policy.Reject {
		ref.verdict = reason.VerdictReject
	}
	return ref
}

// complete fills in from the catalogue what the refusal leaves open.
func (a *arrival) complete(ref refusal) refusal {
	entry, _ := reason.Lookup(ref.code)
	set(&ref.verdict, entry.Verdict)
	set(&ref.message, entry.Doc)
	if ref.status == 0 {
		ref.status = a.statusOf(ref.code, entry)
	}
	if entry.Retry == reason.RetryNever {
		ref.retryAfter = 0
	} else if ref.verdict == reason.VerdictDefer && ref.retryAfter <= 0 {
		ref.retryAfter = minRetry
	}
	if ref.retryAfter > 0 {
		ref.retryAfter = min(max(ref.retryAfter, minRetry), maxRetry)
	}
	return ref
}

// statusOf: the running policy's own codes win over the configuration's, those over the catalogue's.
func (a *arrival) statusOf(c reason.Code, entry reason.Entry) int {
	if m := a.policyMark(); m != nil {
		if status, ok := m.codes[c]; ok {
			return status
		}
	}
	if status, ok := a.s.o.StatusOverrides[c]; ok {
		return status
	}
	if entry.Status == 0 {
		return http.StatusServiceUnavailable
	}
	return entry.Status
}

// policyMark is the revision that judges for this arrival: the pool's, or the only pool's while it is not known.
// Asked again it is the same one, whatever has been swapped in meanwhile.
func (a *arrival) policyMark() *policyMark {
	switch {
	case a.by != nil:
	case a.pool != nil:
		a.by = a.pool.Admission.policyMark()
	case len(a.s.o.Pools) == 1:
		a.by = a.s.o.Pools[0].Admission.policyMark()
	}
	return a.by
}

// refuse records the decision and answers with it.
func (a *arrival) refuse(ref refusal) {
	ref = a.complete(ref)
	a.record(ref.verdict, ref.code, ref.message, ref.status, ref.retryAfter)
	a.writeRefusal(ref)
}

// writeRefusal answers in the caller's dialect. The status is sent here and nowhere else.
func (a *arrival) writeRefusal(ref refusal) {
	contentType, body := dialect.Refusal(a.ep.Family, ref.code, ref.status, ref.message, ref.param)
	h := a.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Admitd-Decision", ref.verdict)
	h.Set("X-Admitd-Reason", string(ref.code))
	h.Set("X-Admitd-Request-Id", a.id)
	if name, rev := a.judge(); name != "" {
		h.Set("X-Admitd-Policy", name+"@"+rev)
	}
	if ref.ticket != "" {
		h.Set("X-Admitd-Ticket", ref.ticket)
	}
	if len(ref.allow) > 0 {
		h.Set("Allow", strings.Join(ref.allow, ", "))
	}
	if ref.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	setRetry(h, ref.retryAfter)
	a.answer(ref.status, body)
}

// judge names the policy revision that judged, or would have.
func (a *arrival) judge() (name, rev string) {
	if a.verdict != nil && a.verdict.PolicyName != "" {
		return a.verdict.PolicyName, a.verdict.PolicyRev
	}
	if m := a.policyMark(); m != nil {
		return m.name, m.rev
	}
	return "", ""
}

// setRetry tells when to come back, or that it is of no use. retry-after-ms is never later than Retry-After.
func setRetry(h http.Header, after time.Duration) {
	if after <= 0 {
		h.Set("X-Should-Retry", "false")
		return
	}
	h.Set("Retry-After", strconv.Itoa(wholeSeconds(after)))
	h.Set("Retry-After-Ms", strconv.FormatInt(int64(math.Ceil(float64(after)/float64(time.Millisecond))), 10))
}

// wholeSeconds rounds up, within 1 to 60.
func wholeSeconds(d time.Duration) int {
	d = min(max(d, minRetry), maxRetry)
	return int((d + time.Second - 1) / time.Second)
}

// hurryAnswer bounds the writing of an answer that no outlet watches: a short one.
func (a *arrival) hurryAnswer() {
	if stall := a.s.o.WriteStall; stall > 0 {
		_ = http.NewResponseController(a.w).SetWriteDeadline(time.Now().Add(stall))
	}
}

func (a *arrival) answer(status int, body []byte) {
	a.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	a.hurryAnswer()
	a.w.WriteHeader(status)
	// The caller may be gone; there is nobody left to tell.
	_, _ = a.w.Write(body)
}
