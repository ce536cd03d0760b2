package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"time"
)

// Options say what to run and how patient to be with it. Zero values take the defaults named here.
type Options struct {
	// Kind says what to launch; required.
	Kind Kind
	// Model is what the engine loads: a name or a path. Required except for External.
	Model string
	// ServedNames are the names callers use for the model, the first being the engine's own label for it. Empty means
	// Model itself.
	ServedNames []string
	// Args are the operator's own engine arguments. They win over ours.
	Args []string
	// Binary is the engine's command: vllm, a Python that has SGLang. Empty means looked up in PATH.
	Binary string
	// Self is the path of the admitd binary, which is the simulator's command. Empty means the running executable.
	Self string
	// URL is where an External engine listens: http:// or https://, with an optional path prefix.
	URL string
	// APIKey is the key of an External engine; launched engines get a random one that never leaves this process and
	// its child.
	APIKey string

	// StateDir keeps the engine record, the measured start times and the lock; one supervisor each. Empty means that
	// nothing is remembered.
	StateDir string
	// StateDirLocked says that the caller holds Lock(StateDir) for as long as Run lasts, so that Run does not take it.
	StateDirLocked bool
	// RunDir holds the engine's socket and temporary files, in a fresh 0700 folder for each launch. Empty means a
	// folder of the system's temporary directory.
	RunDir string
	// EnginePort makes vLLM listen on this loopback port instead of a unix socket, and fixes SGLang's port; 0 means
	// a socket for vLLM and any free port for SGLang.
	EnginePort int
	// Env is added to the engine's environment, as KEY=value; it wins over what is inherited.
	Env []string

	// Logger receives state changes, never the engine's output. Nil means none.
	Logger *slog.Logger
	// BeforeStop closes the gate and drains our own requests; its context ends after DrainTimeout. Called before an
	// engine that was ready is asked to stop. Nil means nothing to drain.
	BeforeStop func(ctx context.Context)
	// OnReady is called each time the engine has become ready, so that the gate can open again. It must be quick.
	OnReady func()
	// BeforeLaunch is called before each launch and waits until enough memory is really free; its context ends after FreeTimeout.
	// tell shows what it waits for. Its error, best a *MemoryError, counts as a failed launch. Nil means launch at once.
	BeforeLaunch func(ctx context.Context, tell func(string)) error
	// AfterStop is called after nothing of an engine is left, and waits until its memory is free again; its context ends after
	// ReturnTimeout, or when somebody is in a hurry. Its error means that the memory has not come back: the state is Wedged, and
	// the hook is called again and again until it has no error. Nil means that memory comes back.
	AfterStop func(ctx context.Context, tell func(string)) error
	// Progress reports what the engine is doing: requests it has in hand, which is always valid, a token counter that only
	// grows, and known false when the counter is not known now. Nil means that nothing is ever in hand.
	Progress func() (running int, tokens float64, known bool)

	// Idle reports whether nothing at all is at the engine, by any book, and it is awake: only then is it asked for a token to see
	// that it lives. Called from any goroutine; nil means that it always may be.
	Idle func() bool

	// StartTimeout is how long a launch may take until it is ready; default 30 min.
	StartTimeout time.Duration
	// SilenceTimeout is how long a loading engine may print nothing at all; default 15 min, because a cold kernel
	// compilation is silent for ten.
	SilenceTimeout time.Duration
	// DrainTimeout bounds BeforeStop; default 60 s. Negative means no wait: BeforeStop is called with a context that has ended.
	DrainTimeout time.Duration
	// StopGrace is the time from SIGTERM to SIGKILL. Default 30 s; the engine's own drain gets 10 s less, and no more
	// than DrainTimeout. Negative means none.
	StopGrace time.Duration
	// ReapTimeout is how long killed processes may take to disappear before the state is Wedged; default 30 s.
	ReapTimeout time.Duration

	// FreeTimeout is how long a launch may wait for memory; default 60 s. ReturnTimeout is how long memory may take to come back;
	// default 20 s.
	FreeTimeout, ReturnTimeout time.Duration

	// ReadyInterval is the pause between readiness probes while loading; default 0.5 s, SGLang 2 s, External 1 s.
	ReadyInterval time.Duration
	// HealthInterval is the pause after one health probe before the next; default 5 s; 15 s for SGLang, whose probe is a
	// real request; 2 s for External, whose process we cannot see, but at least 10 s between two /health of one that shows to
	// be SGLang.
	HealthInterval time.Duration
	// HealthTimeout bounds one probe; default 10 s, SGLang 25 s, also for an External one that shows to be SGLang.
	HealthTimeout time.Duration
	// HealthFailures in a row without any progress make the engine Stalled; default 3.
	HealthFailures int
	// CanaryAfter is how long an idle engine may go without a token until it is asked for one, so that one that is frozen is found
	// before a caller finds it; default 5 min. Negative means never.
	CanaryAfter time.Duration
	// StallAfter is how long work may be in hand with no token counter moving, or with neither counters nor health answering,
	// before Stalled; default 60 s.
	StallAfter time.Duration
	// StallRestartAfter is how long Stalled may last before the engine is restarted; default 120 s. An engine that answers again
	// shortly before gets as long again, at most 10 s more, to bring out a token.
	StallRestartAfter time.Duration

	// Restart bounds the restarts after crashes.
	Restart RestartPolicy
	// Random returns numbers in [0,1) for jitter; nil means the runtime's generator.
	Random func() float64
}

