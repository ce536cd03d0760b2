package nvml

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// errAbandoned ends a poll whose caller has stopped waiting.
var errAbandoned = errors.New("the poll was given up")

// Pauses between attempts to initialise.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// maxEvents bounds the critical errors read in one poll.
const maxEvents = 16

// session is the life of a library between an Init and a Shutdown, and the attempts to get there. It is used by
// one goroutine only. It reads no clock.
type session struct {
	lib Library
	// step is told the name of each call before it is made and returns false when the poll shall end.
	step func(op string) bool

	up      bool
	sick    bool
	retry   time.Duration
	retryAt time.Time
	driver  string
	events  Events
	known   map[int]Device
	lastXid map[string]uint64
	// names of the processes that the last poll listed, by pid.
	names map[int]string
}

// newSession returns a session that is not initialised.
func newSession(lib Library, step func(string) bool) *session {
	return &session{lib: lib, step: step, known: map[int]Device{}, lastXid: map[string]uint64{}, names: map[int]string{}}
}

// ask makes one call of the library.
func ask[T any](s *session, op string, call func() (T, error)) (T, error) {
	if !s.step(op) {
		var zero T
		return zero, errAbandoned
	}
	return call()
}

// do makes one call of the library that returns nothing.
func (s *session) do(op string, call func() error) error {
	_, err := ask(s, op, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// poll reads everything once. It returns nil when there is nothing new to say: the next attempt to initialise is
// not due yet.
func (s *session) poll(now time.Time, ours map[int]bool) *Reading {
	due := !now.Before(s.retryAt)
	if !s.up && !due {
		return nil
	}
	if s.up && s.sick && due {
		s.end()
	}
	if !s.up {
		if err := s.begin(); err != nil {
			s.later(now)
			if errors.Is(err, errAbandoned) {
				return nil
			}
			return &Reading{At: now, State: initState(err), Why: explain(err)}
		}
	}
	r, err := s.readAll(now, ours)
	if err != nil {
		s.later(now)
		if errors.Is(err, errAbandoned) {
			return nil
		}
		if codeOf(err) == CodeUninitialized {
			s.up, s.events = false, nil
		}
		s.end()
		return &Reading{At: now, State: stateFor(codeOf(err)), Why: explain(err), Driver: s.driver, Devices: s.lostDevices(err)}
	}
	if healthy(r) {
		s.sick, s.retry = false, 0
	} else if !s.sick || due {
		s.later(now)
	}
	return r
}

// initState is stateFor, except that an unknown failure at the start is not a device that was lost.
func initState(err error) State {
	if st := stateFor(codeOf(err)); st == Denied {
		return st
	}
	return Unavailable
}

// later puts off the next Init, longer each time.
func (s *session) later(now time.Time) {
	s.sick = true
	s.retry = min(max(2*s.retry, firstRetry), lastRetry)
	s.retryAt = now.Add(s.retry)
}

// begin initialises. After a failure nothing else may be called.
func (s *session) begin() error {
	if err := s.do("nvmlInit", s.lib.Init); err != nil {
		return err
	}
	s.up = true
	s.driver, _ = ask(s, "nvmlSystemGetDriverVersion", s.lib.Driver)
	return nil
}

// end shuts down what begin started. Its own failures change nothing.
func (s *session) end() {
	if !s.up {
		return
	}
	if s.events != nil {
		_ = s.do("nvmlEventSetFree", s.events.Close)
	}
	_ = s.do("nvmlShutdown", s.lib.Shutdown)
	s.up, s.events = false, nil
}

// readAll reads all devices. An error means that the library as a whole failed.
func (s *session) readAll(now time.Time, ours map[int]bool) (*Reading, error) {
	count, err := ask(s, "nvmlDeviceGetCount", s.lib.Count)
	if err != nil {
		return nil, err
	}
	r := &Reading{At: now, Driver: s.driver}
	var handles []Handle
	for i := range count {
		d, h, err := s.readDevice(i, ours)
		if err != nil {
			return nil, err
		}
		r.Devices = append(r.Devices, d)
		if h != nil {
			handles = append(handles, h)
		}
	}
	s.readEvents(handles)
	s.nameProcesses(r.Devices)
	for i := range r.Devices {
		if xid, ok := s.lastXid[r.Devices[i].UUID]; ok {
			r.Devices[i].LastXid = &xid
		}
		s.known[i] = r.Devices[i]
	}
	r.State, r.Why = overall(r.Devices)
	return r, nil
}

// overall sums up the devices: one that works is enough for OK.
func overall(devices []Device) (State, string) {
	if len(devices) == 0 {
		return Unavailable, "the driver shows no GPU to this process"
	}
	for _, d := range devices {
		if d.State == OK {
			return OK, ""
		}
	}
	return devices[0].State, fmt.Sprintf("GPU %d: %s", devices[0].Index, devices[0].Why)
}

// healthy reports whether another Init would be pointless: no device is lost or unreadable. A refusal is an
// answer, and asking again does not change it.
func healthy(r *Reading) bool {
	for _, d := range r.Devices {
		if d.State != OK && d.State != Denied {
			return false
		}
	}
	return len(r.Devices) > 0
}

// lostDevices are the devices seen before, without values.
func (s *session) lostDevices(err error) []Device {
	var out []Device
	for i := range len(s.known) {
		out = append(out, s.bare(i, err))
	}
	return out
}

// bare is a device that cannot be read: who it is, as far as is known, and why.
func (s *session) bare(index int, err error) Device {
	d := s.known[index]
	return Device{Index: index, UUID: d.UUID, Name: d.Name, State: stateFor(codeOf(err)), Why: explain(err)}
}

// readDevice reads one device. handle is nil when it could not be opened. An error means that the library as a
// whole failed.
func (s *session) readDevice(index int, ours map[int]bool) (Device, Handle, error) {
	h, err := ask(s, "nvmlDeviceGetHandleByIndex", func() (Handle, error) { return s.lib.Device(index) })
	if err != nil {
		return s.bare(index, err), nil, fatal(err)
	}
	r := reader{s: s}
	d := Device{Index: index, State: OK}
	d.UUID = value(&r, "nvmlDeviceGetUUID", h.UUID)
	d.Name = value(&r, "nvmlDeviceGetName", h.Name)
	s.readMemory(&r, h, &d)
	d.UtilizationFraction = optional(&r, "nvmlDeviceGetUtilizationRates", h.Utilization)
	d.PowerWatts = optional(&r, "nvmlDeviceGetPowerUsage", h.Power)
	d.TemperatureCelsius = optional(&r, "nvmlDeviceGetTemperature", h.Temperature)
	d.Throttle = value(&r, "nvmlDeviceGetCurrentClocksThrottleReasons", h.Throttle)
	d.ECCUncorrected = optional(&r, "nvmlDeviceGetTotalEccErrors", h.ECC)
	compute := value(&r, "nvmlDeviceGetComputeRunningProcesses", h.ComputeProcesses)
	graphics := value(&r, "nvmlDeviceGetGraphicsRunningProcesses", h.GraphicsProcesses)
	d.Processes = joinProcesses(ours, compute, graphics)
	if r.lost != nil {
		// What was read before the device fell away is not worth telling.
		lost := s.bare(index, r.lost)
		if lost.UUID == "" {
			lost.UUID, lost.Name = d.UUID, d.Name
		}
		return lost, nil, fatal(r.lost)
	}
	return d, h, nil
}

// readMemory fills in a device's memory and the state that a refusal of it means.
func (s *session) readMemory(r *reader, h Handle, d *Device) {
	if r.lost != nil {
		return
	}
	m, err := ask(s, "nvmlDeviceGetMemoryInfo", h.Memory)
	switch code := codeOf(err); {
	case err == nil && m.Total > 0:
		d.MemoryTotalBytes = &m.Total
		if m.Used <= m.Total && m.Free <= m.Total {
			d.MemoryUsedBytes, d.MemoryFreeBytes = &m.Used, &m.Free
		}
	case err == nil || code == CodeNotSupported:
		d.UnifiedMemory = true
		d.Why = "the GPU shares the host's memory and reports none of its own"
	case stateFor(code) == Lost || gone(code) || errors.Is(err, errAbandoned):
		r.lost = err
	default:
		d.State, d.Why = stateFor(code), explain(err)
	}
}

// readEvents subscribes to critical errors once for each session and collects those that have happened. A driver
// without events has no LastXid; that is no failure.
func (s *session) readEvents(handles []Handle) {
	if s.events == nil {
		e, err := ask(s, "nvmlEventSetCreate", s.lib.Events)
		if err != nil {
			return
		}
		s.events = e
		for _, h := range handles {
			_ = s.do("nvmlDeviceRegisterEvents", func() error { return e.Register(h) })
		}
	}
	for range maxEvents {
		var xid uint64
		h, err := ask(s, "nvmlEventSetWait", func() (h Handle, err error) {
			h, xid, err = s.events.Next()
			return h, err
		})
		if err != nil || h == nil {
			return
		}
		if uuid, err := ask(s, "nvmlDeviceGetUUID", h.UUID); err == nil {
			s.lastXid[uuid] = xid
		}
	}
}

// nameProcesses fills in what the processes are called. A name is asked for once, as long as its pid stays listed.
func (s *session) nameProcesses(devices []Device) {
	now := map[int]string{}
	for i := range devices {
		for j := range devices[i].Processes {
			p := &devices[i].Processes[j]
			name, known := now[p.PID]
			if !known {
				if name, known = s.names[p.PID]; !known {
					name, _ = ask(s, "nvmlSystemGetProcessName", func() (string, error) { return s.lib.ProcessName(p.PID) })
					name = plainName(name)
				}
				now[p.PID] = name
			}
			p.Name = name
		}
	}
	s.names = now
}

// plainName is a process's name in at most 64 printable characters.
func plainName(name string) string {
	const longest = 64
	var b strings.Builder
	n := 0
	for _, r := range name {
		if n == longest {
			break
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			n++
		}
	}
	return b.String()
}

// joinProcesses makes one list, by pid, of lists that may name a process more than once.
func joinProcesses(ours map[int]bool, lists ...[]Process) []Process {
	var out []Process
	for _, list := range lists {
		for _, p := range list {
			i := slices.IndexFunc(out, func(o Process) bool { return o.PID == p.PID })
			switch {
			case i < 0:
				p.Ours = ours[p.PID]
				out = append(out, p)
			case p.UsedBytes != nil && (out[i].UsedBytes == nil || *out[i].UsedBytes < *p.UsedBytes):
				out[i].UsedBytes = p.UsedBytes
			}
		}
	}
	slices.SortFunc(out, func(a, b Process) int { return a.PID - b.PID })
	return out
}

// reader makes the calls on one device and stops when the device turns out to be lost.
type reader struct {
	s    *session
	lost error
}

// value reads one property; the zero value where the device does not tell it.
func value[T any](r *reader, op string, call func() (T, error)) T {
	var zero T
	if r.lost != nil {
		return zero
	}
	v, err := ask(r.s, op, call)
	if err == nil {
		return v
	}
	if c := codeOf(err); stateFor(c) == Lost || gone(c) || errors.Is(err, errAbandoned) {
		r.lost = err
	}
	return zero
}

// optional reads one property; nil where the device does not tell it.
func optional[T any](r *reader, op string, call func() (T, error)) *T {
	return value(r, op, func() (*T, error) {
		v, err := call()
		return &v, err
	})
}

// fatal keeps an error only if it means that the library as a whole failed.
func fatal(err error) error {
	if gone(codeOf(err)) || errors.Is(err, errAbandoned) {
		return err
	}
	return nil
}
