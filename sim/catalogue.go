package sim

import "slices"

// Fault names one kind of misbehaviour.
type Fault string

// FaultInfo describes a fault for people.
type FaultInfo struct {
	Name Fault
	// Face is the dialect that the fault belongs to: VLLM or SGLang; "" when either engine can have it.
	Face string
	// Bugs are the numbers of docs/engine-bugs.md that the fault plays, ascending; none for what it plays beyond them.
	Bugs []int
	// Text says in one line what happens and what "when" means for it.
	Text string
}

// On reports whether an engine of the given dialect can have the fault.
func (f FaultInfo) On(face string) bool { return f.Face == "" || f.Face == face }

// Faults lists every fault, in a fixed order: those of the process, of its health, of its metrics, of its answers.
func Faults() []FaultInfo {
	return slices.Concat(processFaults(), deathFaults(), healthFaults(), metricFaults(), misleadFaults(), lagFaults(), answerFaults(), callerFaults())
}

// faultInfo finds a fault by name.
func faultInfo(name Fault) (FaultInfo, bool) {
	for _, f := range Faults() {
		if f.Name == name {
			return f, true
		}
	}
	return FaultInfo{}, false
}

// Faults of the process: how it starts, works and ends.
const (
	FaultExit0Crash Fault = "exit0-crash"
	FaultExit1Start Fault = "exit1-start"
	FaultFatalStart Fault = "fatal-start"
	FaultSlowStart  Fault = "slow-start"
	// FaultOrphan is a matter of processes: the command starts the child, a Server by itself knows nothing of it.
	FaultOrphan Fault = "orphan"
	FaultStall  Fault = "stall"
	// FaultLeaderKilled and FaultOOMKill end the command by SIGKILL; the child that lives on is the command's, too.
	FaultLeaderKilled  Fault = "leader-killed"
	FaultOOMKill       Fault = "oom-kill"
	FaultStuckQueue    Fault = "stuck-queue"
	FaultOversizedHead Fault = "oversized-head"
)

func processFaults() []FaultInfo {
	return []FaultInfo{
		{FaultExit0Crash, "", []int{3}, "the engine's core dies: streams end with an in-stream 500, the process exits with status 0"},
		{FaultExit1Start, "", []int{35}, "starting fails with a traceback and exit status 1"},
		{FaultFatalStart, "", []int{35}, "starting fails with a message that no retry can mend (no memory for cache blocks), exit status 1"},
		{FaultSlowStart, "", nil, "loading takes the given time longer (default 30s)"},
		{FaultOrphan, "", []int{1, 38}, "a child process stays alive and holds stdout when the leader dies, also while loading"},
		{FaultLeaderKilled, VLLM, []int{1}, "the API server is killed (SIGKILL); the core's process lives on and holds stdout"},
		{FaultOOMKill, VLLM, []int{2}, "the kernel kills the API server; a worker in a session of its own lives on"},
		{FaultStuckQueue, VLLM, []int{4}, "requests that come are queued and never scheduled; /health stays 200"},
		{FaultOversizedHead, VLLM, []int{5}, "a prompt within the model length may be larger than the KV cache; at the head of the queue it blocks all others"},
		{FaultStall, "", []int{6}, "no tokens come out any more; /health stays 200"},
	}
}

// Faults of the metrics page.
const (
	FaultFrozenMetrics    Fault = "frozen-metrics"
	FaultMissingMetrics   Fault = "missing-metrics"
	FaultNaNMetrics       Fault = "nan-metrics"
	FaultMetrics500       Fault = "metrics-500"
	FaultSlowMetrics      Fault = "slow-metrics"
	FaultNoKVMetric       Fault = "no-kv-metric"
	FaultPreemptingScrape Fault = "preempting-scrape"
)

func metricFaults() []FaultInfo {
	return []FaultInfo{
		{FaultFrozenMetrics, "", nil, "/metrics repeats one old scrape for ever"},
		{FaultMissingMetrics, "", []int{17}, "/metrics has HELP and TYPE lines but no samples"},
		{FaultNaNMetrics, "", nil, "every gauge on /metrics reads NaN"},
		{FaultMetrics500, "", []int{14}, "/metrics answers 500"},
		{FaultSlowMetrics, "", nil, "/metrics takes five seconds longer"},
		{FaultNoKVMetric, "", nil, "/metrics lacks the KV-cache usage family"},
		{FaultPreemptingScrape, VLLM, nil, "while anything is in flight /metrics reads running 0 and KV 0 with everything waiting"},
	}
}

// Faults of the answers to inference requests.
const (
	FaultInBand503     Fault = "in-band-503"
	FaultReal503       Fault = "real-503"
	FaultCutStream     Fault = "cut-stream"
	FaultAbortStream   Fault = "abort-stream"
	FaultErrorStream   Fault = "error-stream"
	FaultCounterRaises Fault = "counter-raises"
	FaultGiantEvent    Fault = "giant-event"
)

func answerFaults() []FaultInfo {
	return []FaultInfo{
		{FaultInBand503, "", []int{23}, "streams get a queue-full error inside a 200; plain requests a real 503"},
		{FaultReal503, "", nil, "every inference request gets a real 503"},
		{FaultCutStream, "", []int{21}, "streams end after three tokens without a finish reason or a terminal mark"},
		{FaultAbortStream, "", []int{22}, "answers end after three tokens with finish reason abort"},
		{FaultErrorStream, "", []int{20}, "streams end after three tokens with an in-stream 500"},
		{FaultCounterRaises, VLLM, []int{20}, "a counter's negative increment raises: the answer fails with a 500 before its first token"},
		{FaultGiantEvent, "", nil, "the second token of a stream is one data line of 8 MiB"},
	}
}
