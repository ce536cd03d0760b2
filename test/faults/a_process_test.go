package faults

import (
	"net/http"
	"strings"
	"testing"

	"admitd/supervisor"
	"admitd/test/harness"
)

// Engine bug 3: the core dies after ready and the server exits with status 0.
func TestCleanExitThatNobodyAskedForIsACrash(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{faults: []string{"exit0-crash:req=2"}}).ready()
	first := r.pool().Engine.PID
	a := r.chat(200, true)
	if a.Status == http.StatusOK && !strings.Contains(a.Body, `"error"`) {
		t.Errorf("the answer of a dying engine looks whole: %s", a.Body)
	}
	st := r.relaunched(1)
	if st.PID == first || st.LastExit == nil || st.LastExit.Wanted || st.LastExit.Text != "exit status 0" {
		t.Errorf("after the crash: %+v, last exit %+v", st, st.LastExit)
	}
	if item := r.record(a); item.Outcome == nil || item.Outcome.SLOMet {
		t.Errorf("outcome %+v: a cut answer is no goodput", item.Outcome)
	}
	r.settled()
	_ = supervisor.Ready
	_ = harness.Answer{}
}
