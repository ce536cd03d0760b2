package faults

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"admitd/internal/config"
	"admitd/sim"
	"admitd/supervisor"
	"admitd/test/harness"
)

// children lists the processes whose parent is pid.
func children(t *testing.T, pid int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended meanwhile
		}
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(strings.Split(name, "/")[2])
			out = append(out, child)
		}
	}
	return out
}

// brief makes stalls short.
func brief(c *config.Config) { c.Engine.StallAfter = time.Second }

// lasting makes what is stalled stay so for a while: time to look at it.
func lasting(o *supervisor.Options) { o.StallRestartAfter = 8 * time.Second }

// answered is an answer that comes while a test does something else.
func answered(ask func() harness.Answer) <-chan harness.Answer {
	out := make(chan harness.Answer, 1)
	go func() { out <- ask() }()
	return out
}

// get waits for an answer.
func (r *rig) get(c <-chan harness.Answer) (a harness.Answer) {
	r.TB.Helper()
	r.until("answered", func() bool {
		select {
		case a = <-c:
			return true
		default:
			return false
		}
	})
	return a
}

// wantBroken fails the test when an answer could be taken for a whole one.
func (r *rig) wantBroken(a harness.Answer) {
	r.TB.Helper()
	if a.Status == http.StatusOK && !strings.Contains(a.Body, `"error"`) && a.Err == nil {
		r.TB.Errorf("an answer that the engine did not finish looks whole:\n%s", a.Body)
	}
	if item := r.record(a); item.Outcome != nil && (item.Outcome.SLOMet || item.Outcome.Ending == "whole") {
		r.TB.Errorf("an answer that the engine did not finish is recorded as %+v", item.Outcome)
	}
}

// Engine bugs 1 and 2: the API server is killed and its core lives on, in its process group or out of it.
func TestWhatAKilledLeaderLeavesBehindIsEndedBeforeTheNextLaunch(t *testing.T) {
	t.Parallel()
	for _, fault := range []sim.Fault{sim.FaultLeaderKilled, sim.FaultOOMKill} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			r := launch(t, setup{faults: []string{string(fault) + ":req=2"}}).ready()
			leader := r.pool().Engine.PID
			left := children(t, leader)
			if len(left) != 1 {
				t.Fatalf("the engine has the children %v, not one", left)
			}
			r.wantBroken(r.chat(200, true))
			st := r.relaunched(1)
			if st.PID == leader || alive(leader) || alive(left[0]) {
				t.Errorf("a new engine %d runs beside what the old one left: leader alive %v, child alive %v", st.PID, alive(leader), alive(left[0]))
			}
			if st.LastExit == nil || st.LastExit.Wanted {
				t.Errorf("last exit %+v: nobody wanted it", st.LastExit)
			}
			r.settled()
		})
	}
}

// Engine bug 3: the core dies after ready and the server exits with status 0.
func TestCleanExitThatNobodyAskedForIsACrash(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{faults: []string{"exit0-crash:req=2"}}).ready()
	first := r.pool().Engine.PID
	r.wantBroken(r.chat(200, true))
	st := r.relaunched(1)
	if st.PID == first || st.LastExit == nil || st.LastExit.Wanted || st.LastExit.Text != "exit status 0" {
		t.Errorf("after the crash: %+v, last exit %+v", st, st.LastExit)
	}
	r.settled()
}

// Engine bugs 4 and 6: running 0, waiting N, no token, and every probe answers 200.
func TestEngineThatAnswersItsProbesAndNothingElseIsRestarted(t *testing.T) {
	t.Parallel()
	for _, fault := range []sim.Fault{sim.FaultStuckQueue, sim.FaultStall} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			r := launch(t, setup{faults: []string{string(fault) + ":req=2"}, config: brief, patience: lasting}).ready()
			first := r.pool().Engine.PID
			lost := answered(func() harness.Answer { return r.chat(20, true) })
			st := r.state(supervisor.Stalled)
			if !strings.Contains(st.Text, "no token counter moved") {
				t.Errorf("it is said to be stalled because: %s", st.Text)
			}
			if a := r.chat(5, false); a.Status == http.StatusOK || a.Header.Get("Retry-After") == "" {
				t.Errorf("a stalled engine was sent more work: %d %s", a.Status, a.Body)
			}
			if st = r.relaunched(1); st.PID == first {
				t.Errorf("after the stall the old engine %d serves", first)
			}
			r.wantBroken(r.get(lost))
			r.settled()
		})
	}
}

