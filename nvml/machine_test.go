//go:build linux && cgo

package nvml

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a fake computer with GPUs, behind go-nvml's own mocks. From its failAt-th call on, every call fails
// with code, or hangs, until it is healed. It notes what must never happen.
type machine struct {
	mu sync.Mutex
	// calls counts all calls, inits those of nvmlInit.
	calls, inits int
	up           bool
	failAt       int
	code         nvml.Return
	hang         chan struct{}
	hanging      int
	lacks        map[string]bool
	only         string
	xids         []uint64
	wrong        []string
	devices      []*mock.Device
	// memory and processes of each GPU, where they are not the usual ones.
	memory    map[int]nvml.Memory
	processes map[int][]nvml.ProcessInfo
}

// Values of the fake GPUs; none is zero, so that a zero is a mistake.
const (
	fakeTotal = 80 << 30
	fakeUsed  = 30 << 30
	fakeFree  = 50 << 30
)

// newMachine has two GPUs.
func newMachine() *machine {
	m := &machine{}
	for i := range 2 {
		m.devices = append(m.devices, m.device(i))
	}
	return m
}

// enter is the start of every fake call.
func (m *machine) enter(name string) nvml.Return {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if name == "Init" {
		m.inits++
	} else if !m.up {
		m.wrong = append(m.wrong, name+" was called without a successful Init")
	}
	if m.failAt == 0 || m.calls < m.failAt || (m.only != "" && m.only != name) {
		if name == "Init" {
			m.up = true
		}
		return nvml.SUCCESS
	}
	if m.hang != nil {
		m.hanging++
		if m.hanging > 1 {
			m.wrong = append(m.wrong, "two calls hang at once")
		}
		hang := m.hang
		m.mu.Unlock()
		<-hang
		m.mu.Lock()
		m.hanging--
		m.up = m.up || name == "Init"
		return nvml.SUCCESS
	}
	if name == "Init" {
		m.up = false
	}
	return m.code
}

// heal makes all further calls succeed.
func (m *machine) heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failAt = 0
	if m.hang != nil {
		close(m.hang)
	}
}

// api is the machine as go-nvml's interface.
func (m *machine) api() nvml.Interface {
	return &mock.Interface{
		InitFunc: func() nvml.Return { return m.enter("Init") },
		ShutdownFunc: func() nvml.Return {
			ret := m.enter("Shutdown")
			m.mu.Lock()
			m.up = false
			m.mu.Unlock()
			return ret
		},
		ExtensionsFunc: func() nvml.ExtendedInterface {
			return &mock.ExtendedInterface{LookupSymbolFunc: func(s string) error {
				if m.lacks[s] {
					return fmt.Errorf("undefined symbol: %s", s)
				}
				return nil
			}}
		},
		SystemGetDriverVersionFunc: func() (string, nvml.Return) { return "550.54.15", m.enter("Driver") },
		SystemGetProcessNameFunc: func(pid int) (string, nvml.Return) {
			return fmt.Sprintf("proc%d\x1b", pid), m.enter("ProcessName")
		},
		DeviceGetCountFunc:         func() (int, nvml.Return) { return len(m.devices), m.enter("Count") },
		DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) { return m.devices[i], m.enter("Handle") },
		EventSetCreateFunc:         func() (nvml.EventSet, nvml.Return) { return m.eventSet(), m.enter("EventSet") },
		ErrorStringFunc: func(nvml.Return) string {
			m.wrong = append(m.wrong, "nvmlErrorString was called")
			return ""
		},
	}
}

// eventSet delivers m.xids for the first GPU.
func (m *machine) eventSet() nvml.EventSet {
	return &mock.EventSet{
		FreeFunc: func() nvml.Return { return m.enter("Free") },
		WaitFunc: func(ms uint32) (nvml.EventData, nvml.Return) {
			ret := m.enter("Wait")
			m.mu.Lock()
			defer m.mu.Unlock()
			if ms != 0 {
				m.wrong = append(m.wrong, "waited for an event")
			}
			if ret != nvml.SUCCESS || len(m.xids) == 0 {
				return nvml.EventData{}, nvml.ERROR_TIMEOUT
			}
			xid := m.xids[0]
			m.xids = m.xids[1:]
			return nvml.EventData{Device: m.devices[0], EventType: nvml.EventTypeXidCriticalError, EventData: xid}, nvml.SUCCESS
		},
	}
}

