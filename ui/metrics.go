package ui

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"admitd/nvml"
	"admitd/signals"
	"admitd/supervisor"
	"admitd/ui/api"
)

// metrics collects, at each scrape, what this package can see: signals, engines, reloads, viewers, goodput, GPUs.
// A value that is not known is a series that is not there.
type metrics struct {
	s *Server
	d map[string]*prometheus.Desc // fixed keys

	mu         sync.Mutex
	lastReload time.Time // last successful one seen
}

func newMetrics(s *Server, reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{s: s, d: map[string]*prometheus.Desc{}}
	for _, d := range []struct {
		name, help string
		labels     []string
	}{
		{"admitd_signal_age_seconds", "Age of an engine signal's last reading.", []string{"pool", "signal"}},
		{"admitd_signal_state", "1 for the state that a signal is in, 0 for the others.", []string{"pool", "signal", "state"}},
		{"admitd_engine_state", "1 for the state that the engine is in, 0 for the others.", []string{"pool", "state"}},
		{"admitd_engine_trouble", "1 for the trouble that the engine is in within its state, 0 for the others.", []string{"pool", "trouble"}},
		{"admitd_signals_condition", "1 while the engine's metrics cannot be believed for that reason.", []string{"pool", "condition"}},
		{"admitd_engine_restarts_total", "Engine launches after the first.", []string{"pool"}},
		{"admitd_config_last_reload_successful", "1 when the last reload of the configuration or policy was applied.", nil},
		{"admitd_config_last_reload_success_timestamp_seconds", "Unix time of the last applied reload.", nil},
		{"admitd_ws_clients", "Viewers connected to the live stream.", nil},
		{"admitd_ws_frames_dropped_total", "Frames and events that slow viewers lost.", nil},
		{"admitd_ws_disconnects_total", "Viewers that have left, by cause.", []string{"cause"}},
		{"admitd_goodput_ratio", "Requests of the last minute that met their SLO over all that were meant to be served.", []string{"pool"}},
		{"admitd_feed_overruns_total", "Times that the journal dropped entries before the dashboard had them.", []string{"pool"}},
		{"admitd_journal_dropped_entries_total", "Entries of the record that did not reach the disk.", []string{"pool"}},
		{"admitd_journal_written_entries_total", "Entries of the record that were handed to the operating system.", []string{"pool"}},
		{"admitd_journal_queued_entries", "Entries of the record that wait for the disk.", []string{"pool"}},
		{"admitd_gpu_state", "1 for the state that a GPU is in, 0 for the others.", []string{"gpu", "state"}},
		{"admitd_gpu_memory_used_bytes", "GPU memory in use.", []string{"gpu"}},
		{"admitd_gpu_memory_size_bytes", "GPU memory in all.", []string{"gpu"}},
		{"admitd_gpu_engine_memory_bytes", "GPU memory held by the engine's own processes.", []string{"gpu"}},
		{"admitd_gpu_utilization_ratio", "Share of time in which the GPU was busy.", []string{"gpu"}},
		{"admitd_gpu_power_watts", "GPU power draw.", []string{"gpu"}},
		{"admitd_gpu_temperature_celsius", "GPU temperature.", []string{"gpu"}},
	} {
		m.d[d.name] = prometheus.NewDesc(d.name, d.help, d.labels, nil)
	}
	return m, reg.Register(m)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range m.d {
		ch <- d
	}
}

// observeConfig keeps the time of the last good reload, which the status of a later failed one no longer tells.
func (m *metrics) observeConfig(c api.ConfigStatus) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.LastReloadOK && c.LastReloadAt != nil {
		m.lastReload = *c.LastReloadAt
	}
	return m.lastReload
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	put := collector{m, ch}
	now := m.s.clock()
	seen := map[string]bool{}
	for _, p := range m.s.pools {
		put.pool(p, now)
		put.gpus(p.b.GPU(), seen)
	}
	c := m.s.o.Backend.Config()
	put.gauge("admitd_config_last_reload_successful", oneIf(c.LastReloadOK))
	if t := m.observeConfig(c); !t.IsZero() {
		put.gauge("admitd_config_last_reload_success_timestamp_seconds", float64(t.UnixMilli())/1000)
	}
	put.gauge("admitd_ws_clients", float64(m.s.hub.count()))
	put.counter("admitd_ws_frames_dropped_total", float64(m.s.hub.framesDropped()))
	for _, cause := range endings() {
		put.counter("admitd_ws_disconnects_total", float64(m.s.hub.ended[cause].Load()), cause)
	}
}

