package nvml

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// MonitorOptions says what a Monitor polls and how often. The zero value polls the machine's own NVML.
type MonitorOptions struct {
	// Lib is the library; nil means the machine's own, loaded at the first poll.
	Lib Library
	// Pids lists the processes that count as ours; nil means none.
	Pids func() []int
	// Interval is the pause between polls (default 1 s).
	Interval time.Duration
	// CallTimeout bounds one call into the library (default 2 s). Initialising may take ten times that: without
	// the persistence daemon the driver wakes every GPU for it.
	CallTimeout time.Duration
	// Logger is for changes of condition; nil discards.
	Logger *slog.Logger
}

// Defaults of MonitorOptions, and how many times CallTimeout Init may take.
const (
	defaultInterval    = time.Second
	defaultCallTimeout = 2 * time.Second
	initFactor         = 10
)

// Monitor polls the GPUs. Calls into NVML are made by one goroutine of its own, since a call may never return;
// while one hangs, no other is made and the Reading says so.
type Monitor struct {
	o      MonitorOptions
	latest atomic.Pointer[Reading]
	// kick asks for a poll before its time.
	kick chan struct{}

	mu sync.Mutex
	// before is what was read before the engine's last launch, nil before the first; ours are the processes that have been ours
	// since.
	before *Reading
	ours   map[int]bool
}

// NewMonitor returns a monitor that has not polled yet: its Reading is Unavailable.
func NewMonitor(o MonitorOptions) *Monitor {
	if o.Lib == nil {
		o.Lib = System()
	}
	if o.Pids == nil {
		o.Pids = func() []int { return nil }
	}
	if o.Interval <= 0 {
		o.Interval = defaultInterval
	}
	if o.CallTimeout <= 0 {
		o.CallTimeout = defaultCallTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Monitor{o: o, kick: make(chan struct{}, 1), ours: map[int]bool{}}
	m.latest.Store(&Reading{State: Unavailable, Why: "not read yet"})
	return m
}

// Reading returns the last poll; never nil. It must not be changed.
func (m *Monitor) Reading() *Reading { return m.latest.Load() }

// Run polls until ctx ends, shuts the library down and returns nil. It must be called at most once. It does not
// wait for a call that hangs: that one goroutine ends when its call returns, if ever.
func (m *Monitor) Run(ctx context.Context) error {
	w := startWorker(m.o.Lib)
	defer close(w.jobs)
	tick := time.NewTicker(m.o.Interval)
	defer tick.Stop()
	for {
		m.once(ctx, w)
		select {
		case <-ctx.Done():
			m.finish(w)
			return nil
		case <-m.kick:
		case <-tick.C:
		}
	}
}

// once makes one poll, or looks whether the one that hangs has returned.
func (m *Monitor) once(ctx context.Context, w *worker) {
	if w.busy && !w.returned() {
		m.publish(m.hung(w))
		return
	}
	ours := map[int]bool{}
	for _, pid := range m.o.Pids() {
		ours[pid] = true
	}
	m.remember(ours)
	w.start(func(s *session) *Reading { return s.poll(time.Now(), ours) })
	if r, ok := w.wait(ctx, m.limit); ok {
		if r != nil {
			m.publish(r)
		}
	} else if ctx.Err() == nil {
		w.abandoned.Store(true)
		m.publish(m.hung(w))
	}
}

// remember keeps the pids that were ours: memory that they held is asked about after they have gone.
func (m *Monitor) remember(ours map[int]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for pid := range ours {
		m.ours[pid] = true
	}
}

// finish shuts the library down unless a call hangs. It takes at most two CallTimeouts.
func (m *Monitor) finish(w *worker) {
	atMost := func(string) time.Duration { return m.o.CallTimeout }
	if w.busy && !w.returned() {
		w.abandoned.Store(true)
		if _, ok := w.wait(context.Background(), atMost); !ok {
			return
		}
	}
	w.start(func(s *session) *Reading { s.end(); return nil })
	w.wait(context.Background(), atMost)
	w.abandoned.Store(true)
}

// limit is how long a call may take.
func (m *Monitor) limit(op string) time.Duration {
	if op == "nvmlInit" {
		return initFactor * m.o.CallTimeout
	}
	return m.o.CallTimeout
}

// hung is the reading while a call does not return. The devices keep their names and lose their values.
func (m *Monitor) hung(w *worker) *Reading {
	now := time.Now()
	before := m.Reading()
	c := w.current()
	r := &Reading{
		At: now, State: Hung, Driver: before.Driver,
		Why: fmt.Sprintf("%s has not returned for %s; the driver may be stuck, look for Xid and GSP lines in dmesg",
			c.op, now.Sub(c.since).Round(time.Second)),
	}
	for _, d := range before.Devices {
		r.Devices = append(r.Devices, Device{Index: d.Index, UUID: d.UUID, Name: d.Name, LastXid: d.LastXid, State: Hung, Why: r.Why})
	}
	return r
}

// publish makes a reading visible and logs a change of state.
func (m *Monitor) publish(r *Reading) {
	before := m.latest.Swap(r)
	if before.State != r.State {
		if r.State == OK {
			m.o.Logger.Info("GPUs can be read", "driver", r.Driver, "devices", len(r.Devices))
		} else {
			m.o.Logger.Warn("GPU figures are absent", "state", string(r.State), "why", r.Why)
		}
	} else if before.Why != r.Why && r.State == Unavailable {
		m.o.Logger.Info("GPU figures are absent", "state", string(r.State), "why", r.Why)
	}
	m.tellDevices(before.Devices, r.Devices)
}

// tellDevices logs devices that changed their state while others stayed.
func (m *Monitor) tellDevices(before, now []Device) {
	if len(before) != len(now) {
		return
	}
	for i, d := range now {
		if d.State != before[i].State && d.State != Hung && before[i].State != Hung {
			m.o.Logger.Warn("a GPU changed its state", "gpu", d.Index, "uuid", d.UUID, "state", string(d.State), "why", d.Why)
		}
	}
}
