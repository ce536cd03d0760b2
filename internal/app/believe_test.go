package app

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"admitd/gate/admission"
	"admitd/signals"
	"admitd/supervisor"
)

// page is a good scrape with a number, an engine life and doubts.
func page(seq, life uint64, why string, doubts []signals.Condition, names ...signals.Name) *signals.Snapshot {
	s := *scrape(names...)
	s.Seq, s.Life, s.LifeWhy, s.Conditions = seq, life, why, doubts
	return &s
}

func TestEngineThatBecomesAnotherOneIsHeldAgainstThePolicyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, needsKV)
		w.engine.set(func(st *supervisor.Status) { st.Kind, st.Address = supervisor.External, "http://gpu1:8000" })
		w.watching(t)
		w.become(supervisor.Ready, "ready")
		w.scrapedNow(signals.KVUsed)
		w.wantOpen(t)
		publish := func(s *signals.Snapshot) {
			w.scraper.publish(s)
			synctest.Wait()
		}
		publish(page(2, 1, "its start time changed", nil, signals.KVUsed))
		publish(page(3, 1, "its start time changed", nil, signals.KVUsed))
		w.wantOpen(t)
		// The next one does not export what the policy needs.
		publish(page(4, 2, "its counters fell", nil, signals.Waiting))
		publish(page(5, 2, "its counters fell", nil, signals.Waiting))
		w.wantClosed(t, "needs kv_used")
		for begin, want := range map[string]int{
			"warn engine_changed: the engine at http://gpu1:8000 is another one now: its start time changed": 1,
			"warn engine_changed: the engine at http://gpu1:8000 is another one now: its counters fell":      1,
		} {
			if n := countEvents(w.journal, begin); n != want {
				t.Errorf("said %d times: %s\n%s", n, begin, strings.Join(events(w.journal), "\n"))
			}
		}
	})
}

func TestMetricsThatCannotBeBelievedAreToldOnceAndJudgeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, needsKV)
		w.watching(t)
		w.become(supervisor.Ready, "ready")
		w.scrapedNow(signals.KVUsed)
		doubt := []signals.Condition{{Code: signals.MixedEngines, Text: "more than one"}}
		for i := range uint64(5) {
			w.scraper.publish(page(2+i, 1+i, "its start time changed", doubt))
			synctest.Wait()
		}
		w.wantOpen(t)
		w.scraper.publish(page(9, 6, "its start time changed", nil, signals.KVUsed))
		synctest.Wait()
		w.wantOpen(t)
		got := strings.Join(events(w.journal), "\n")
		if countEvents(w.journal, "warn signals_doubt: mixed_engines: more than one") != 1 || countEvents(w.journal, "info signals_doubt") != 1 ||
			countEvents(w.journal, "warn engine_changed") != 1 {
			t.Errorf("events:\n%s", got)
		}
	})
}

func TestIdleMeansNothingAtTheEngineByAnyBook(t *testing.T) {
	is := func(n signals.Name, v float64) *signals.Snapshot {
		return signals.NewSnapshot(signals.Snapshot{At: time.Now()}, signals.Signal{Name: n, Value: v, At: time.Now(), State: signals.Live})
	}
	w := newWorld(t, needsNothing)
	for name, tt := range map[string]struct {
		snap *signals.Snapshot
		want bool
	}{
		"nothing known":   {&signals.Snapshot{}, true},
		"others run":      {is(signals.Running, 1), false},
		"others wait":     {is(signals.Waiting, 1), false},
		"nothing running": {is(signals.Running, 0), true},
		"asleep":          {is(signals.Awake, 0), false},
		"awake":           {is(signals.Awake, 1), true},
	} {
		w.scraper.latest.Store(tt.snap)
		if got := w.idle(); got != tt.want {
			t.Errorf("%s: idle = %t", name, got)
		}
	}
	w.scraper.latest.Store(&signals.Snapshot{})
	w.openForTest()
	w.arrive("1")
	if w.idle() {
		t.Error("idle with a request of our own in flight")
	}
}

// openForTest lets requests in without an engine, which has 4 slots.
func (w *world) openForTest() {
	w.admission.Open()
	w.admission.With(func(now time.Time, _ admission.Controlling) { w.controller.SetEngine(now, 4, 1000, 4096) })
}

func TestReadingsAreQuickOnlyWhereTheyCouldChangeADecision(t *testing.T) {
	with := func(waiting, kv float64) *signals.Snapshot {
		at := time.Now()
		sig := func(n signals.Name, v float64) signals.Signal {
			return signals.Signal{Name: n, Value: v, At: at, State: signals.Live}
		}
		return signals.NewSnapshot(signals.Snapshot{At: at}, sig(signals.Running, 1), sig(signals.Waiting, waiting), sig(signals.KVUsed, kv),
			sig(signals.KVCapacity, 100000))
	}
	w := newWorld(t, needsNothing)
	if !w.pressed() {
		t.Error("calm although nothing is known")
	}
	w.openForTest()
	for name, tt := range map[string]struct {
		snap *signals.Snapshot
		want bool
	}{
		"room to spare":   {with(0, 0.1), false},
		"requests wait":   {with(1, 0.1), true},
		"the cache fills": {with(0, 0.6), true},
		"nothing read":    {&signals.Snapshot{}, true},
	} {
		w.scraper.latest.Store(tt.snap)
		if got := w.pressed(); got != tt.want {
			t.Errorf("%s: pressed = %t", name, got)
		}
	}
	w.scraper.latest.Store(with(0, 0.1))
	w.arrive("1")
	if w.pressed() {
		t.Error("pressed with one of four slots in use")
	}
	w.arrive("2")
	w.arrive("3")
	if !w.pressed() {
		t.Error("calm with three of four slots in use")
	}
}
