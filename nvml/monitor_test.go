//go:build linux && cgo

package nvml

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

func TestReadingOfHealthyGPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.xids = []uint64{31, 79}
		mon, stop := m.run(t)
		if r := mon.Reading(); r == nil || r.State != Unavailable || r.Why == "" {
			t.Errorf("before the first poll the reading is %+v", r)
		}
		pass(1500 * time.Millisecond)
		got := mon.Reading()
		stop()
		want := Device{
			Index: 0, UUID: "GPU-0", Name: "NVIDIA H100", State: OK,
			MemoryTotalBytes: new(uint64(fakeTotal)), MemoryUsedBytes: new(uint64(fakeUsed)), MemoryFreeBytes: new(uint64(fakeFree)),
			UtilizationFraction: new(0.87), PowerWatts: new(412.5), TemperatureCelsius: new(64.0),
			Throttle:       []string{"power cap", "reason 0x10000000000"},
			ECCUncorrected: new(uint64(2)), LastXid: new(uint64(79)),
			Processes: []Process{
				{PID: 9, Name: "proc9", UsedBytes: new(uint64(1 << 20))},
				{PID: 42, Name: "proc42"},
				{PID: 70, Name: "proc70", UsedBytes: new(uint64(20 << 30)), Ours: true},
			},
		}
		if got.State != OK || got.Driver != "550.54.15" || len(got.Devices) != 2 {
			t.Fatalf("reading is %+v", got)
		}
		if diff := cmp.Diff(want, got.Devices[0]); diff != "" {
			t.Errorf("GPU 0 (-want +got):\n%s", diff)
		}
		if d := got.Devices[1]; d.UUID != "GPU-1" || d.LastXid != nil {
			t.Errorf("GPU 1 is %+v, want no Xid of another GPU", d)
		}
		if m.up || m.inits != 1 {
			t.Errorf("after the stop: initialised %t, %d inits; want shut down after one", m.up, m.inits)
		}
	})
}

// f38 are the failures of the field case.
var f38 = map[string]nvml.Return{
	"library not found":  nvml.ERROR_LIBRARY_NOT_FOUND,
	"driver not loaded":  nvml.ERROR_DRIVER_NOT_LOADED,
	"driver mismatch":    nvml.ERROR_LIB_RM_VERSION_MISMATCH,
	"unknown":            nvml.ERROR_UNKNOWN,
	"no permission":      nvml.ERROR_NO_PERMISSION,
	"not supported":      nvml.ERROR_NOT_SUPPORTED,
	"uninitialised":      nvml.ERROR_UNINITIALIZED,
	"GPU lost":           nvml.ERROR_GPU_IS_LOST,
	"reset required":     nvml.ERROR_RESET_REQUIRED,
	"code of the future": nvml.Return(4711),
}

func TestF38_FailureAtInit(t *testing.T) {
	for name, code := range f38 {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine()
				m.failAt, m.code = 1, code
				mon, stop := m.run(t)
				pass(10 * time.Minute)
				r := mon.Reading()
				noFalseValues(t, r)
				want := Unavailable
				if code == nvml.ERROR_NO_PERMISSION {
					want = Denied
				}
				if r.State != want || !strings.HasPrefix(r.Why, "nvmlInit: ") {
					t.Errorf("state %q, reason %q; want %s and nvmlInit as the cause", r.State, r.Why, want)
				}
				if m.calls != m.inits || m.inits < 8 || m.inits > 20 {
					t.Errorf("%d calls, %d of them Init, in ten minutes; want only Init, with back-off", m.calls, m.inits)
				}
				m.heal()
				pass(lastRetry + time.Second)
				if r := mon.Reading(); r.State != OK || len(r.Devices) != 2 {
					t.Errorf("after healing the reading is %+v", r)
				}
				stop()
			})
		})
	}
}

