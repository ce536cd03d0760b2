package sim

import (
	"context"
	"time"
)

// Faults of how the engine's processes die, or do not. Those of several processes are played by the command; a Server by
// itself knows nothing of other processes.
const (
	FaultDeadScheduler Fault = "dead-scheduler"
	FaultEscapedWorker Fault = "escaped-worker"
	FaultLateHang      Fault = "late-hang"
	FaultUnkillable    Fault = "unkillable"
	FaultMemoryHeld    Fault = "memory-held"
	FaultSharedPort    Fault = "shared-port"
	FaultDeafHang      Fault = "deaf-hang"
	FaultHungStart     Fault = "hung-start"
	FaultSigkillStop   Fault = "sigkill-stop"
)

// lateHangRequests is the request with which late-hang begins when it is not told.
const lateHangRequests = 100

func deathFaults() []FaultInfo {
	return []FaultInfo{
		{FaultDeadScheduler, SGLang, []int{29}, "the scheduler's process dies: no token comes out any more, /health stays 200"},
		{FaultEscapedWorker, SGLang, []int{31}, "a worker in a session of its own outlives the leader"},
		{FaultLateHang, SGLang, []int{32}, "from a request on (default req=100) no token comes out any more; /health stays 200"},
		{FaultUnkillable, VLLM, []int{33}, "the core's process stays for the given time (default 60s) after it was killed"},
		{FaultMemoryHeld, VLLM, []int{34}, "GPU memory is held for the given time (default 20s) after the engine's end, and a start meanwhile fails for it"},
		{FaultSharedPort, VLLM, []int{36}, "listens with SO_REUSEPORT, so that a second server on the port starts without an error"},
		{FaultDeafHang, VLLM, []int{39}, "no token comes out any more and SIGTERM is not heard; /health stays 200"},
		{FaultHungStart, VLLM, []int{40}, "the engine fails to initialise and neither ends nor hears SIGTERM"},
		{FaultSigkillStop, "", nil, "a clean stop ends by SIGKILL, as SGLang's always does"},
	}
}

// stalling are the faults that make the model stand still.
func stalling() []Fault { return []Fault{FaultStall, FaultDeadScheduler, FaultLateHang, FaultDeafHang} }

// Asked reports whether a fault was asked for, and with which duration, 0 for none.
func (s *Server) Asked(name Fault) (given time.Duration, ok bool) {
	a, ok := s.faults.asked(name)
	return a.after, ok
}

// FaultOn reports whether a fault holds now.
func (s *Server) FaultOn(name Fault) bool { return s.faults.on(name) }

// FaultBegins returns nil once a fault holds, or the context's error.
func (s *Server) FaultBegins(ctx context.Context, name Fault) error { return s.faults.wait(ctx, name) }

// Trip tells that the occasion of a fault has come which the Server itself cannot see.
func (s *Server) Trip(name Fault) { s.faults.trip(name) }
