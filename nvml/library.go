package nvml

import (
	"errors"
	"fmt"
)

// Library is the part of NVML that the monitor needs. Nothing but Init may be called before an Init succeeded or
// after a Shutdown. A call may block for ever. No two calls are made at once. Errors are *Error.
// Each method is one call into NVML, so that a call that hangs can be named and nothing follows it.
type Library interface {
	Init() error
	Shutdown() error
	// Driver is the driver's version.
	Driver() (string, error)
	// Count is the number of GPUs that the driver shows to this process.
	Count() (int, error)
	// Device opens the GPU of that index, 0 to Count-1.
	Device(index int) (Handle, error)
	// ProcessName is the name of the process with that pid.
	ProcessName(pid int) (string, error)
	// Events opens a queue of critical errors that no device reports to yet.
	Events() (Events, error)
}

// Handle is one GPU.
type Handle interface {
	UUID() (string, error)
	Name() (string, error)
	Memory() (Memory, error)
	// Utilization is the fraction, 0 to 1, of the recent past in which a kernel ran.
	Utilization() (float64, error)
	// Power is in watts, Temperature in degrees Celsius.
	Power() (float64, error)
	Temperature() (float64, error)
	// Throttle names the active reasons for lowered clocks, without idle.
	Throttle() ([]string, error)
	// ECC counts uncorrected errors since the driver was loaded.
	ECC() (uint64, error)
	// ComputeProcesses and GraphicsProcesses list who holds memory; Ours is not set. A process may be in both.
	ComputeProcesses() ([]Process, error)
	GraphicsProcesses() ([]Process, error)
}

// Events delivers critical errors.
type Events interface {
	// Register lets a device report here.
	Register(Handle) error
	// Next returns the next event that has already happened, without waiting; device is nil when there is none.
	Next() (device Handle, xid uint64, err error)
	Close() error
}

// Memory is a GPU's own memory in bytes.
type Memory struct{ Total, Used, Free uint64 }

// Code is NVML's number for a failure.
type Code int

// The codes that the monitor tells apart.
const (
	CodeUninitialized    Code = 1
	CodeInvalidArgument  Code = 2
	CodeNotSupported     Code = 3
	CodeNoPermission     Code = 4
	CodeDriverNotLoaded  Code = 9
	CodeTimeout          Code = 10
	CodeIRQIssue         Code = 11
	CodeLibraryNotFound  Code = 12
	CodeFunctionNotFound Code = 13
	CodeGPUIsLost        Code = 15
	CodeResetRequired    Code = 16
	CodeOperatingSystem  Code = 17
	CodeMismatch         Code = 18
	CodeGPUNotFound      Code = 28
	CodeUnknown          Code = 999
)

// Error is a failed call. Its words are our own: NVML's function that words errors must not run when Init failed.
type Error struct {
	// Op is the C name of the function.
	Op   string
	Code Code
}

// Error says what failed, in plain words.
func (e *Error) Error() string {
	words, ok := words(e.Code)
	if !ok {
		words = fmt.Sprintf("error %d", int(e.Code))
	}
	return e.Op + ": " + words
}

// words puts a code into words.
func words(c Code) (string, bool) {
	switch c {
	case CodeUninitialized:
		return "the library is not initialised", true
	case CodeInvalidArgument:
		return "invalid argument", true
	case CodeNotSupported:
		return "not supported by this device", true
	case CodeNoPermission:
		return "insufficient permissions", true
	case CodeDriverNotLoaded:
		return "the NVIDIA driver is not loaded", true
	case CodeTimeout:
		return "timed out in the driver", true
	case CodeIRQIssue:
		return "the GPU's interrupts do not work", true
	case CodeLibraryNotFound:
		return "libnvidia-ml.so.1 is not on this machine", true
	case CodeFunctionNotFound:
		return "this driver does not have the function", true
	case CodeGPUIsLost:
		return "the GPU is lost", true
	case CodeResetRequired:
		return "the GPU needs a reset", true
	case CodeOperatingSystem:
		return "the operating system refused the GPU", true
	case CodeMismatch:
		return "driver/library version mismatch", true
	case CodeGPUNotFound:
		return "no such GPU any more", true
	case CodeUnknown:
		return "unknown error", true
	}
	return "", false
}

// hint says what to do about a code, "" where there is nothing general to say.
func hint(c Code) string {
	switch c {
	case CodeLibraryNotFound:
		return "without an NVIDIA driver there are no GPU figures; in a container, start it with GPU access"
	case CodeDriverNotLoaded:
		return "load the driver (nvidia-smi shows the cause)"
	case CodeMismatch:
		return "the driver was upgraded under the running kernel module: reboot, or reload the module and restart admitd"
	case CodeNoPermission:
		return "the parent of MIG instances and some containers do not tell"
	case CodeGPUIsLost, CodeResetRequired, CodeIRQIssue:
		return "look for Xid lines in dmesg; the GPU needs a reset or a reboot"
	case CodeUnknown, CodeOperatingSystem:
		return "a container may have lost its GPU devices (a systemd reload does that): restart it"
	}
	return ""
}

// codeOf returns an error's code, CodeUnknown where it has none.
func codeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeUnknown
}

// explain is an error with what to do about it.
func explain(err error) string {
	text := err.Error()
	if h := hint(codeOf(err)); h != "" {
		text += "; " + h
	}
	return text
}

// stateFor names the state that a failed call puts a device, or the library at Init, into.
func stateFor(c Code) State {
	switch c {
	case CodeNoPermission:
		return Denied
	case CodeGPUIsLost, CodeResetRequired, CodeGPUNotFound, CodeIRQIssue, CodeUnknown, CodeOperatingSystem:
		return Lost
	}
	return Unavailable
}

// gone reports whether a code means that the library as a whole does not work any more.
func gone(c Code) bool {
	return c == CodeUninitialized || c == CodeDriverNotLoaded || c == CodeMismatch || c == CodeLibraryNotFound
}
