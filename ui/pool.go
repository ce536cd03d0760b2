package ui

import (
	"sync"
	"time"

	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/nvml"
	"admitd/signals"
	"admitd/supervisor"
	"admitd/ui/api"
	"admitd/ui/feed"
)

// readAtOnce bounds one read of the journal, so that its lock is never held for long on our account.
const readAtOnce = 512

// pool is one served model with its feed.
type pool struct {
	b    PoolBackend
	feed *feed.Feed

	mu     sync.Mutex // guards cursor, and that entries are folded in order
	cursor uint64
}

func newPool(b PoolBackend, o feed.Options) *pool { return &pool{b: b, feed: feed.New(o)} }

// catchUp folds what the journal has got since. Requests call it too, so that they see what was decided just now.
func (p *pool) catchUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		entries, oldest, last := p.b.Journal.Read(p.cursor, readAtOnce)
		if len(entries) == 0 {
			return
		}
		p.feed.Fold(entries, oldest > p.cursor+1 && p.cursor > 0)
		p.cursor = entries[len(entries)-1].Seq
		if p.cursor >= last {
			return
		}
	}
}

// step folds the journal and makes a frame when one is due.
func (p *pool) step(now time.Time) {
	p.catchUp()
	p.feed.Step(now, p.sample(now))
}

func (p *pool) sample(now time.Time) feed.Sample {
	status := p.b.Engine.Status()
	compiled, info := p.b.Policy.Current()
	g := map[string]*float64{}
	snap := p.b.Snapshot()
	for gauge, name := range map[string]signals.Name{
		"kv_used": signals.KVUsed, "running": signals.Running, "waiting": signals.Waiting,
		"preemption_rate": signals.PreemptionRate, "prefill_tokens_rate": signals.PrefillRate,
		"decode_tokens_rate": signals.DecodeRate, "prefix_hit_rate": signals.PrefixHitRate,
	} {
		g[gauge] = usable(snap.Get(name, now))
	}
	if snap != nil && !snap.At.IsZero() {
		g["scrape_age_ms"] = number(now.Sub(snap.At).Milliseconds())
	}
	d := p.b.Digest(now, admission.Totals)
	g["in_flight"], g["held"], g["reserved_tokens"] = number(d.InFlight), number(d.Held), number(d.ReservedTokens)
	if capacity := kvCapacity(snap, status, now); capacity > 0 {
		g["kv_reserved"] = number(float64(d.ReservedTokens) / capacity)
	}
	gpuGauges(g, p.b.GPU(), now)
	if compiled != nil {
		g["max_waiting"] = numberPtr(compiled.Spec.Params.MaxWaiting)
		g["max_kv_used"] = compiled.Spec.Params.MaxKVUsed
		g["max_in_flight"] = numberPtr(compiled.Spec.Params.MaxInFlight)
	}
	return feed.Sample{Gauges: g, Engine: string(status.State), Rev: info.Rev}
}

func number[T int | int64 | uint64 | float64](v T) *float64 {
	f := float64(v)
	return &f
}

func numberPtr(v *int) *float64 {
	if v == nil {
		return nil
	}
	return number(*v)
}

// usable is the signal's value, nil when it is not known now: missing, or too old to be called now.
func usable(s signals.Signal) *float64 {
	if !s.Present() || s.State == signals.Stale {
		return nil
	}
	return number(s.Value)
}

// kvCapacity is the KV cache's size in tokens as scraped, else as the engine's log said; 0 when neither is known.
// A stale reading counts: capacity does not change while an engine lives.
func kvCapacity(snap *signals.Snapshot, status supervisor.Status, now time.Time) float64 {
	if s := snap.Get(signals.KVCapacity, now); s.Present() {
		return s.Value
	}
	return float64(status.KVCapacityTokens)
}

// gpuGauges sums memory over devices. A sum is unknown when any device that answers does not tell its part.
func gpuGauges(g map[string]*float64, r *nvml.Reading, now time.Time) {
	if r == nil || r.At.IsZero() || len(r.Devices) == 0 {
		return
	}
	g["gpu_age_ms"] = number(now.Sub(r.At).Milliseconds())
	if r.State != nvml.OK {
		return
	}
	g["gpu_memory_used_bytes"] = sumBytes(r.Devices, func(d *nvml.Device) *uint64 { return d.MemoryUsedBytes })
	g["gpu_memory_total_bytes"] = sumBytes(r.Devices, func(d *nvml.Device) *uint64 { return d.MemoryTotalBytes })
	g["gpu_memory_engine_bytes"] = engineBytes(r.Devices)
	var sum float64
	for i := range r.Devices {
		u := r.Devices[i].UtilizationFraction
		if u == nil {
			return
		}
		sum += *u
	}
	g["gpu_utilization"] = number(sum / float64(len(r.Devices)))
}