func TestF38_FailureAtThe100thCall(t *testing.T) {
	for name, code := range f38 {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine()
				m.failAt, m.code = 100, code
				mon, stop := m.run(t)
				synctest.Wait()
				if r := mon.Reading(); r.State != OK {
					t.Fatalf("before the failure the reading is %+v", r)
				}
				for range 120 {
					pass(time.Second)
					noFalseValues(t, mon.Reading())
				}
				if r := mon.Reading(); r.State == OK {
					t.Errorf("two minutes into the failure the reading is %+v", r)
				}
				if m.inits > 12 {
					t.Errorf("%d inits in two minutes; want back-off", m.inits)
				}
				m.heal()
				pass(lastRetry + time.Second)
				r := mon.Reading()
				noFalseValues(t, r)
				if r.State != OK || r.Devices[1].State != OK || r.Devices[1].MemoryUsedBytes == nil {
					t.Errorf("after healing the reading is %+v", r)
				}
				stop()
			})
		})
	}
}

// Each kind of call fails alone, with each code: the reading may lose that value or that GPU, never lie.
func TestF38_EachCallFailsAlone(t *testing.T) {
	calls := []string{
		"Driver", "Count", "Handle", "UUID", "Name", "Memory", "Utilization", "Power", "Temperature", "Throttle",
		"ECC", "Processes", "Graphics", "EventSet", "Register", "Wait",
	}
	for _, call := range calls {
		for name, code := range f38 {
			t.Run(call+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newMachine()
					m.failAt, m.code, m.only = 1, code, call
					mon, stop := m.run(t)
					pass(5 * time.Second)
					noFalseValues(t, mon.Reading())
					m.heal()
					pass(lastRetry)
					if r := mon.Reading(); r.State != OK {
						t.Errorf("after healing the reading is %+v", r)
					}
					stop()
				})
			})
		}
	}
}

func TestF38_MIGParentRefusesMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.failAt, m.code, m.only = 1, nvml.ERROR_NO_PERMISSION, "Memory"
		mon, stop := m.run(t)
		pass(5 * time.Minute)
		r := mon.Reading()
		stop()
		d := r.Devices[0]
		if r.State != Denied || d.State != Denied || !strings.Contains(d.Why, "insufficient permissions") || !strings.Contains(d.Why, "MIG") {
			t.Errorf("reading %q (%s), GPU %q (%s); want denied", r.State, r.Why, d.State, d.Why)
		}
		if d.MemoryUsedBytes != nil || d.TemperatureCelsius == nil {
			t.Errorf("GPU is %+v, want no memory but the rest", d)
		}
		if m.inits != 1 {
			t.Errorf("%d inits; a refusal is an answer and needs no new Init", m.inits)
		}
	})
}

// A GPU that shares the host's memory refuses the question or answers with nothing but zeros.
func TestF38_UnifiedMemory(t *testing.T) {
	zeros := func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.SUCCESS }
	refuses := func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_NOT_SUPPORTED }
	for name, memory := range map[string]func() (nvml.Memory, nvml.Return){"zeros": zeros, "refuses": refuses} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine()
				m.devices[0].GetMemoryInfoFunc = memory
				mon, stop := m.run(t)
				pass(time.Second)
				d := mon.Reading().Devices[0]
				stop()
				if d.State != OK || !d.UnifiedMemory || d.MemoryTotalBytes != nil || d.PowerWatts == nil {
					t.Errorf("GPU is %+v, want unified memory without figures, and the rest", d)
				}
			})
		})
	}
}

// One GPU of two falls off the bus. The other stays readable all the time, also over the attempts to initialise.
func TestF38_OneLostGPUDoesNotHideTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		mon, stop := m.run(t)
		pass(time.Second)
		m.mu.Lock()
		healthy := m.devices[0].GetTemperatureFunc
		m.devices[0].GetTemperatureFunc = func(s nvml.TemperatureSensors) (uint32, nvml.Return) {
			healthy(s)
			return 0, nvml.ERROR_GPU_IS_LOST
		}
		m.mu.Unlock()
		for range 100 {
			pass(time.Second)
			r := mon.Reading()
			noFalseValues(t, r)
			if r.State != OK || r.Devices[1].MemoryUsedBytes == nil {
				t.Fatalf("reading is %+v, want GPU 1 readable", r)
			}
			if d := r.Devices[0]; d.State != Lost || d.UUID != "GPU-0" || !strings.Contains(d.Why, "the GPU is lost") {
				t.Fatalf("GPU 0 is %+v, want it lost", d)
			}
		}
		if m.inits < 4 || m.inits > 10 {
			t.Errorf("%d inits in 100 s, want back-off", m.inits)
		}
		stop()
	})
}

