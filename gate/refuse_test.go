package gate

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"admitd/gate/admission"
	"admitd/gate/policy"
	"admitd/gate/reason"
)

// scripted answers every arrival with one verdict, on top of a real controller.
type scripted struct {
	admission.Controlling
	verdict admission.Verdict
}

func (s *scripted) Arrive(_ time.Time, a admission.Arrival) admission.Verdict {
	v := s.verdict
	v.ID = a.ID
	return v
}

func TestF24_RetryHeadersAreTheOnesThatEverySDKHonours(t *testing.T) {
	for _, tc := range []struct {
		name     string
		verdict  policy.Verdict
		code     reason.Code
		after    time.Duration
		status   int
		seconds  string
		ms       string
		shouldnt bool
	}{
		{"deferred", policy.Defer, reason.KVPressure, 6200 * time.Millisecond, 503, "7", "6200", false},
		{"exact", policy.Defer, reason.SlotsFull, 7 * time.Second, 503, "7", "7000", false},
		{"too soon", policy.Defer, reason.SlotsFull, time.Millisecond, 503, "1", "1000", false},
		{"no time", policy.Defer, reason.QueueDepth, 0, 503, "1", "1000", false},
		{"negative", policy.Defer, reason.QueueDepth, -time.Hour, 503, "1", "1000", false},
		{"too late", policy.Defer, reason.QueueDepth, 121 * time.Second, 503, "60", "60000", false},
		{"caller", policy.Reject, reason.TenantConcurrency, 1500 * time.Millisecond, 429, "2", "1500", false},
		{"caller, hopeless", policy.Reject, reason.TenantTokens, 0, 429, "", "", true},
		{"pool", policy.Reject, reason.Saturated, 61 * time.Second, 529, "60", "60000", false},
		{"pool, hopeless", policy.Reject, reason.Saturated, 0, 529, "", "", true},
		{"impossible", policy.Reject, reason.TooLarge, 5 * time.Second, 413, "", "", true},
		{"remapped", policy.Defer, reason.HoldExpired, time.Second, 429, "1", "1000", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := admission.Verdict{Decision: policy.Decision{Verdict: tc.verdict, Reason: tc.code, Message: "Said plainly."},
				RetryAfter: tc.after, Ticket: "t1", PolicyName: "p", PolicyRev: "r1"}
			r := newRig(t, answerJSON, func(s *setup) {
				s.wrap = func(c admission.Controlling) admission.Controlling { return &scripted{c, v} }
				s.StatusOverrides = map[reason.Code]int{reason.HoldExpired: 429}
			})
			for _, body := range []string{chatBody, streamBody} {
				resp, got := r.get("POST", chatPath, body)
				h := resp.Header
				if resp.StatusCode != tc.status || h.Get("Retry-After") != tc.seconds || h.Get("Retry-After-Ms") != tc.ms ||
					(h.Get("X-Should-Retry") == "false") != tc.shouldnt {
					t.Errorf("status %d, headers %v", resp.StatusCode, h)
				}
				if h.Get("X-Admitd-Decision") != string(tc.verdict) || h.Get("X-Admitd-Reason") != string(tc.code) ||
					h.Get("X-Admitd-Policy") != "p@r1" || h.Get("X-Admitd-Ticket") != "t1" || h.Get("X-Admitd-Request-Id") == "" ||
					h.Get("Content-Type") != "application/json" || resp.ContentLength != int64(len(got)) {
					t.Errorf("headers %v", h)
				}
				var e struct {
					Error struct{ Message, Code string }
				}
				if err := json.Unmarshal([]byte(got), &e); err != nil || e.Error.Message != "Said plainly." || e.Error.Code != string(tc.code) {
					t.Errorf("body %s", got)
				}
			}
			d := r.decision(2)
			if d.Status != tc.status || d.Reason != tc.code || strconv.FormatInt(d.RetryAfterMS, 10) != orZero(tc.ms) || d.PolicyRev != "r1" {
				t.Errorf("decision %+v", d)
			}
		})
	}
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// Every reason of the catalogue comes out in both dialects, with sane headers.
func TestEveryReasonIsAnsweredInBothDialects(t *testing.T) {
	for _, entry := range reason.All() {
		if entry.Status == 0 {
			continue
		}
		verdict := policy.Defer
		if entry.Verdict == reason.VerdictReject {
			verdict = policy.Reject
		}
		v := admission.Verdict{Decision: policy.Decision{Verdict: verdict, Reason: entry.Code}, RetryAfter: 3 * time.Second}
		r := newRig(t, answerJSON, func(s *setup) {
			s.wrap = func(c admission.Controlling) admission.Controlling { return &scripted{c, v} }
		})
		for path, body := range map[string]string{chatPath: chatBody,
			"/v1/messages": `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`} {
			resp, got := r.get("POST", path, body)
			retries := resp.Header.Get("Retry-After") == "3" && resp.Header.Get("X-Should-Retry") == ""
			never := resp.Header.Get("Retry-After") == "" && resp.Header.Get("X-Should-Retry") == "false"
			if resp.StatusCode != entry.Status || retries == never || never != (entry.Retry == reason.RetryNever) {
				t.Errorf("%s: status %d, headers %v", entry.Code, resp.StatusCode, resp.Header)
			}
			if !strings.Contains(got, `"message":"`) || !json.Valid([]byte(got)) {
				t.Errorf("%s: body %s", entry.Code, got)
			}
		}
	}
}

