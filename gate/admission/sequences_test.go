package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/signals"
)

// fanout sends requests for several sequences to a toy engine, every 30 ms one, and drops who is refused.
type fanout struct {
	t        *testing.T
	c        *Controller
	e        toyEngine
	now      time.Time
	left     map[ID]int // sequences that have not ended
	total    map[ID]int
	produced map[ID]int
	worst    int
	ended    int
}

func (f *fanout) arrive(i, n int) {
	id := ID(fmt.Sprintf("r%d", i))
	a := Arrival{ID: id, Facts: toyFacts()}
	a.Facts.Sequences = n
	if f.c.Arrive(f.now, a).Decision.Verdict != policy.Admit {
		return
	}
	f.left[id], f.total[id] = n, n
	for k := range n {
		// Sequences of one request end at different times.
		f.e.submit(ID(fmt.Sprintf("%s/%d", id, k)), 300*time.Millisecond+time.Duration((i+k*5)%9)*100*time.Millisecond)
	}
	f.worst = max(f.worst, len(f.e.queue)-max(0, f.e.slots-len(f.e.running)))
}

func (f *fanout) step() {
	first, done := f.e.step(f.now)
	for _, s := range first {
		id, _, _ := strings.Cut(string(s), "/")
		f.produced[ID(id)]++
		f.c.Progress(f.now, ID(id), f.produced[ID(id)])
	}
	for _, s := range done {
		name, _, _ := strings.Cut(string(s), "/")
		id := ID(name)
		if f.left[id]--; f.left[id] > 0 {
			continue
		}
		f.ended++
		if _, err := f.c.Settle(f.now, Settlement{ID: id, Ending: dialect.EndWhole, PromptTokens: 100, CompletionTokens: 20 * f.total[id]}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestSequencesOfOneRequestKeepTheWaitingLimit: a request for n sequences counts n times, before its first token and
// after it. Eight may wait inside the engine, and eight times as many sequences come as it can run.
func TestSequencesOfOneRequestKeepTheWaitingLimit(t *testing.T) {
	for _, interval := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
		for _, sizes := range [][]int{{8}, {2}, {1, 8}, {3, 1, 2}} {
			t.Run(fmt.Sprintf("every %s, sequences %v", interval, sizes), func(t *testing.T) {
				f := &fanout{t: t, now: epoch, e: toyEngine{slots: toySlots}, left: map[ID]int{}, total: map[ID]int{}, produced: map[ID]int{},
					c: New(Config{Slots: toySlots}, compile(t, "policy: queue-depth\nparams: {max_waiting: 8}\nhold: {max_wait: 0s}\n"))}
				for i := range 2000 {
					f.now = epoch.Add(time.Duration(i) * tick)
					f.step()
					if since := f.now.Sub(epoch); since%interval == 0 {
						f.scrape(uint64(i))
					}
					if i%3 == 0 {
						f.arrive(i, sizes[i/3%len(sizes)])
					}
				}
				checkBooks(t, f.c)
				if f.worst > 8 {
					t.Errorf("%d sequences waited inside the engine; the policy allows 8", f.worst)
				}
				if f.ended < 5 {
					t.Errorf("only %d requests were served in 20 s", f.ended)
				}
			})
		}
	}
}

func (f *fanout) scrape(seq uint64) {
	live := func(n signals.Name, v int) signals.Signal {
		return signals.Signal{Name: n, Value: float64(v), At: f.now, State: signals.Live}
	}
	f.c.Observe(f.now, signals.NewSnapshot(signals.Snapshot{Seq: seq + 1, At: f.now, Life: 1, StaleAfter: 5 * time.Second},
		live(signals.Running, len(f.e.running)), live(signals.Waiting, len(f.e.queue))))
}
