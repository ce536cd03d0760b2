package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"admitd/supervisor"
)

// startWithin bounds the trial of an engine: a cold start compiles for minutes.
const startWithin = 15 * time.Minute

// TryStart starts an engine with a model until it is ready, which means that it has answered a one-token probe, and stops it.
// It returns one line about that. doing is told the loading phase. It is what Options.Start is outside of tests.
func TryStart(ctx context.Context, m Marker, model string, doing func(string)) (string, error) {
	began := time.Now()
	s, err := supervisor.New(trial(m, model))
	if err != nil {
		return "", fmt.Errorf("start the engine: %w", err)
	}
	return try(ctx, s, model, began, doing)
}

// trial says how to start an engine for a short look: small, and on a CPU without compiling.
func trial(m Marker, model string) supervisor.Options {
	o := supervisor.Options{
		Kind: supervisor.Kind(m.Kind), Binary: m.BinaryPath(), Model: model, ServedNames: []string{"trial"},
		StartTimeout: startWithin, Restart: supervisor.RestartPolicy{Budget: -1}, DrainTimeout: -1, StopGrace: 10 * time.Second,
	}
	if m.Kind == "vllm" {
		o.Args = []string{"--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "2"}
		o.Env = []string{"VLLM_NO_USAGE_STATS=1"}
	}
	if m.Kind == "vllm" && m.Build == CPU {
		o.Args = append(o.Args, "--dtype", "bfloat16")
		o.Env = append(o.Env, "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_CI_ENV=1")
	}
	if st, err := os.Stat(model); err == nil && st.IsDir() && filepath.IsAbs(model) {
		o.Env = append(o.Env, "HF_HUB_OFFLINE=1") // all it needs is in that folder
	}
	return o
}

// trialEngine is what a trial needs of a *supervisor.Supervisor.
type trialEngine interface {
	Run(ctx context.Context) error
	Status() supervisor.Status
	Changed() <-chan struct{}
}

func try(ctx context.Context, s trialEngine, model string, began time.Time, doing func(string)) (string, error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	st, err := awaitReady(ctx, s, ended, doing)
	stop()
	if runErr := <-ended; err == nil && runErr != nil && running.Err() == nil {
		err = fmt.Errorf("stop the engine: %w", runErr)
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("started with %s: ready after %s, answered a one-token probe", model, st.ReadyAt.Sub(began).Round(time.Second)), nil
}

// awaitReady waits until the engine is ready or has failed. What ended says is put back for whoever stops it.
func awaitReady(ctx context.Context, s trialEngine, ended chan error, doing func(string)) (supervisor.Status, error) {
	for {
		changed := s.Changed()
		st := s.Status()
		switch {
		case st.State == supervisor.Ready:
			return st, nil
		case st.GaveUp:
			return st, failedStart(st)
		case len(st.Phases) > 0:
			doing("starting it: " + st.Phases[len(st.Phases)-1].Name)
		}
		select {
		case <-ctx.Done():
			return st, ctx.Err()
		case err := <-ended:
			ended <- err
			return st, failedStart(s.Status())
		case <-changed:
		}
	}
}

func failedStart(st supervisor.Status) error {
	e := &Error{What: "the engine did not start: " + st.Text}
	if x := st.LastExit; x != nil {
		e.Fix = x.Hint
		if x.Cause == "" && len(x.Tail) > 0 {
			e.What += "; its last line was: " + tame(x.Tail[len(x.Tail)-1])
		}
	}
	return e
}
