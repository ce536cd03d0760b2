//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// System returns the machine's own NVML. Nothing is loaded before Init, and where there is no library Init says
// so. The program must be linked lazily (-Wl,-z,lazy, the usual default), or it does not start on such a machine.
func System() Library { return Wrap(nvml.New()) }

// Wrap makes a Library of go-nvml's interface.
//
// A function that the loaded library does not have would end the whole process at its first call; no recover
// helps. So each one is looked up by name before it is used. NVML's own words for errors are never asked for.
func Wrap(api nvml.Interface) Library { return &goLibrary{api: api, has: map[string]bool{}} }

type goLibrary struct {
	api nvml.Interface
	has map[string]bool
}

// check turns a return code into an error.
func check(op string, ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return &Error{Op: op, Code: Code(ret)}
}

// need reports an error where the loaded library lacks a function.
func (l *goLibrary) need(symbol string) error {
	has, known := l.has[symbol]
	if !known {
		has = l.api.Extensions().LookupSymbol(symbol) == nil
		l.has[symbol] = has
	}
	if !has {
		return &Error{Op: symbol, Code: CodeFunctionNotFound}
	}
	return nil
}

// guarded calls a function of the library if it is there.
func guarded[T any](l *goLibrary, symbol string, f func() (T, nvml.Return)) (T, error) {
	var zero T
	if err := l.need(symbol); err != nil {
		return zero, err
	}
	v, ret := f()
	if err := check(symbol, ret); err != nil {
		return zero, err
	}
	return v, nil
}

func (l *goLibrary) Init() error {
	clear(l.has)
	return check("nvmlInit", l.api.Init())
}

func (l *goLibrary) Shutdown() error { return check("nvmlShutdown", l.api.Shutdown()) }

func (l *goLibrary) Driver() (string, error) {
	return guarded(l, "nvmlSystemGetDriverVersion", l.api.SystemGetDriverVersion)
}

func (l *goLibrary) Count() (int, error) {
	return guarded(l, "nvmlDeviceGetCount", l.api.DeviceGetCount)
}

func (l *goLibrary) Device(index int) (Handle, error) {
	d, err := guarded(l, "nvmlDeviceGetHandleByIndex", func() (nvml.Device, nvml.Return) { return l.api.DeviceGetHandleByIndex(index) })
	if err != nil {
		return nil, err
	}
	return &goDevice{l: l, d: d}, nil
}

func (l *goLibrary) ProcessName(pid int) (string, error) {
	return guarded(l, "nvmlSystemGetProcessName", func() (string, nvml.Return) { return l.api.SystemGetProcessName(pid) })
}

func (l *goLibrary) Events() (Events, error) {
	for _, symbol := range []string{"nvmlDeviceRegisterEvents", "nvmlEventSetWait", "nvmlEventSetFree"} {
		if err := l.need(symbol); err != nil {
			return nil, err
		}
	}
	set, err := guarded(l, "nvmlEventSetCreate", l.api.EventSetCreate)
	if err != nil {
		return nil, err
	}
	return &goEvents{l: l, set: set}, nil
}

type goEvents struct {
	l   *goLibrary
	set nvml.EventSet
}

func (e *goEvents) Register(h Handle) error {
	const op = "nvmlDeviceRegisterEvents"
	d, ok := h.(*goDevice)
	if !ok {
		return &Error{Op: op, Code: CodeInvalidArgument}
	}
	return check(op, d.d.RegisterEvents(nvml.EventTypeXidCriticalError, e.set))
}

func (e *goEvents) Next() (Handle, uint64, error) {
	data, ret := e.set.Wait(0)
	if ret == nvml.ERROR_TIMEOUT {
		return nil, 0, nil
	}
	if err := check("nvmlEventSetWait", ret); err != nil {
		return nil, 0, err
	}
	if data.EventType&nvml.EventTypeXidCriticalError == 0 || data.Device == nil {
		return nil, 0, nil
	}
	return &goDevice{l: e.l, d: data.Device}, data.EventData, nil
}

func (e *goEvents) Close() error { return check("nvmlEventSetFree", e.set.Free()) }

