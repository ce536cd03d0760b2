package gate

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"admitd/supervisor"
)

// Everyone who is refused while the engine loads was told the same second, and all came back in it.
func TestCallersOfALoadingEngineAreToldDifferentTimes(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := newRig(t, answerJSON, func(s *setup) { s.Clock = func() time.Time { return now } })
	loading := func(s *supervisor.Status) { s.State, s.ExpectedReadyIn = supervisor.Loading, 12*time.Second }
	r.engine.set(loading)
	told := func() (int, string) {
		resp, _ := r.get("POST", chatPath, chatBody)
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Fatal(resp.Status)
		}
		ms, err := strconv.Atoi(resp.Header.Get("Retry-After-Ms"))
		if err != nil {
			t.Fatal(err)
		}
		return ms, resp.Header.Get("Retry-After")
	}
	for i, want := range []struct {
		ms      int
		seconds string
	}{{12000, "12"}, {12200, "13"}, {12400, "13"}, {12600, "13"}, {12800, "13"}, {13000, "13"}, {13200, "14"}} {
		if ms, seconds := told(); ms != want.ms || seconds != want.seconds {
			t.Errorf("caller %d: %d ms, %s s; want %d ms, %s s", i, ms, seconds, want.ms, want.seconds)
		}
	}
	// A request that gets through shows that the engine is back: the next outage begins anew.
	r.engine.set(func(s *supervisor.Status) { s.State = supervisor.Ready })
	if resp, _ := r.get("POST", chatPath, chatBody); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	r.engine.set(loading)
	if ms, _ := told(); ms != 12000 {
		t.Errorf("after the engine had been back: %d ms", ms)
	}
}

func TestSpacedTimesStayWithinTheLimitAndSpread(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, wait := range []time.Duration{0, 5 * time.Second, 55 * time.Second, longWait, time.Hour} {
		var s spacing
		seen := map[time.Duration]int{}
		for range 500 {
			seen[s.after(now, wait)]++
		}
		for d, n := range seen {
			if d < minRetry || d > maxRetry {
				t.Errorf("wait %s: told %s", wait, d)
			}
			if n > 20 {
				t.Errorf("wait %s: %d of 500 callers were told %s", wait, n, d)
			}
		}
	}
}
