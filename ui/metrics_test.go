package ui

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"admitd/gate/journal"
	"admitd/nvml"
	"admitd/signals"
	"admitd/supervisor"
	"admitd/ui/api"
)

func (r *rig) exposition() string {
	r.t.Helper()
	resp, body := r.request("GET", "/metrics", "")
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%d %s", resp.StatusCode, body)
	}
	return string(body)
}

func TestMetricsPassTheLinter(t *testing.T) {
	r := newRig(t)
	problems, err := promlint.New(strings.NewReader(r.exposition())).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestMetricsTellWhatIsKnown(t *testing.T) {
	r := newRig(t)
	r.admit("a")
	r.journal.Append(journal.Entry{At: t0, Kind: journal.KindOutcome, Outcome: &journal.Outcome{ID: "a", Ending: "whole", SLOMet: true}})
	r.s.pools[0].catchUp()
	r.clock.advance(1500 * time.Millisecond)
	text := r.exposition()
	for _, line := range []string{
		`admitd_signal_age_seconds{pool="m1",signal="kv_used"} 1.5`,
		`admitd_signal_state{pool="m1",signal="kv_used",state="live"} 1`,
		`admitd_signal_state{pool="m1",signal="awake",state="missing"} 1`,
		`admitd_signal_state{pool="m1",signal="awake",state="live"} 0`,
		`admitd_engine_state{pool="m2",state="ready"} 1`,
		`admitd_engine_state{pool="m2",state="failed"} 0`,
		`admitd_engine_restarts_total{pool="m1"} 2`,
		`admitd_goodput_ratio{pool="m1"} 1`,
		`admitd_config_last_reload_successful 1`,
		`admitd_ws_clients 0`,
		`admitd_ws_frames_dropped_total 0`,
		`admitd_gpu_memory_used_bytes{gpu="0"} 600`,
		`admitd_gpu_engine_memory_bytes{gpu="0"} 500`,
		`admitd_gpu_state{gpu="0",state="ok"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	for _, absent := range []string{
		`admitd_signal_age_seconds{pool="m1",signal="awake"}`, // never read
		`admitd_goodput_ratio{pool="m2"}`,                     // nothing has ended there
		`admitd_gpu_power_watts{`,                             // the card does not tell
	} {
		if strings.Contains(text, absent) {
			t.Errorf("there is a series %s for what is not known", absent)
		}
	}
}

// An alert about decisions that are lost to the record needs something to stand on.
func TestEntriesThatDoNotReachTheDiskAreCounted(t *testing.T) {
	r := newRig(t)
	onDisk, err := journal.New(journal.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, ttft := range []float64{1, 2, math.NaN()} { // JSON cannot say the last one
		onDisk.Append(journal.Entry{At: t0, Kind: journal.KindOutcome, Outcome: &journal.Outcome{ID: "a", Ending: "whole", TTFTMS: &ttft}})
	}
	if err := onDisk.Close(); err != nil {
		t.Fatal(err)
	}
	r.s.pools[0].b.Journal = onDisk
	text := r.exposition()
	for _, line := range []string{
		`admitd_journal_dropped_entries_total{pool="m1"} 1`, `admitd_journal_written_entries_total{pool="m1"} 2`,
		`admitd_journal_queued_entries{pool="m1"} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if strings.Contains(text, `admitd_journal_written_entries_total{pool="m2"}`) {
		t.Error("a record in memory alone has figures of a disk")
	}
}

func TestTheTimeOfTheLastGoodReloadOutlivesABadOne(t *testing.T) {
	r := newRig(t)
	r.exposition()
	r.b.config.Store(&api.ConfigStatus{LastReloadOK: false, LastReloadAt: new(t0.Add(time.Hour)), Problem: "line 3"})
	text := r.exposition()
	for _, line := range []string{"admitd_config_last_reload_successful 0\n", "admitd_config_last_reload_success_timestamp_seconds 1.79604e+09\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %s", line)
		}
	}
}

func TestMetricsOfAPoolThatKnowsNothing(t *testing.T) {
	r := newRig(t)
	for i := range r.s.pools {
		r.s.pools[i].b.Snapshot = func() *signals.Snapshot { return nil }
		r.s.pools[i].b.GPU = func() *nvml.Reading { return &nvml.Reading{State: nvml.Unavailable, Why: "no library"} }
	}
	r.b.config.Store(&api.ConfigStatus{})
	r.engine.set(func(s *supervisor.Status) { s.State = supervisor.Starting })
	text := r.exposition()
	for _, absent := range []string{"admitd_gpu_state{", "admitd_signal_age_seconds{", "admitd_config_last_reload_success_timestamp_seconds "} {
		if strings.Contains(text, "\n"+absent) {
			t.Errorf("there is a series %s", absent)
		}
	}
	st := fetch[api.Status](r, "/api/v1/status")
	if p := st.Pools[0]; p.Scrape.AgeMS != nil || p.GPU.AgeMS != nil || p.GPU.State != "unavailable" || p.Signals[0].Value != nil {
		t.Errorf("%+v", p)
	}
	s, _, _ := r.open("")
	r.step()
	fr := want[api.Frame](s, api.KindFrame)
	for i, g := range api.Gauges {
		known := map[string]bool{"in_flight": true, "held": true, "reserved_tokens": true, "arrivals_rate": true, "max_waiting": true, "max_kv_used": true}
		if (fr.G[i] != nil) != known[g.Name] {
			t.Errorf("gauge %s is %v", g.Name, fr.G[i])
		}
	}
}

var _ prometheus.Collector = (*metrics)(nil)