// Engine bug 6, at the start: /health answers 200 before a token was ever seen.
func TestHealthAloneDoesNotOpenTheGate(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{faults: []string{"stall"}, wanted: errors.New("engine failed"), config: func(c *config.Config) {
		c.Engine.StartTimeout, c.Engine.MaxRestarts = 10*time.Second, 0
	}})
	r.until("being probed", func() bool {
		resp, err := http.Get(r.Admin + "/api/v1/status")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return r.pool().Engine.Phase == "probe"
	})
	if a := r.chat(5, false); a.Status != http.StatusServiceUnavailable || a.Header.Get("X-Admitd-Reason") != "engine_loading" {
		t.Errorf("before the first token: %d %s %s", a.Status, a.Header.Get("X-Admitd-Reason"), a.Body)
	}
	<-r.Ended
}

// Engine bug 5: a prompt that fits the model and not the KV cache blocks the head of the queue for ever.
func TestPromptLargerThanTheCacheNeverReachesTheEngine(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{faults: []string{"oversized-head"},
		args: []string{"--kv-blocks", "64", "--block-size", "16", "--max-model-len", "8192"}}).ready()
	giant := harness.Chat(model, strings.Repeat("word ", 4000), 5, false)
	a := harness.Post(harness.Timeout(t, patience), r.Gate+"/v1/chat/completions", giant)
	if a.Status != http.StatusRequestEntityTooLarge || a.Header.Get("X-Admitd-Reason") != "too_large" || !strings.Contains(a.Body, "KV cache holds 1024") {
		t.Errorf("%d %s %s", a.Status, a.Header.Get("X-Admitd-Reason"), a.Body)
	}
	for range 3 {
		if a := r.chat(5, false); a.Status != http.StatusOK {
			t.Errorf("behind it: %d %s", a.Status, a.Body)
		}
	}
	r.settled()
}

// Engine bug 5, where the estimate lets the prompt pass: it is taken from the head of the queue, and those behind it are served
// by the same engine.
func TestPromptThatBlocksTheQueueIsTakenOutOfIt(t *testing.T) {
	t.Parallel()
	r := launch(t, setup{faults: []string{"oversized-head"}, policy: "policy: admit-all\n",
		// Long enough for the one behind it to get there, and for its answer to come before the engine is given up.
		config:   func(c *config.Config) { c.Engine.StallAfter = 6 * time.Second },
		patience: func(o *supervisor.Options) { o.StallRestartAfter = patience },
		args:     []string{"--kv-blocks", "33", "--block-size", "16", "--max-model-len", "8192"}}).ready()
	first := r.pool().Engine.PID
	blocking := answered(func() harness.Answer {
		return harness.Post(harness.Timeout(t, patience), r.Gate+"/v1/chat/completions", harness.Chat(model, strings.Repeat("a ", 700), 5, true))
	})
	r.until("in the queue", func() bool { return r.value(r.signal("waiting")) == 1 })
	behind := answered(func() harness.Answer { return r.chat(5, true) })
	if a := r.get(blocking); a.Status != http.StatusServiceUnavailable || a.Header.Get("X-Admitd-Reason") != "engine_stalled" || a.Header.Get("Retry-After") == "" {
		t.Errorf("the one at the head: %d %s %s", a.Status, a.Header.Get("X-Admitd-Reason"), a.Body)
	}
	if a := r.get(behind); a.Status != http.StatusOK || strings.Contains(a.Body, `"error"`) {
		t.Errorf("the one behind it: %d %s", a.Status, a.Body)
	}
	if st := r.relaunched(0); st.PID != first || st.Restarts != 0 {
		t.Errorf("engine %d, now %+v", first, st)
	}
	if told := r.events("head_evicted"); len(told) != 1 {
		t.Errorf("told: %q", told)
	}
	r.settled()
}

func itoa(n int) string { return strconv.Itoa(n) }

// enginePage is the metrics page of an attached engine.
func (r *rig) enginePage() string {
	r.TB.Helper()
	w := httptest.NewRecorder()
	r.engine.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// sampled is the value of a sample's line.
func sampled(t testing.TB, line string) int {
	t.Helper()
	v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(strings.TrimSpace(line), ' '):]), 64)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return int(v)
}