// defaults fills the zero values of o.
func (o Options) defaults() Options {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	pick := func(sgl, external, other time.Duration) time.Duration {
		switch o.dialect() {
		case SGLang:
			return sgl
		case External:
			return external
		}
		return other
	}
	def(&o.StartTimeout, 30*time.Minute)
	def(&o.SilenceTimeout, 15*time.Minute)
	patient := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
		*v = max(*v, 0)
	}
	patient(&o.DrainTimeout, time.Minute)
	patient(&o.StopGrace, 30*time.Second)
	def(&o.ReapTimeout, 30*time.Second)
	def(&o.FreeTimeout, time.Minute)
	def(&o.ReturnTimeout, 20*time.Second)
	def(&o.ReadyInterval, pick(2*time.Second, time.Second, 500*time.Millisecond))
	def(&o.HealthInterval, pick(15*time.Second, 2*time.Second, 5*time.Second))
	def(&o.HealthTimeout, pick(slowProbeTimeout, 10*time.Second, 10*time.Second))
	if o.CanaryAfter == 0 {
		o.CanaryAfter = 5 * time.Minute
	}
	def(&o.StallAfter, time.Minute)
	def(&o.StallRestartAfter, 2*time.Minute)
	if o.HealthFailures <= 0 {
		o.HealthFailures = 3
	}
	o.Restart = o.Restart.defaults()
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if len(o.ServedNames) == 0 && o.Model != "" {
		o.ServedNames = []string{o.Model}
	}
	return o
}

// check says what is wrong with o, for the person who wrote it.
func (o Options) check() error {
	if o.EnginePort < 0 || o.EnginePort > 65535 {
		return fmt.Errorf("engine port %d: must be 1 to 65535, or 0 for a unix socket", o.EnginePort)
	}
	switch o.Kind {
	case VLLM, SGLang, Sim:
		if o.Model == "" {
			return fmt.Errorf("engine %s: no model given", o.Kind)
		}
		return nil
	case External:
		u, err := url.Parse(o.URL)
		if err != nil {
			return fmt.Errorf("engine url: %w", err)
		}
		if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return errors.New("engine url: must look like http://host:port")
		}
		if u.User != nil {
			return errors.New("engine url: give the key as a key, not inside the url")
		}
		return nil
	default:
		return fmt.Errorf("engine kind %q: must be vllm, sglang, sim or external", o.Kind)
	}
}

// dialect is the engine whose ways and words are to be expected: the simulator plays one of the real ones.
func (o Options) dialect() Kind {
	if o.Kind != Sim {
		return o.Kind
	}
	if flagValue(o.Args, "--dialect") == string(SGLang) {
		return SGLang
	}
	return VLLM
}

// self is the path of the admitd binary.
func (o Options) self() (string, error) {
	if o.Self != "" {
		return o.Self, nil
	}
	p, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the admitd binary: %w", err)
	}
	return p, nil
}