func TestPolicyCodesWinOverTheConfiguration(t *testing.T) {
	r := newRig(t, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }, func(s *setup) {
		s.policy = "policy: concurrency\nparams:\n  max_in_flight: 1\nhold:\n  max_wait: 0s\ncodes:\n  slots_full: 429\n"
		s.StatusOverrides = map[reason.Code]int{reason.SlotsFull: 500}
	})
	abandon, _, _ := r.send(chatBody)
	r.decision(1)
	resp, _ := r.get("POST", chatPath, chatBody)
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("X-Admitd-Ticket") == "" || resp.Header.Get("X-Admitd-Policy") == "" {
		t.Errorf("status %d, headers %v", resp.StatusCode, resp.Header)
	}
	abandon()
	r.outcome(1)
}

func TestClosedGateRefusesBeforeTheBody(t *testing.T) {
	r := newRig(t, answerJSON, nil)
	r.pool.Admission.Close(reason.Draining, "admitd is stopping.")
	resp, body := r.get("POST", chatPath, "no JSON")
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("X-Admitd-Reason") != "draining" || !strings.Contains(body, "admitd is stopping.") {
		t.Errorf("status %d, body %s", resp.StatusCode, body)
	}
	if resp, _ := r.get("GET", "/health", ""); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("health %d", resp.StatusCode)
	}
	r.pool.Admission.Open()
	if resp, _ := r.get("POST", chatPath, chatBody); resp.StatusCode != http.StatusOK {
		t.Errorf("after Open: status %d", resp.StatusCode)
	}
}

func TestBadOptionsAreErrorsThatNameThem(t *testing.T) {
	good := newRig(t, answerJSON, nil).pool
	for want, o := range map[string]Options{
		"no pools":                {},
		"must all be given":       {Pools: []*Pool{{Model: "m"}}},
		"belongs to pool":         {Pools: []*Pool{good, good}},
		"at least max body":       {Pools: []*Pool{good}, Limits: Limits{MaxBodyBytes: 10, MaxBufferedBytes: 5}},
		"default class \"x\"":     {Pools: []*Pool{good}, DefaultClass: "x"},
		"not a status from 400":   {Pools: []*Pool{good}, StatusOverrides: map[reason.Code]int{reason.SlotsFull: 200}},
		"\"ok\" is not a refusal": {Pools: []*Pool{good}, StatusOverrides: map[reason.Code]int{reason.OK: 500}},
		"must be \"asked\"":       {Pools: []*Pool{good}, ModelNameInResponse: "other"},
		"must not be negative":    {Pools: []*Pool{good}, Limits: Limits{BodyTimeout: -1}},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}
