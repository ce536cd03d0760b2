package app

import (
	"testing"
	"testing/synctest"
	"time"

	"admitd/gate/policy"
	"admitd/signals"
	"admitd/supervisor"
)

// A caller that has not read its answer is no work of the engine's: it must not look like a stall, nor may an engine
// that has lost a request look idle.
func TestUnreadAnswersAreNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, needsNothing)
		w.watching(t)
		w.become(supervisor.Ready, "ready")
		w.scrapedNow(signals.Running, signals.Waiting)
		w.wantOpen(t)
		for _, id := range []string{"begun", "without a token"} {
			if v := w.arrive(id); v.Decision.Verdict != policy.Admit {
				t.Fatalf("%+v", v.Decision)
			}
		}
		w.admission.Progress("begun", 1)
		idle := scrape(signals.Running, signals.Waiting)
		busy := signals.NewSnapshot(*idle, signals.Signal{Name: signals.Running, Value: 1, At: time.Now(), State: signals.Live},
			signals.Signal{Name: signals.Waiting, At: time.Now(), State: signals.Live})
		for _, c := range []struct {
			name string
			snap *signals.Snapshot
			want int
		}{{"idle", idle, 1}, {"busy", busy, 2}, {"not told", scrape(signals.Waiting), 2}} {
			w.scraper.publish(c.snap)
			if n, _, _ := w.progress(); n != c.want {
				t.Errorf("engine %s: %d requests in work, want %d", c.name, n, c.want)
			}
		}
	})
}
