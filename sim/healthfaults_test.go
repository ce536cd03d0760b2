package sim

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// played is a simulated engine inside a bubble, asked without a network.
func played(t *testing.T, change func(*Options)) *Server {
	t.Helper()
	o := recorded()
	o.Speed = 1
	change(&o)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// ask makes a request that is given up after limit; status is 0 when nothing was answered.
func ask(s *Server, method, path, body string, limit time.Duration) (status int, took time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	req := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w := &firstStatus{ResponseRecorder: httptest.NewRecorder()}
	began := time.Now()
	s.ServeHTTP(w, req)
	if ctx.Err() != nil && !w.said {
		return 0, time.Since(began)
	}
	return w.Code, time.Since(began)
}

// firstStatus knows whether anything was answered at all.
type firstStatus struct {
	*httptest.ResponseRecorder
	said bool
}

func (w *firstStatus) WriteHeader(status int) {
	w.said = true
	w.ResponseRecorder.WriteHeader(status)
}

func TestHealthFaults(t *testing.T) {
	long := chat(10, 1000, `,"ignore_eos":true`)
	for _, c := range []struct {
		name, face, fault string
		// busy is how many requests are in flight.
		busy   int
		status int
		took   time.Duration
	}{
		{"healthy", VLLM, "", 0, 200, 0},
		{"health-503 when idle", SGLang, "health-503", 0, 200, time.Second},
		{"health-503 when busy", SGLang, "health-503", 1, 503, 0},
		{"slow-health when idle", VLLM, "slow-health", 0, 200, 0},
		{"slow-health when busy", VLLM, "slow-health", 20, 200, 200 * time.Millisecond},
		{"probe-pileup", SGLang, "probe-pileup", 0, 200, 15 * time.Second},
		{"a stalled SGLang", SGLang, "stall", 0, 503, 20 * time.Second},
		{"dead-scheduler", SGLang, "dead-scheduler", 0, 200, 0},
		{"late-hang", SGLang, "late-hang:req=1", 1, 200, 0},
		{"deaf-hang", VLLM, "deaf-hang", 0, 200, 0},
		{"blocked-loop for a while", SGLang, "blocked-loop:0s+7s", 0, 200, 8 * time.Second},
		{"blocked-loop", SGLang, "blocked-loop", 0, 0, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := played(t, func(o *Options) {
					o.Dialect = c.face
					if c.fault != "" {
						o.Faults = []string{c.fault}
					}
				})
				for range c.busy {
					go ask(s, "POST", "/v1/chat/completions", long, 2*time.Minute)
				}
				synctest.Wait()
				if c.busy > 0 {
					<-time.After(100 * time.Millisecond)
				}
				status, took := ask(s, "GET", "/health", "", time.Minute)
				if status != c.status || took < c.took || took > c.took+100*time.Millisecond {
					t.Errorf("%d after %s, want %d after %s", status, took, c.status, c.took)
				}
				if err := s.Close(); err != nil { // ends what is in flight
					t.Error(err)
				}
				synctest.Wait()
			})
		})
	}
}

// TestTwoProbesAtOnceKill: also when the first prober has left already.
func TestTwoProbesAtOnceKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := played(t, func(o *Options) { o.Dialect, o.Faults = SGLang, []string{"probe-pileup"} })
		for _, pause := range []time.Duration{0, 10 * time.Second} {
			<-time.After(pause)
			_, _ = ask(s, "GET", "/health", "", 6*time.Second)
			if s.FaultOn(FaultExit0Crash) {
				t.Fatalf("one probe, %s after the last began, killed it", pause+6*time.Second)
			}
		}
		if _, _ = ask(s, "GET", "/health", "", time.Second); !s.FaultOn(FaultExit0Crash) {
			t.Error("two probes at once did not kill it")
		}
		<-time.After(time.Minute)
	})
}

// TestAFaultLastsAsLongAsItIsTold: a stall that begins and ends by itself, in the middle of a stream.
func TestAFaultLastsAsLongAsItIsTold(t *testing.T) {
	for _, fault := range []string{"stall:2s+20s", "stall:req=1+20s"} {
		synctest.Test(t, func(t *testing.T) {
			s := played(t, func(o *Options) { o.Faults = []string{fault} })
			// Fifty tokens a second: 200 take four seconds, and the stall comes on top.
			status, took := ask(s, "POST", "/v1/chat/completions", chat(10, 200, `,"ignore_eos":true`), time.Minute)
			if status != http.StatusOK || took < 23*time.Second || took > 26*time.Second {
				t.Errorf("%s: %d after %s", fault, status, took)
			}
		})
	}
}