func sumBytes(devices []nvml.Device, get func(*nvml.Device) *uint64) *float64 {
	var sum uint64
	for i := range devices {
		v := get(&devices[i])
		if v == nil {
			return nil
		}
		sum += *v
	}
	return number(sum)
}

// engineBytes sums what the engine's own processes hold; nil when there are none or one of them is not told.
func engineBytes(devices []nvml.Device) *float64 {
	var sum uint64
	found := false
	for i := range devices {
		for _, proc := range devices[i].Processes {
			if !proc.Ours {
				continue
			}
			if proc.UsedBytes == nil {
				return nil
			}
			found = true
			sum += *proc.UsedBytes
		}
	}
	if !found {
		return nil
	}
	return number(sum)
}

// status is the pool as GET status shows it.
func (p *pool) status(now time.Time) api.PoolStatus {
	_, info := p.b.Policy.Current()
	snap := p.b.Snapshot()
	return api.PoolStatus{
		Model: p.b.Model, Aliases: p.b.Aliases, Engine: p.b.Engine.Status(), Policy: info,
		Ledger: p.b.Digest(now, admission.PerTenant), Signals: signalViews(snap, now),
		Scrape: p.scrape(snap, now), GPU: gpuView(p.b.GPU(), now), Windows: p.feed.Windows(now),
	}
}

func (p *pool) scrape(snap *signals.Snapshot, now time.Time) api.ScrapeStatus {
	s := api.ScrapeStatus{IntervalMS: p.b.ScrapeInterval().Milliseconds()}
	if snap == nil {
		return s
	}
	s.Seq, s.TookMS, s.Failures, s.Error = snap.Seq, snap.Took.Milliseconds(), snap.Failures, snap.Err
	s.Engine, s.Version = snap.Engine, snap.Version
	s.Life, s.LifeWhy, s.Models = snap.Life, snap.LifeWhy, snap.Models
	for _, c := range snap.Conditions {
		s.Conditions = append(s.Conditions, api.ScrapeCondition{Code: string(c.Code), Text: c.Text})
	}
	if !snap.At.IsZero() {
		age := now.Sub(snap.At).Milliseconds()
		s.AgeMS = &age
	}
	return s
}

func signalViews(snap *signals.Snapshot, now time.Time) []journal.SignalView {
	out := []journal.SignalView{}
	for _, s := range snap.All(now) {
		v := journal.SignalView{Name: s.Name, Unit: s.Unit, Source: s.Source, State: s.State,
			AgeMS: s.Age(now).Milliseconds(), Why: s.Why}
		if s.Present() {
			v.Value = number(s.Value)
		}
		out = append(out, v)
	}
	return out
}

func gpuView(r *nvml.Reading, now time.Time) api.GPU {
	g := api.GPU{State: string(nvml.Unavailable), Devices: []api.GPUDevice{}}
	if r == nil {
		return g
	}
	g.State, g.Why, g.Driver = string(r.State), r.Why, r.Driver
	if !r.At.IsZero() {
		age := now.Sub(r.At).Milliseconds()
		g.AgeMS = &age
	}
	for i := range r.Devices {
		d := &r.Devices[i]
		v := api.GPUDevice{
			Index: d.Index, Name: d.Name, UUID: d.UUID, State: string(d.State), Why: d.Why,
			MemoryTotalBytes: d.MemoryTotalBytes, MemoryUsedBytes: d.MemoryUsedBytes, MemoryFreeBytes: d.MemoryFreeBytes,
			UnifiedMemory: d.UnifiedMemory, Utilization: d.UtilizationFraction, PowerWatts: d.PowerWatts,
			Temperature: d.TemperatureCelsius, Throttle: d.Throttle, ECCUncorrected: d.ECCUncorrected,
			LastXid: d.LastXid, Processes: []api.GPUProcess{},
		}
		for _, p := range d.Processes {
			v.Processes = append(v.Processes, api.GPUProcess{PID: p.PID, Name: p.Name, UsedBytes: p.UsedBytes, Ours: p.Ours})
		}
		g.Devices = append(g.Devices, v)
	}
	return g
}
