package nvml

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Library is the part of NVML that the monitor needs.
type Library interface {
	Init() error
}

// MonitorOptions says what a Monitor polls and how often. The zero value polls the machine's own NVML.
type MonitorOptions struct {
	// Lib is the library; nil means the machine's own, loaded at the first poll.
	Lib Library
	// Pids lists the processes that count as ours; nil means none.
	Pids func() []int
	// Interval is the pause between polls (default 1 s); CallTimeout bounds one call into the library (default 2 s).
	Interval, CallTimeout time.Duration
	// Logger is for changes of condition; nil discards.
	Logger *slog.Logger
}

// Monitor polls the GPUs.
type Monitor struct {
	o      MonitorOptions
	latest atomic.Pointer[Reading]
}

// NewMonitor returns a monitor that has not polled yet.
func NewMonitor(o MonitorOptions) *Monitor {
	m := &Monitor{o: o}
	m.latest.Store(&Reading{State: Unavailable, Why: "not read yet"})
	return m
}

// Run polls until ctx ends and returns nil then.
func (m *Monitor) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Reading returns the last poll; never nil.
func (m *Monitor) Reading() *Reading { return m.latest.Load() }