func TestF38_CallThatNeverReturns(t *testing.T) {
	for name, failAt := range map[string]int{"at init": 1, "at the 100th call": 100} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine()
				m.failAt, m.hang = failAt, make(chan struct{})
				mon, stop := m.run(t)
				pass(time.Minute)
				r := mon.Reading()
				noFalseValues(t, r)
				if r.State != Hung || !strings.Contains(r.Why, "has not returned for") {
					t.Errorf("state %q, reason %q; want hung", r.State, r.Why)
				}
				if failAt == 100 && (len(r.Devices) != 2 || r.Devices[1].UUID != "GPU-1") {
					t.Errorf("devices are %+v, want their names still", r.Devices)
				}
				if m.calls != failAt {
					t.Errorf("%d calls, want none after the one that hangs", m.calls)
				}
				m.heal()
				pass(5 * time.Second)
				if r := mon.Reading(); r.State != OK || len(r.Devices) != 2 || r.Devices[0].PowerWatts == nil {
					t.Errorf("after the call returned the reading is %+v", r)
				}
				stop()
			})
		})
	}
}

// Stopping does not wait for a call that hangs, and nothing is called once it returns.
func TestF38_StopWhileACallHangs(t *testing.T) {
	for failAt := 1; failAt < 80; failAt++ {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine()
			m.xids = []uint64{31, 79}
			m.failAt, m.hang = failAt, make(chan struct{})
			_, stop := m.run(t)
			pass(time.Minute)
			before := time.Now()
			stop()
			if took := time.Since(before); took > 0 {
				t.Errorf("stopping took %s", took)
			}
			m.heal()
			synctest.Wait()
			if m.calls != failAt {
				t.Errorf("%d calls, want none after the one that hung, number %d", m.calls, failAt)
			}
		})
	}
}

// An old driver lacks functions. Calling one would end the process, so it is looked up first.
func TestF38_FunctionTheDriverDoesNotHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.lacks = map[string]bool{
			"nvmlDeviceGetTotalEccErrors": true, "nvmlDeviceGetCurrentClocksThrottleReasons": true,
			"nvmlEventSetCreate": true, "nvmlDeviceGetGraphicsRunningProcesses": true,
		}
		for _, d := range m.devices {
			d.GetTotalEccErrorsFunc, d.GetCurrentClocksThrottleReasonsFunc, d.GetGraphicsRunningProcessesFunc = nil, nil, nil // a call panics
		}
		mon, stop := m.run(t)
		pass(time.Second)
		d := mon.Reading().Devices[0]
		stop()
		if d.State != OK || d.ECCUncorrected != nil || d.Throttle != nil || len(d.Processes) != 2 || d.MemoryUsedBytes == nil {
			t.Errorf("GPU is %+v, want it readable without ECC and throttle reasons", d)
		}
	})
}

// A panic inside the binding is a failed poll.
func TestF38_PanicInTheBinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		power := m.devices[0].GetPowerUsageFunc
		m.devices[0].GetPowerUsageFunc = func() (uint32, nvml.Return) { panic("index out of range") }
		mon, stop := m.run(t)
		pass(500 * time.Millisecond)
		if r := mon.Reading(); r.State != Unavailable || !strings.Contains(r.Why, "index out of range") {
			t.Errorf("reading is %+v", r)
		}
		m.mu.Lock()
		m.devices[0].GetPowerUsageFunc = power
		m.mu.Unlock()
		pass(10 * time.Second)
		if r := mon.Reading(); r.State != OK {
			t.Errorf("after the panics the reading is %+v", r)
		}
		stop()
	})
}

// This very test binary is linked against go-nvml. It got here, so it starts without the library; and the real
// binding says that there is none, or reads what there is.
func TestF38_MachineWithoutNVIDIALibrary(t *testing.T) {
	s := newSession(System(), func(string) bool { return true })
	r := s.poll(time.Now(), nil)
	s.end()
	switch {
	case r.State == OK && len(r.Devices) > 0:
		t.Logf("this machine has %d GPUs", len(r.Devices))
	case r.Why == "":
		t.Errorf("reading is %+v, want a reason", r)
	case strings.Contains(r.Why, "libnvidia-ml.so.1 is not on this machine") && r.State != Unavailable:
		t.Errorf("state is %q, want unavailable", r.State)
	}
}
