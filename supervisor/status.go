package supervisor

import (
	"net/http"
	"time"
)

// Kind is an engine that admitd knows how to run.
type Kind string

const (
	// VLLM is a vLLM child process, on a unix socket.
	VLLM Kind = "vllm"
	// SGLang is an SGLang child process, on a loopback port.
	SGLang Kind = "sglang"
	// Sim is admitd's own simulated engine as a child process; every surface says that it is simulated.
	Sim Kind = "sim"
	// External is an engine that somebody else runs, at a URL.
	External Kind = "external"
)

// State is the engine's state as the supervisor sees it.
type State string

// States. Ready is the only one in which requests may be sent.
const (
	Starting State = "starting"
	Loading  State = "loading"
	Ready    State = "ready"
	Stalled  State = "stalled"
	Draining State = "draining"
	Stopped  State = "stopped"
	Failed   State = "failed"
	Wedged   State = "wedged"
)

// Backoff is not a State: while waiting to restart, the state is Failed with RestartAt set.

// PhaseTime is one loading phase with when it began and how long it lasted.
type PhaseTime struct {
	// Name is a word of the phase table: launched, engine_init, weights, compile, kv_cache, graphs, warmup, http, probe.
	Name  string        `json:"name"`
	Began time.Time     `json:"began"`
	Took  time.Duration `json:"took_ns"`
	// LastTook is how long the phase lasted in the last successful start of the same engine and model; 0 when not known.
	LastTook time.Duration `json:"last_took_ns"`
}

// Exit describes how an engine process ended.
type Exit struct {
	At time.Time `json:"at"`
	// Text says how, for instance "exit status 0" or "signal: killed". It proves nothing about why.
	Text string `json:"text"`
	// Wanted is true when we had asked it to stop.
	Wanted bool `json:"wanted"`
	// Cause is a recognised signature in the output in plain words, "" when none; Hint says what to do about it.
	Cause string `json:"cause,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// Tail is the last lines of output.
	Tail []string `json:"tail,omitempty"`
}

// Status is a copy of what the supervisor knows. Advisory: only the supervisor's goroutine decides.
type Status struct {
	Kind      Kind      `json:"kind"`
	Simulated bool      `json:"simulated"`
	State     State     `json:"state"`
	Since     time.Time `json:"since"`
	// Phase is the current phase while loading, "" otherwise; Phases those of the current or last start, in order.
	Phase  string      `json:"phase,omitempty"`
	Phases []PhaseTime `json:"phases,omitempty"`
	// Text is one sentence on the state for people.
	Text string `json:"text"`
	// Trouble is what is wrong within the state, what happens next and what a person can do; nil when nothing is known to be.
	Trouble *Trouble `json:"trouble,omitempty"`
	PID     int      `json:"pid,omitempty"`
	// Started is when the process was launched; ReadyAt when it last became ready.
	Started time.Time `json:"started"`
	ReadyAt time.Time `json:"ready_at"`
	// Adopted is true for an engine that an earlier admitd launched.
	Adopted bool `json:"adopted,omitempty"`
	// Restarts counts launches after the first one of this supervisor.
	Restarts int `json:"restarts"`
	// RestartAt is when the next launch is due while waiting after a crash; zero otherwise.
	RestartAt time.Time `json:"restart_at"`
	// GaveUp is true when the restart budget is spent or the failure is one that retrying cannot mend.
	GaveUp   bool  `json:"gave_up,omitempty"`
	LastExit *Exit `json:"last_exit,omitempty"`
	// ExpectedReadyIn is the measured time from launch to ready of past starts minus what has passed; 0 when not known.
	ExpectedReadyIn time.Duration `json:"expected_ready_in_ns"`

	// Model is the name the engine serves; MaxModelLen its context in tokens, 0 when not known.
	Model       string `json:"model"`
	MaxModelLen int    `json:"max_model_len"`
	Version     string `json:"version,omitempty"`
	// KVCapacityTokens as the engine's log said, 0 when it did not.
	KVCapacityTokens int `json:"kv_capacity_tokens"`
	// Slots is the engine's limit on running requests as far as the launch arguments or log say, 0 when not known.
	Slots int `json:"slots"`
	// Command is the launch command as run, with the key blanked.
	Command []string `json:"command,omitempty"`
	// Address is where the engine listens, for people: unix:/path or http://host:port.
	Address string `json:"address"`
}

// Line is one line of the engine's output.
type Line struct {
	Seq uint64    `json:"seq"`
	At  time.Time `json:"at"`
	// Text is the line without its end, control characters removed, at most 4 KiB.
	Text string `json:"text"`
}

// Engine is what the rest of admitd sees of a supervised engine.
type Engine interface {
	// Status returns a copy, at once.
	Status() Status
	// Transport reaches the engine, whatever its socket, and adds the engine's own key to requests. Its URLs are
	// http://engine/path. It must not be used when the state is not Ready, except by probes.
	Transport() http.RoundTripper
	// Logs returns lines with Seq > after, oldest first, at most limit, and whether older ones were lost.
	Logs(after uint64, limit int) (lines []Line, lost bool)
	// Changed returns a channel that is closed at the next change of Status.
	Changed() <-chan struct{}
	// Pids lists the live processes of the engine; empty for External.
	Pids() []int
}
