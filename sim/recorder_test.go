package sim

import (
	"testing"
	"time"

	"admitd/sim/model"
)

// TestPreemptionsShowLate: on the recorded engine num_preemptions_total still said 0 for six seconds after running had
// begun to fall, because a preemption is reported with the next token of the request that it hit.
func TestPreemptionsShowLate(t *testing.T) {
	p, err := model.ProfileByName(DefaultProfile)
	if err != nil {
		t.Fatal(err)
	}
	e, err := model.New(model.Config{Profile: p, Blocks: 60, BlockTokens: 32, MaxSeqs: 8, MaxModelLen: 640})
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder(640)
	for i := range 10 {
		q := model.Request{ID: model.ID(i + 1), PromptTokens: 92, MaxTokens: 400}
		if err := e.Submit(0, q); err != nil {
			t.Fatal(err)
		}
		r.submitted(q, params{n: 1, maxTokens: 400}, 0)
	}
	var happened, shown time.Duration
	for {
		at, ok := e.Next()
		if !ok {
			break
		}
		for _, ev := range e.Advance(at) {
			r.event(ev, 1)
		}
		if happened == 0 && e.Stats().Preemptions > 0 {
			happened = at
		}
		if shown == 0 && r.preemptions > 0 {
			shown = at
		}
	}
	if lag := shown - happened; happened == 0 || lag < 3*time.Second || lag > 15*time.Second {
		t.Errorf("the first preemption at %v showed at %v, measured was about six seconds later", happened, shown)
	}
	if c := r.scrape(e.Stats(), 0, 1); c.preemptions != c.stats.Preemptions || c.inFlight != 0 || c.h["request_num_preemptions"].sum != float64(c.preemptions) {
		t.Errorf("at the end %d of %d are reported", c.preemptions, c.stats.Preemptions)
	}
}
