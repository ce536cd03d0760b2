package faults

import (
	"net/http"
	"strings"
	"testing"

	"admitd/sim"
)

// Engine bug 20: a counter that is told to go back raises, and takes the answer with it.
func TestAnswerThatTheEngineLostBeforeItsFirstTokenIsARealErrorAndSentOnce(t *testing.T) {
	t.Parallel()
	r := attach(t, setup{}).ready()
	r.fault(sim.FaultCounterRaises, true)
	for _, stream := range []bool{true, false} {
		before := r.requests()
		a := r.chat(20, stream)
		if a.Status != http.StatusInternalServerError || strings.Contains(a.Body, "data:") {
			t.Errorf("stream %v: %d %s; no byte had been sent, so it can be a real status that SDKs retry", stream, a.Status, a.Body)
		}
		if n := r.requests() - before; n != 1 {
			t.Errorf("stream %v: the engine was asked %d times", stream, n)
		}
		if o := r.record(a).Outcome; o == nil || o.Ending != "engine_error" || o.SLOMet {
			t.Errorf("stream %v: outcome %+v", stream, o)
		}
	}
	r.settled()
}

// Engine bugs 20 and 21: a stream that breaks after some tokens, with an error inside or without a word.
func TestStreamThatBreaksOffIsToldAndCountsAsFailed(t *testing.T) {
	t.Parallel()
	r := attach(t, setup{}).ready()
	for fault, ending := range map[sim.Fault]string{sim.FaultErrorStream: "engine_error", sim.FaultCutStream: "engine_cut"} {
		r.fault(fault, true)
		before := r.requests()
		a := r.chat(20, true)
		if a.Status != http.StatusOK || strings.Count(a.Body, `"error"`) != 1 || strings.Contains(a.Body, `"finish_reason":"stop"`) {
			t.Errorf("%s: %d\n%s", fault, a.Status, a.Body)
		}
		if n := r.requests() - before; n != 1 {
			t.Errorf("%s: the engine was asked %d times", fault, n)
		}
		o := r.record(a).Outcome
		if o == nil || o.Ending != ending || o.SLOMet || o.Error == "" || o.CompletionTokens == nil || *o.CompletionTokens != 3 {
			t.Errorf("%s: outcome %+v", fault, o)
		}
		r.fault(fault, false)
	}
	if a := r.chat(5, true); a.Status != http.StatusOK || strings.Contains(a.Body, `"error"`) {
		t.Errorf("afterwards: %d %s", a.Status, a.Body)
	}
	r.settled()
}

// requests is how many inference requests the attached engine was sent.
func (r *rig) requests() int {
	r.TB.Helper()
	n := 0
	for line := range strings.Lines(r.enginePage()) {
		if strings.HasPrefix(line, "http_requests_total{") && strings.Contains(line, "/v1/chat/completions") {
			n += sampled(r.TB, line)
		}
	}
	return n
}
