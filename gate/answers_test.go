package gate

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"admitd/gate/dialect"
	"admitd/gate/journal"
	"admitd/gate/policy"
)

// halfClose sends a whole request, waits for until, then closes the sending half only. It returns what came and
// whether net/http's client would take it for a whole answer.
func (r *rig) halfClose(body string, until func()) (got string, whole bool) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	until()
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", false
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return string(all), err == nil
}

// net/http ended the response of a caller that only closed its sending half with an empty 200.
func TestHalfClosedCallerNeverGetsAnEmpty200(t *testing.T) {
	both(t, func(t *testing.T, body string) {
		in := make(chan struct{})
		r := newRig(t, func(_ http.ResponseWriter, q *http.Request) { close(in); <-q.Context().Done() }, nil)
		if got, whole := r.halfClose(body, func() { recv(t, "the request at the engine", in) }); whole {
			t.Errorf("got %q as a whole answer", got)
		}
		r.cancelled()
	})
}

func TestHalfClosedCallerSeesThatItsStreamIsCut(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) { sse(w, tokenEvent("a")); <-q.Context().Done() },
		func(s *setup) { s.FirstEventWait = -1 })
	// Nothing tells the test that the event has reached the caller's socket but the books.
	got, whole := r.halfClose(streamBody, func() { r.untilGenerated(1) })
	if whole {
		t.Errorf("got %q as a whole answer", got)
	}
	r.cancelled()
}

func TestHalfClosedCallerThatWasHeldNeverGetsAnEmpty200(t *testing.T) {
	r := newRig(t, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() },
		func(s *setup) { s.policy = oneAtATime })
	abandon, _, _ := r.send(chatBody)
	r.decision(1)
	if got, whole := r.halfClose(chatBody, func() { r.untilHeld(1) }); whole {
		t.Errorf("got %q as a whole answer", got)
	}
	if d := r.decision(2); d.Status != 0 {
		t.Errorf("decision %+v", d)
	}
	abandon()
	r.outcome(1)
	r.idle()
}

// A part of an event came out as a 200 with broken JSON.
func TestStreamThatDiesInsideItsFirstEventIs503(t *testing.T) {
	for name, sent := range map[string]string{
		"nothing": "", "part of an event": `data: {"id":"x","cho`, "comments": ": hello\n\n", "part of the field": "dat",
	} {
		for _, cut := range []bool{true, false} {
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
				sse(w, sent)
				if cut {
					panic(http.ErrAbortHandler)
				}
			}, nil)
			resp, body := r.get("POST", chatPath, streamBody)
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("X-Admitd-Reason") != "engine_down" ||
				resp.Header.Get("Retry-After") == "" || strings.Contains(body, "cho") {
				t.Errorf("%s, cut %t: status %d, headers %v, body %s", name, cut, resp.StatusCode, resp.Header, body)
			}
			if o := r.outcome(1); o.Ending != string(dialect.EndError) || o.Status != 503 {
				t.Errorf("%s, cut %t: outcome %+v", name, cut, o)
			}
			r.idle()
		}
	}
}

// The last event of some engines lacks its blank line; it is one all the same.
func TestLastEventWithoutItsBlankLineIsAnEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		sent string
		want int
	}{
		"token": {strings.TrimSuffix(tokenEvent("a"), "\n\n"), 200},
		"error": {`data: {"error":{"message":"bad","code":400}}`, 400},
	} {
		r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { sse(w, tc.sent) }, nil)
		if resp, body := r.get("POST", chatPath, streamBody); resp.StatusCode != tc.want {
			t.Errorf("%s: status %d, body %s", name, resp.StatusCode, body)
		}
	}
}

// The key between admitd and the engine is not the caller's: 401 made callers throw their own away.
func TestEnginesRefusalOfOurKeyIsNotTheCallersFault(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		for name, h := range map[string]http.HandlerFunc{
			"as a status": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, `{"error":"Unauthorized"}`)
			},
			"as first event": func(w http.ResponseWriter, _ *http.Request) {
				sse(w, fmt.Sprintf("data: {\"error\":{\"message\":\"Unauthorized\",\"code\":%d}}\n\n", status)+doneMark)
			},
		} {
			r := newRig(t, h, nil)
			resp, body := r.get("POST", chatPath, streamBody)
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("X-Admitd-Reason") != "engine_down" ||
				resp.Header.Get("WWW-Authenticate") != "" || strings.Contains(body, "Unauthorized") || !strings.Contains(body, "admitd's own key") {
				t.Errorf("%d %s: status %d, headers %v, body %s", status, name, resp.StatusCode, resp.Header, body)
			}
			if o := r.outcome(1); o.Ending != string(dialect.EndError) || !strings.Contains(o.Error, "own key") {
				t.Errorf("%d %s: outcome %+v", status, name, o)
			}
			if log := r.logs.String(); !strings.Contains(log, "did not accept admitd's key") {
				t.Errorf("%d %s: log %s", status, name, log)
			}
			r.idle()
		}
	}
}

// With policies swapped all the time, a refusal had the status of one revision and named another.
func TestStatusAndPolicyOfARefusalAreOfOneRevision(t *testing.T) {
	const full = "policy: concurrency\nparams:\n  max_in_flight: 1\nhold:\n  max_wait: 0s\n"
	texts := map[int]string{429: full + "codes: {slots_full: 429, saturated: 429}\n", 529: full + "codes: {slots_full: 529, saturated: 529}\n"}
	want := map[string]int{}
	var all []*policy.Compiled
	for status, text := range texts {
		p := compile(t, text)
		want[p.Policy.Name()+"@"+p.Rev] = status
		all = append(all, p)
	}
	r := newRig(t, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }, func(s *setup) { s.policy = texts[429] })
	abandon, _, _ := r.send(chatBody)
	r.await("the first admission", func(all []journal.Entry) bool { return len(decisionsOf(all)) == 1 })
	stop := make(chan struct{})
	var storm sync.WaitGroup
	storm.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				r.pool.Admission.SetPolicy(all[i%len(all)])
			}
		}
	})
	for range 300 {
		resp, _ := r.get("POST", chatPath, chatBody)
		if name := resp.Header.Get("X-Admitd-Policy"); want[name] != resp.StatusCode {
			t.Errorf("status %d by %s, which says %d", resp.StatusCode, name, want[name])
			break
		}
	}
	close(stop)
	storm.Wait()
	abandon()
	r.outcome(1)
}

func TestSecretsInTheQueryAreRefusedByAnyOfTheirNames(t *testing.T) {
	r := newRig(t, answerJSON, nil)
	for _, name := range []string{"key", "apikey", "x-api-key", "X-API-Key", "token", "access_token", "authorization", "Authorization", "api%2Dkey"} {
		resp, _ := r.get("POST", chatPath+"?"+name+"=s3cret", chatBody)
		if resp.StatusCode != http.StatusBadRequest || resp.Header.Get("X-Admitd-Reason") != "key_in_query" {
			t.Errorf("%s: status %d, %s", name, resp.StatusCode, resp.Header.Get("X-Admitd-Reason"))
		}
	}
	if resp, _ := r.get("POST", chatPath+"?beta=true&tokens=5", chatBody); resp.StatusCode != http.StatusOK {
		t.Errorf("an ordinary query: status %d", resp.StatusCode)
	}
}
