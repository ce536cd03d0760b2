// Package nvml reads GPU memory, load and health through NVIDIA's management library.
//
// Goal: what the GPU really holds, who holds it, and whether it is healthy, as values with named states, on
// any machine: also one without an NVIDIA library, with a mismatched driver, a lost GPU or a call that hangs.
//
// Non-goals: changing anything on a GPU; deciding.
//
// Invariants: no NVML function runs before a successful Init or after a failed one; a hung call never blocks
// a reader; a value that could not be read is absent, never zero; readers see immutable Readings.
package nvml

import "time"

// State says what is known about the library or one device.
type State string

const (
	// OK: the last poll worked.
	OK State = "ok"
	// Unavailable: the library is not on this machine, or Init failed; Why says how.
	Unavailable State = "unavailable"
	// Lost: the device was there and no longer answers.
	Lost State = "lost"
	// Hung: a call has not returned within its deadline.
	Hung State = "hung"
	// Denied: the driver refuses the question (permissions, MIG parent).
	Denied State = "denied"
)

// Reading is one poll of all devices. Immutable once published.
type Reading struct {
	At    time.Time
	State State
	// Why says, for a State other than OK, what failed in the library's words and what to do.
	Why     string
	Driver  string
	Devices []Device
}

// Device is one GPU. Pointer fields are nil when the device does not tell (unified memory, MIG, old card).
type Device struct {
	Index int
	UUID  string
	Name  string
	State State
	Why   string

	MemoryTotalBytes *uint64
	MemoryUsedBytes  *uint64
	MemoryFreeBytes  *uint64
	// UnifiedMemory is true where the device shares host memory and reports no memory of its own.
	UnifiedMemory bool

	// UtilizationFraction is 0..1.
	UtilizationFraction *float64
	PowerWatts          *float64
	TemperatureCelsius  *float64
	// Throttle lists the active clock throttle reasons in plain words, without idle.
	Throttle []string
	// ECCUncorrected counts uncorrected ECC errors since the driver was loaded.
	ECCUncorrected *uint64
	// LastXid is the last critical error code seen; nil when none was seen or events are not supported.
	LastXid *uint64

	Processes []Process
}

// Process is one process that holds memory on a device.
type Process struct {
	PID int
	// Name is what the driver calls it, "" where it does not tell; at most 64 characters.
	Name string
	// UsedBytes is nil where the driver does not tell.
	UsedBytes *uint64
	// Ours is true when the pid belongs to the engine that admitd supervises.
	Ours bool
}