type goDevice struct {
	l *goLibrary
	d nvml.Device
}

func (d *goDevice) UUID() (string, error) { return guarded(d.l, "nvmlDeviceGetUUID", d.d.GetUUID) }
func (d *goDevice) Name() (string, error) { return guarded(d.l, "nvmlDeviceGetName", d.d.GetName) }

func (d *goDevice) Memory() (Memory, error) {
	m, err := guarded(d.l, "nvmlDeviceGetMemoryInfo", d.d.GetMemoryInfo)
	return Memory{Total: m.Total, Used: m.Used, Free: m.Free}, err
}

func (d *goDevice) Utilization() (float64, error) {
	const op = "nvmlDeviceGetUtilizationRates"
	u, err := guarded(d.l, op, d.d.GetUtilizationRates)
	if err == nil && u.Gpu > 100 {
		return 0, &Error{Op: op, Code: CodeInvalidArgument}
	}
	return float64(u.Gpu) / 100, err
}

func (d *goDevice) Power() (float64, error) {
	mw, err := guarded(d.l, "nvmlDeviceGetPowerUsage", d.d.GetPowerUsage)
	return float64(mw) / 1000, err
}

func (d *goDevice) Temperature() (float64, error) {
	c, err := guarded(d.l, "nvmlDeviceGetTemperature", func() (uint32, nvml.Return) { return d.d.GetTemperature(nvml.TEMPERATURE_GPU) })
	return float64(c), err
}

// throttleReason names one bit of NVML's mask of reasons for lowered clocks.
func throttleReason(bit uint64) string {
	switch bit {
	case nvml.ClocksThrottleReasonApplicationsClocksSetting:
		return "application clocks setting"
	case nvml.ClocksThrottleReasonSwPowerCap:
		return "power cap"
	case nvml.ClocksThrottleReasonHwSlowdown:
		return "hardware slowdown"
	case nvml.ClocksThrottleReasonSyncBoost:
		return "sync boost group"
	case nvml.ClocksThrottleReasonSwThermalSlowdown:
		return "thermal slowdown by the driver"
	case nvml.ClocksThrottleReasonHwThermalSlowdown:
		return "thermal slowdown by the hardware"
	case nvml.ClocksThrottleReasonHwPowerBrakeSlowdown:
		return "power brake"
	case nvml.ClocksThrottleReasonDisplayClockSetting:
		return "display clock setting"
	case nvml.ClocksEventReasonBoardLimit:
		return "board limit"
	case nvml.ClocksEventReasonReliability:
		return "reliability limit"
	}
	return fmt.Sprintf("reason %#x", bit)
}

func (d *goDevice) Throttle() ([]string, error) {
	mask, err := guarded(d.l, "nvmlDeviceGetCurrentClocksThrottleReasons", d.d.GetCurrentClocksThrottleReasons)
	if err != nil {
		return nil, err
	}
	var out []string
	for bit := uint64(1); bit != 0; bit <<= 1 {
		if mask&bit != 0 && bit != nvml.ClocksThrottleReasonGpuIdle {
			out = append(out, throttleReason(bit))
		}
	}
	return out, nil
}

func (d *goDevice) ECC() (uint64, error) {
	return guarded(d.l, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return d.d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	})
}

func (d *goDevice) ComputeProcesses() ([]Process, error) {
	return processes(guarded(d.l, "nvmlDeviceGetComputeRunningProcesses", d.d.GetComputeRunningProcesses))
}

func (d *goDevice) GraphicsProcesses() ([]Process, error) {
	return processes(guarded(d.l, "nvmlDeviceGetGraphicsRunningProcesses", d.d.GetGraphicsRunningProcesses))
}

// processes translates a list. NVML writes all ones where it does not know the memory.
func processes(infos []nvml.ProcessInfo, err error) ([]Process, error) {
	var out []Process
	for _, info := range infos {
		p := Process{PID: int(info.Pid)}
		if used := info.UsedGpuMemory; used != math.MaxUint64 {
			p.UsedBytes = &used
		}
		out = append(out, p)
	}
	return out, err
}