type collector struct {
	m  *metrics
	ch chan<- prometheus.Metric
}

func (c collector) gauge(name string, v float64, labels ...string) {
	c.ch <- prometheus.MustNewConstMetric(c.m.d[name], prometheus.GaugeValue, v, labels...)
}

func (c collector) counter(name string, v float64, labels ...string) {
	c.ch <- prometheus.MustNewConstMetric(c.m.d[name], prometheus.CounterValue, v, labels...)
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (c collector) pool(p *pool, now time.Time) {
	name := p.b.Model
	snap := p.b.Snapshot()
	for _, code := range signals.ConditionCodes() {
		c.gauge("admitd_signals_condition", oneIf(snap.Has(code)), name, string(code))
	}
	for _, s := range snap.All(now) {
		if s.Present() {
			c.gauge("admitd_signal_age_seconds", s.Age(now).Seconds(), name, string(s.Name))
		}
		for _, st := range []signals.State{signals.Live, signals.Flat, signals.Stale, signals.Missing, signals.Contradicted} {
			c.gauge("admitd_signal_state", oneIf(s.State == st), name, string(s.Name), string(st))
		}
	}
	status := p.b.Engine.Status()
	for _, st := range []supervisor.State{supervisor.Starting, supervisor.Loading, supervisor.Ready, supervisor.Stalled,
		supervisor.Draining, supervisor.Stopped, supervisor.Failed, supervisor.Wedged} {
		c.gauge("admitd_engine_state", oneIf(status.State == st), name, string(st))
	}
	for _, code := range supervisor.Troubles() {
		c.gauge("admitd_engine_trouble", oneIf(status.Trouble != nil && status.Trouble.Code == code), name, string(code))
	}
	c.counter("admitd_engine_restarts_total", float64(status.Restarts), name)
	c.counter("admitd_feed_overruns_total", float64(p.feed.Lost()), name)
	if p.b.Journal.OnDisk() {
		disk := p.b.Journal.Stats()
		c.counter("admitd_journal_dropped_entries_total", float64(disk.Dropped), name)
		c.counter("admitd_journal_written_entries_total", float64(disk.Written), name)
		c.gauge("admitd_journal_queued_entries", float64(disk.Queued), name)
	}
	if g := p.feed.Windows(now)[0].Goodput; g != nil {
		c.gauge("admitd_goodput_ratio", *g, name)
	}
}

// gpus adds the devices of a reading that no pool before has had.
func (c collector) gpus(r *nvml.Reading, seen map[string]bool) {
	if r == nil {
		return
	}
	for i := range r.Devices {
		d := &r.Devices[i]
		gpu := strconv.Itoa(d.Index)
		if seen[gpu] {
			continue
		}
		seen[gpu] = true
		for _, st := range []nvml.State{nvml.OK, nvml.Unavailable, nvml.Lost, nvml.Hung, nvml.Denied} {
			c.gauge("admitd_gpu_state", oneIf(d.State == st), gpu, string(st))
		}
		c.optional("admitd_gpu_memory_used_bytes", bytesOf(d.MemoryUsedBytes), gpu)
		c.optional("admitd_gpu_memory_size_bytes", bytesOf(d.MemoryTotalBytes), gpu)
		c.optional("admitd_gpu_engine_memory_bytes", engineBytes(r.Devices[i:i+1]), gpu)
		c.optional("admitd_gpu_utilization_ratio", d.UtilizationFraction, gpu)
		c.optional("admitd_gpu_power_watts", d.PowerWatts, gpu)
		c.optional("admitd_gpu_temperature_celsius", d.TemperatureCelsius, gpu)
	}
}

func (c collector) optional(name string, v *float64, labels ...string) {
	if v != nil {
		c.gauge(name, *v, labels...)
	}
}

func bytesOf(v *uint64) *float64 {
	if v == nil {
		return nil
	}
	return number(*v)
}
