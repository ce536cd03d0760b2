package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"admitd/gate/admission"
	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/internal/config"
	"admitd/signals"
	"admitd/supervisor"
)

// arrive asks for admission without waiting.
func (w *world) arrive(id string) admission.Verdict {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return w.admission.Decide(ctx, admission.Arrival{ID: admission.ID(id), Tenant: "t", Class: "interactive"})
}

func TestGateOpensAfterAScrapeOfThisEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, needsWaiting)
		w.wantClosed(t, "the engine has not started yet")
		w.watching(t)
		w.become(supervisor.Loading, "the engine is loading: compiling")
		w.wantClosed(t, "the engine is loading: compiling")
		if w.scraper.running.Load() != 0 {
			t.Error("an engine that loads is scraped")
		}
		old := scrape(signals.Waiting)
		pass(time.Second)
		w.become(supervisor.Ready, "ready")
		w.wantClosed(t, "waits for a first reading of its metrics")
		w.scraper.publish(old)
		synctest.Wait()
		w.wantClosed(t, "waits for a first reading of its metrics")
		w.scrapedNow(signals.Waiting)
		w.wantOpen(t)
		if v := w.arrive("1"); v.Decision.Verdict != policy.Admit {
			t.Errorf("%+v", v.Decision)
		}
	})
}

func TestUnmetNeedEndsAStartOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, needsKV)
		w.watching(t)
		w.become(supervisor.Ready, "ready")
		for range 3 {
			w.scrapedNow(signals.Waiting)
		}
		w.wantClosed(t, "policy kv-threshold needs kv_used")
		var needs *policy.NeedsError
		if f := w.failures(); len(f) != 1 || !errors.As(f[0], &needs) || needs.Signal != signals.KVUsed {
			t.Errorf("failures %v", f)
		}
		if v := w.arrive("1"); v.Decision.Reason != reason.SignalMissing {
			t.Errorf("callers hear %s", v.Decision.Reason)
		}
	})
}

func TestUnmetNeedOfARunningAdmitdKeepsTheGateClosedUntilAPolicyFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, needsKV)
		w.watching(t)
		w.become(supervisor.Ready, "ready")
		w.scrapedNow(signals.KVUsed)
		w.wantOpen(t)

		// Another engine takes its place, which exports less.
		w.become(supervisor.Starting, "launching the engine")
		w.wantClosed(t, "launching the engine")
		pass(time.Second)
		w.become(supervisor.Ready, "ready")
		for range 3 {
			w.scrapedNow(signals.Waiting)
		}
		w.wantClosed(t, "needs kv_used")
		if f := w.failures(); len(f) != 0 {
			t.Errorf("admitd ends because of %v", f)
		}
		if n := countEvents(w.journal, "error policy_refused: the gate stays closed: policy kv-threshold needs kv_used"); n != 1 {
			t.Errorf("said %d times:\n%s", n, strings.Join(events(w.journal), "\n"))
		}

		if _, err := w.store.Apply(t.Context(), []byte(needsWaiting), "", "api", ""); err != nil {
			t.Fatal(err)
		}
		w.wantClosed(t, "needs kv_used")
		w.scrapedNow(signals.Waiting)
		w.wantOpen(t)

		// A later policy that a later engine does not fit gives way to the one before it, with a word about why.
		w.scrapedNow(signals.Waiting, signals.KVUsed)
		if _, err := w.store.Apply(t.Context(), []byte(needsKVMore), "", "api", ""); err != nil {
			t.Fatal(err)
		}
		w.become(supervisor.Failed, "died")
		pass(time.Second)
		w.become(supervisor.Ready, "ready")
		w.scrapedNow(signals.Waiting)
		w.wantOpen(t)
		if _, info := w.store.Current(); info.Name != "queue-depth" || info.Source != "fallback" {
			t.Errorf("%+v", info)
		}
		if n := countEvents(w.journal, "error policy_fallback: policy kv-threshold@"); n != 1 {
			t.Errorf("%q", events(w.journal))
		}
	})
}

