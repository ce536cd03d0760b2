package faults

import (
	"net/http"
	"strconv"
	"sync"
	"testing"

	"admitd/internal/config"
	"admitd/sim"
	"admitd/test/harness"
	"admitd/ui/api"
)

// Eight callers, whose SDK tries three times and whose harness repeats that, against two slots that stay taken.
func TestF26_RetriesNeverReachTheEngineAndAreToldApart(t *testing.T) {
	t.Parallel()
	r := attach(t, setup{policy: byQueue, options: func(o *sim.Options) { o.MaxNumSeqs, o.Speed = 2, 0.1 },
		config: func(c *config.Config) { c.Engine.Slots = 2 }}).ready()
	probes := r.requests()
	for range 2 {
		resp, _ := r.open(2000)
		harness.FirstData(t, resp)
	}
	const callers, harnessTries, sdkTries = 8, 3, 3
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range harnessTries {
				for try := range sdkTries {
					if a := r.chat(5, false, "X-Stainless-Retry-Count", strconv.Itoa(try)); a.Status != http.StatusServiceUnavailable && a.Status != 529 {
						t.Errorf("%d %v %s", a.Status, a.Err, a.Body)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := r.requests() - probes; n > 0 {
		// The two streams are counted when they end.
		t.Errorf("%d of the refused tries reached the engine", n)
	}
	var tenants api.Tenants
	r.Get("/api/v1/tenants", &tenants)
	if got := tenants.Tenants[0]; got.Arrivals != 2+callers*harnessTries*sdkTries || got.Retries != callers*harnessTries*(sdkTries-1) || got.Admitted != 2 {
		t.Errorf("counted %+v", got.Counts)
	}
}