// device is a healthy GPU with three processes, one of them in both lists.
func (m *machine) device(i int) *mock.Device {
	return &mock.Device{
		GetUUIDFunc: func() (string, nvml.Return) { return fmt.Sprintf("GPU-%d", i), m.enter("UUID") },
		GetNameFunc: func() (string, nvml.Return) { return "NVIDIA H100", m.enter("Name") },
		GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) {
			ret := m.enter("Memory")
			m.mu.Lock()
			defer m.mu.Unlock()
			if mem, ok := m.memory[i]; ok {
				return mem, ret
			}
			return nvml.Memory{Total: fakeTotal, Used: fakeUsed, Free: fakeFree}, ret
		},
		GetUtilizationRatesFunc: func() (nvml.Utilization, nvml.Return) {
			return nvml.Utilization{Gpu: 87, Memory: 12}, m.enter("Utilization")
		},
		GetPowerUsageFunc:  func() (uint32, nvml.Return) { return 412500, m.enter("Power") },
		GetTemperatureFunc: func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 64, m.enter("Temperature") },
		GetCurrentClocksThrottleReasonsFunc: func() (uint64, nvml.Return) {
			return nvml.ClocksThrottleReasonGpuIdle | nvml.ClocksThrottleReasonSwPowerCap | 1<<40, m.enter("Throttle")
		},
		GetTotalEccErrorsFunc: func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 2, m.enter("ECC") },
		GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
			ret := m.enter("Processes")
			m.mu.Lock()
			defer m.mu.Unlock()
			if list, ok := m.processes[i]; ok {
				return list, ret
			}
			return []nvml.ProcessInfo{
				{Pid: 70, UsedGpuMemory: 20 << 30},
				{Pid: 42, UsedGpuMemory: ^uint64(0)},
			}, ret
		},
		GetGraphicsRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
			ret := m.enter("Graphics")
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.processes != nil {
				return nil, ret
			}
			return []nvml.ProcessInfo{{Pid: 70, UsedGpuMemory: 1 << 30}, {Pid: 9, UsedGpuMemory: 1 << 20}}, ret
		},
		RegisterEventsFunc: func(uint64, nvml.EventSet) nvml.Return { return m.enter("Register") },
	}
}

// run starts a monitor of the machine inside a synctest bubble and returns it with its stop.
func (m *machine) run(t *testing.T) (*Monitor, func()) {
	t.Helper()
	mon := NewMonitor(MonitorOptions{Lib: Wrap(m.api()), Pids: func() []int { return []int{70} }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mon.Run(ctx) }()
	return mon, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, w := range m.wrong {
			t.Error(w)
		}
	}
}

// pass lets the bubble's clock run and everything that is then due finish.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// noFalseValues fails when a reading holds a value that the fake GPUs never gave.
func noFalseValues(t *testing.T, r *Reading) {
	t.Helper()
	is := func(what string, got *uint64, want uint64) {
		if got != nil && *got != want {
			t.Errorf("%s is %d, want %d or nothing", what, *got, want)
		}
	}
	isFloat := func(what string, got *float64, want float64) {
		if got != nil && *got != want {
			t.Errorf("%s is %g, want %g or nothing", what, *got, want)
		}
	}
	for _, d := range r.Devices {
		is("total", d.MemoryTotalBytes, fakeTotal)
		is("used", d.MemoryUsedBytes, fakeUsed)
		is("free", d.MemoryFreeBytes, fakeFree)
		is("ecc", d.ECCUncorrected, 2)
		isFloat("utilisation", d.UtilizationFraction, 0.87)
		isFloat("power", d.PowerWatts, 412.5)
		isFloat("temperature", d.TemperatureCelsius, 64)
		if d.State == "" || (d.State != OK && d.Why == "") {
			t.Errorf("GPU %d has state %q, reason %q", d.Index, d.State, d.Why)
		}
		if (d.State == Lost || d.State == Hung) && (d.MemoryTotalBytes != nil || d.PowerWatts != nil || d.Processes != nil) {
			t.Errorf("GPU %d is %s and still has values", d.Index, d.State)
		}
	}
	if r.State == "" || (r.State != OK && r.Why == "") {
		t.Errorf("reading has state %q, reason %q", r.State, r.Why)
	}
}
