package sim

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A caller that leaves ends its request, unless the fault keeps it; /abort_request still ends it by name at SGLang.
func TestRequestsThatOutliveTheirCallers(t *testing.T) {
	for _, c := range []struct {
		face, fault string
		stays       bool
	}{{VLLM, "", false}, {VLLM, "ignore-disconnect", true}, {SGLang, "", false}, {SGLang, "lost-abort", true}} {
		synctest.Test(t, func(t *testing.T) {
			s := played(t, func(o *Options) {
				o.Dialect = c.face
				if c.fault != "" {
					o.Faults = []string{c.fault}
				}
			})
			_, _ = ask(s, "POST", "/v1/chat/completions", chat(10, 1000, `,"ignore_eos":true,"stream":true,"rid":"abc1"`), time.Second)
			<-time.After(time.Second)
			if st, err := s.Stats(); err != nil || st.Running == 1 != c.stays {
				t.Errorf("%s %s: %d running, %v", c.face, c.fault, st.Running, err)
			}
			if c.face != SGLang {
				return
			}
			if status, _ := ask(s, "POST", "/abort_request", `{"rid":"abc"}`, time.Second); status != 200 {
				t.Errorf("abort: %d", status)
			}
			if st, err := s.Stats(); err != nil || st.Running != 0 {
				t.Errorf("%s %s: %d running after the abort, %v", c.face, c.fault, st.Running, err)
			}
		})
	}
}

func TestLateRefusalTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := played(t, func(o *Options) { o.MaxNumSeqs, o.MaxQueuedReqs, o.Faults = 1, 1, []string{"late-503"} })
		go ask(s, "POST", "/v1/chat/completions", chat(10, 1000, `,"ignore_eos":true`), time.Hour)
		<-time.After(100 * time.Millisecond)
		if status, took := ask(s, "POST", "/v1/chat/completions", chat(10, 5, ""), time.Minute); status != 503 || took != lateRefusal {
			t.Errorf("%d after %s", status, took)
		}
		_ = s.Close()
		synctest.Wait()
	})
}

// Once the queue has run over nothing is answered any more, also to those who were in hand, and the gauges say 0.
func TestQueueThatRunsOverHangsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := played(t, func(o *Options) {
			o.Dialect, o.MaxNumSeqs, o.MaxQueuedReqs, o.Faults = SGLang, 1, 1, []string{"queue-hang"}
		})
		for i := range 3 {
			go ask(s, "POST", "/v1/chat/completions", chat(10, 1000, `,"ignore_eos":true,"stream":true`), time.Hour)
			<-time.After(time.Duration(i+1) * 100 * time.Millisecond)
		}
		before, err := s.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if status, _ := ask(s, "POST", "/v1/chat/completions", chat(10, 5, ""), time.Minute); status != 0 {
			t.Errorf("an answer after the overflow: %d", status)
		}
		if after, err := s.Stats(); err != nil || after.GeneratedTokens != before.GeneratedTokens || after.Running != 1 {
			t.Errorf("the engine goes on: %+v, then %+v", before, after)
		}
		page, err := s.sglangExposition()
		if err != nil || !bytes.Contains(page, []byte("} 0.0\n")) || !strings.Contains(string(gaugeLine(page, "sglang:num_running_reqs")), " 0.0") {
			t.Errorf("%v: %s", err, gaugeLine(page, "sglang:num_running_reqs"))
		}
		if status, _ := ask(s, "GET", "/health", "", time.Minute); status != 200 {
			t.Errorf("health %d", status)
		}
		_ = s.Close()
		synctest.Wait()
	})
}

func gaugeLine(page []byte, name string) []byte {
	for line := range bytes.SplitSeq(page, []byte("\n")) {
		if bytes.HasPrefix(line, []byte(name+"{")) {
			return line
		}
	}
	return nil
}

// Gauges that lag show what was five seconds ago.
func TestLaggingGaugesShowThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := played(t, func(o *Options) { o.Faults = []string{"lagging-gauges"} })
		go ask(s, "POST", "/v1/chat/completions", chat(10, 170, `,"ignore_eos":true`), time.Hour)
		<-time.After(100 * time.Millisecond)
		var seen []string
		for range 10 {
			page, err := s.vllmExposition()
			if err != nil {
				t.Fatal(err)
			}
			line := string(gaugeLine(page, "vllm:num_requests_running"))
			seen = append(seen, line[strings.LastIndex(line, " ")+1:])
			<-time.After(time.Second)
		}
		// It runs for three seconds and a half.
		if got := strings.Join(seen, " "); got != "0.0 0.0 0.0 0.0 0.0 1.0 1.0 1.0 1.0 0.0" {
			t.Errorf("running reads %s", got)
		}
	})
}