func TestPolicyAppliedWhileLoadingNeverEndsAdmitd(t *testing.T) {
	for name, c := range map[string]struct {
		started string
		scrape  func(w *world)
		opens   bool
	}{
		"not exported": {needsWaiting, func(w *world) { w.scrapedNow(signals.Waiting) }, true},
		"not readable": {needsNothing, func(w *world) {
			w.scraper.publish(&signals.Snapshot{Seq: 1, Failures: 1, Err: "status 500"})
			pass(firstReadingWithin)
		}, true},
		"the policy of the start does not fit either": {"policy: kv-threshold\nparams: {max_kv_used: 0.8}\n", func(w *world) { w.scrapedNow(signals.Waiting) }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, c.started)
			w.watching(t)
			w.become(supervisor.Loading, "loading")
			if _, err := w.store.Apply(t.Context(), []byte(needsKV), "", "api", ""); err != nil {
				t.Fatal(err)
			}
			w.become(supervisor.Ready, "ready")
			c.scrape(w)
			if !c.opens {
				if len(w.failures()) != 1 {
					t.Errorf("%s: %v", name, w.failures())
				}
				return
			}
			w.wantOpen(t)
			cur, info := w.store.Current()
			if f := w.failures(); len(f) != 0 || info.Source != "fallback" || cur.Rev != compiled(t, c.started).Rev {
				t.Errorf("%s: failures %v, runs %+v", name, f, info)
			}
			if n := countEvents(w.journal, "error policy_fallback: policy kv-threshold@"); n != 1 {
				t.Errorf("%s: %q", name, events(w.journal))
			}
		})
	}
}

func TestMetricsThatStayUnreadableEndAStartByName(t *testing.T) {
	for name, snap := range map[string]*signals.Snapshot{
		"status 500": {Seq: 1, Failures: 1, Err: "status 500"}, "no answer within 15s": {},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "policy: dual-gate\nparams: {max_waiting: 8, max_kv_used: 0.95}\n")
			w.watching(t)
			w.become(supervisor.Ready, "ready")
			w.scraper.publish(snap)
			pass(firstReadingWithin - time.Second)
			if f := w.failures(); len(f) != 0 {
				t.Fatalf("too early: %v", f)
			}
			pass(2 * time.Second)
			var needs *policy.NeedsError
			f := w.failures()
			if len(f) != 1 || !errors.As(f[0], &needs) || !strings.Contains(f[0].Error(), "waiting") || !strings.Contains(f[0].Error(), "kv_used") || !strings.Contains(f[0].Error(), name) {
				t.Errorf("failures %v, want one with both signals and %q", f, name)
			}
		})
	}
}

func TestMetricsLostWithALaterEngineDegradeToTheLedger(t *testing.T) {
	for text, opens := range map[string]bool{needsWaiting: true, "policy: queue-depth\non_stale: refuse\nparams: {max_waiting: 2}\n": false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, text)
			w.watching(t)
			w.become(supervisor.Ready, "ready")
			w.scrapedNow(signals.Waiting)
			w.wantOpen(t)
			w.become(supervisor.Failed, "died")
			pass(time.Second)
			w.become(supervisor.Ready, "ready")
			w.scraper.publish(&signals.Snapshot{Seq: 1, Failures: 1, Err: "status 500"})
			synctest.Wait()
			w.wantClosed(t, "cannot be read: status 500")
			pass(firstReadingWithin)
			if f := w.failures(); len(f) != 0 {
				t.Errorf("admitd ends because of %v", f)
			}
			if !opens {
				w.wantClosed(t, "status 500")
				w.wantClosed(t, "on_stale is refuse, not ledger")
				return
			}
			w.wantOpen(t)
			if n := countEvents(w.journal, "error signals_unread: the gate opens by its own books (on_stale: ledger): policy queue-depth needs waiting"); n != 1 {
				t.Errorf("%q", events(w.journal))
			}
			if v := w.arrive("1"); v.Decision.Verdict != policy.Admit {
				t.Errorf("%+v", v.Decision)
			}
		})
	}
}

func TestMetricsThatCannotBeReadMatterOnlyToAPolicyThatNeedsThem(t *testing.T) {
	for text, opens := range map[string]bool{needsNothing: true, needsWaiting: false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, text)
			w.watching(t)
			w.become(supervisor.Ready, "ready")
			w.scraper.publish(&signals.Snapshot{Seq: 1, Failures: 1, Err: "status 500"})
			synctest.Wait()
			if ok, _ := w.serving(); ok != opens {
				t.Errorf("%q: open %v", text, ok)
			}
			if opens {
				return
			}
			w.wantClosed(t, "its metrics, which the policy needs, cannot be read: status 500")
			w.scrapedNow(signals.Waiting)
			w.wantOpen(t)
		})
	}
}

func TestNothingOpensTheGateOfAnAdmitdThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, needsWaiting)
		w.watching(t)
		w.become(supervisor.Ready, "ready")
		w.beginStop()
		w.scrapedNow(signals.Waiting)
		w.wantClosed(t, "admitd is stopping")
		for _, s := range []supervisor.State{supervisor.Draining, supervisor.Stopped} {
			w.become(s, "text of "+string(s))
			w.wantClosed(t, "admitd is stopping")
		}
		if v := w.arrive("1"); v.Decision.Reason != reason.Draining {
			t.Errorf("callers hear %s", v.Decision.Reason)
		}
	})
}

func TestEngineThatStopsWhileTheGateOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, needsNothing)
		w.engine.become(supervisor.Ready, "ready")
		seen := w.engine.Status()
		w.scraper.publish(scrape())
		w.engine.become(supervisor.Draining, "draining") // after watch has looked
		if w.tryOpen(seen, w.fail) {
			t.Error("the gate opened over an engine that stops")
		}
		if ok, _ := w.serving(); ok || w.served {
			t.Error("and says that it serves")
		}
	})
}

func TestEveryStateHasItsReason(t *testing.T) {
	for state, want := range map[supervisor.State]reason.Code{
		supervisor.Starting: reason.EngineLoading, supervisor.Loading: reason.EngineLoading, supervisor.Stalled: reason.EngineStalled,
		supervisor.Draining: reason.Draining, supervisor.Failed: reason.EngineDown, supervisor.Wedged: reason.EngineDown, supervisor.Stopped: reason.EngineDown,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, needsNothing)
			w.watching(t)
			w.become(supervisor.Ready, "ready")
			w.scrapedNow()
			w.wantOpen(t)
			// The words are the same each time: the code must change all the same.
			w.become(supervisor.Failed, "same words")
			w.become(state, "same words")
			w.wantClosed(t, "same words")
			if v := w.arrive("1"); v.Decision.Reason != want {
				t.Errorf("%s: callers hear %s, want %s", state, v.Decision.Reason, want)
			}
			level := map[supervisor.State]string{supervisor.Failed: "error", supervisor.Wedged: "error", supervisor.Stalled: "warn"}[state]
			if level == "" {
				level = "info"
			}
			if n := countEvents(w.journal, fmt.Sprintf("%s engine_state: engine %s: same words", level, state)); n != 1 {
				t.Errorf("%s: %q", state, events(w.journal))
			}
		})
	}
}

func TestStallThatPassesReopensTheGateWithoutANewScraper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, needsNothing)
		w.watching(t)
		w.become(supervisor.Ready, "ready")
		w.scrapedNow()
		w.become(supervisor.Stalled, "stalled")
		w.wantClosed(t, "stalled")
		w.engine.set(func(st *supervisor.Status) { st.State, st.Text = supervisor.Ready, "moves again" })
		synctest.Wait()
		w.wantOpen(t)
		if n := w.scraper.runs.Load(); n != 1 {
			t.Errorf("%d scrapers were started", n)
		}
	})
}

func TestEachEngineLifeIsScrapedAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, needsWaiting)
		w.watching(t)
		w.become(supervisor.Ready, "ready")
		w.scrapedNow(signals.Waiting)
		w.wantOpen(t)
		pass(time.Second)
		// So quick a restart that only the time of being ready tells it.
		w.drain(t.Context())
		w.become(supervisor.Ready, "ready")
		w.wantClosed(t, "waits for a first reading")
		if w.scraper.runs.Load() != 2 || w.scraper.resets.Load() != 2 || w.scraper.running.Load() != 1 {
			t.Errorf("runs %d, resets %d, running %d", w.scraper.runs.Load(), w.scraper.resets.Load(), w.scraper.running.Load())
		}
		w.scrapedNow(signals.Waiting)
		w.wantOpen(t)
		w.become(supervisor.Failed, "died")
		if w.scraper.running.Load() != 0 {
			t.Error("a dead engine is scraped")
		}
	})
}

func TestGivingUpEndsAStartAndKeepsARunningAdmitd(t *testing.T) {
	for _, served := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, needsNothing)
			w.watching(t)
			if served {
				w.become(supervisor.Ready, "ready")
				w.scrapedNow()
				w.wantOpen(t)
			}
			for range 2 {
				w.engine.set(func(st *supervisor.Status) { st.State, st.GaveUp, st.Text = supervisor.Failed, true, "6 crashes" })
				synctest.Wait()
			}
			f := w.failures()
			if served && len(f) != 0 || !served && (len(f) != 1 || !errors.Is(f[0], ErrEngineFailed) || !strings.Contains(f[0].Error(), "6 crashes")) {
				t.Errorf("served %v: failures %v", served, f)
			}
			w.wantClosed(t, "6 crashes")
		})
	}
}

func TestDrainWaitsForWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, needsNothing)
		w.admission.Open()
		if v := w.arrive("1"); v.Decision.Verdict != policy.Admit {
			t.Fatalf("%+v", v.Decision)
		}
		done := make(chan struct{})
		go func() { defer close(done); w.drain(t.Context()) }()
		pass(time.Minute)
		select {
		case <-done:
			t.Fatal("a request is in flight, and the drain is over")
		default:
		}
		w.wantClosed(t, "requests in flight may finish")
		if err := w.admission.Settle(admission.Settlement{ID: "1", Ending: dialect.EndWhole}); err != nil {
			t.Fatal(err)
		}
		<-done

		w.admission.Open()
		w.arrive("2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.drain(ctx) // returns: its time is up
	})
}

func TestEngineLimitsComeFromConfigurationThenEngineThenMetrics(t *testing.T) {
	huge := dialect.TextSize{TokenIDs: 1001}
	tooLarge := admission.Arrival{ID: "x", Facts: dialect.Facts{Text: huge, LargestText: huge, Sequences: 1, Prompts: 1}, DryRun: true}
	for _, c := range []struct {
		name                   string
		configured, told, want int
	}{{"configured", 3, 8, 3}, {"told", 0, 8, 8}, {"unknown", 0, 0, 0}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, needsNothing, func(cfg *config.Config) { cfg.Engine.Slots = c.configured })
			w.watching(t)
			w.engine.set(func(st *supervisor.Status) {
				st.State, st.Slots, st.ReadyAt = supervisor.Ready, c.told, time.Now()
			})
			synctest.Wait()
			snap := signals.NewSnapshot(signals.Snapshot{At: time.Now(), Seq: 1},
				signals.Signal{Name: signals.KVCapacity, Value: 1000, At: time.Now(), State: signals.Live})
			w.scraper.publish(snap)
			synctest.Wait()
			w.wantOpen(t)
			if got := w.admission.Dump(admission.Totals).Slots; got != c.want {
				t.Errorf("%s: %d slots, want %d", c.name, got, c.want)
			}
			if v := w.admission.Decide(t.Context(), tooLarge); v.Decision.Reason != reason.TooLarge {
				t.Errorf("%s: a prompt larger than the KV capacity that the metrics tell: %+v", c.name, v.Decision)
			}
		})
	}
}

func TestProgressIsUnknownWithoutATokenCount(t *testing.T) {
	w := newWorld(t, needsNothing)
	w.scraper.publish(scrape(signals.Waiting))
	if running, tokens, ok := w.progress(); ok || running != 0 || tokens != 0 {
		t.Errorf("%d %v %v", running, tokens, ok)
	}
}

func TestExternalEngineIsAskedByItsOwnName(t *testing.T) {
	for kind, want := range map[supervisor.Kind]string{supervisor.External: "org/model", supervisor.VLLM: "short"} {
		w := &world{pool: &pool{journal: newJournal(t)}, engine: newFakeEngine(), scraper: newFakeScraper()}
		w.engine.st.Kind = kind
		w.pool.engine, w.pool.scraper, w.config = w.engine, w.scraper, testConfig(t)
		w.config.Model, w.config.ModelName = "org/model", "short"
		if err := w.assemble(Options{Config: w.config, Logger: quiet()}, compiled(t, needsNothing), "", t.TempDir()); err != nil {
			t.Fatal(err)
		}
		if g := w.gatePool(); g.Model != "short" || g.EngineModel != want {
			t.Errorf("%s: callers say %s, the engine %s", kind, g.Model, g.EngineModel)
		}
	}
}

func TestQuietStartStillTellsWhatNobodyMayMiss(t *testing.T) {
	for _, withLines := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, needsNothing)
			var log syncBuffer
			w.logger, w.quiet = slog.New(slog.NewTextHandler(&log, nil)), !withLines
			w.watching(t)
			exit := &supervisor.Exit{At: time.Now(), Text: "exit status 1", Cause: "out of GPU memory", Hint: "lower --gpu-memory-utilization"}
			for range 2 {
				w.engine.set(func(st *supervisor.Status) { st.State, st.Text, st.LastExit = supervisor.Failed, "died", exit })
				synctest.Wait()
			}
			w.engine.set(func(st *supervisor.Status) {
				st.State, st.Simulated, st.ReadyAt = supervisor.Ready, true, time.Now()
			})
			synctest.Wait()
			w.scrapedNow()
			want := map[bool]int{false: 1, true: 0}[withLines]
			for _, text := range []string{"SIMULATED ENGINE: answers are made up", "out of GPU memory", "lower --gpu-memory-utilization"} {
				if n := strings.Count(log.String(), text); n != want {
					t.Errorf("%q is told %d times, want %d:\n%s", text, n, want, log.String())
				}
			}
		})
	}
}
