package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"admitd/internal/config"
	"admitd/supervisor"
)

// ErrNoEngine: --engine auto found nothing to run. It comes inside a *SetupError.
var ErrNoEngine = errors.New(`no inference engine found: neither vllm nor sglang is on PATH.
  Install one:        pip install vllm        (or: pip install "sglang[all]")
  or point to one:    --engine-binary /path/to/venv/bin/vllm
  or attach to one:   --engine external --engine-url http://127.0.0.1:8000
  or try admitd with its simulated engine (answers are made up):  --engine sim`)

// FindEngine turns engine.kind auto into a kind, and finds its program. Its errors are *SetupError.
func FindEngine(ctx context.Context, e config.Engine) (supervisor.Kind, string, error) {
	switch e.Kind {
	case "sim":
		return supervisor.Sim, "", nil
	case "external":
		return supervisor.External, "", nil
	case "vllm":
		bin, err := findVLLM(e.Binary)
		return supervisor.VLLM, bin, err
	case "sglang":
		bin, err := findSGLang(ctx, e.Binary)
		return supervisor.SGLang, bin, err
	}
	if e.Binary != "" {
		return "", "", setup("engine.binary is %s, but engine.kind is auto: say --engine vllm or --engine sglang", e.Binary)
	}
	if bin, err := findVLLM(""); err == nil {
		return supervisor.VLLM, bin, nil
	}
	if bin, err := findSGLang(ctx, ""); err == nil {
		return supervisor.SGLang, bin, nil
	}
	if err := ctx.Err(); err != nil {
		// A probe that was cut short proves nothing.
		return "", "", err
	}
	return "", "", &SetupError{ErrNoEngine}
}

func setup(format string, args ...any) error { return &SetupError{fmt.Errorf(format, args...)} }

func findVLLM(binary string) (string, error) {
	if binary == "" {
		binary = "vllm"
	}
	path, err := exec.LookPath(binary)
	if err != nil {
		return "", setup("engine vllm: %w; install it with `pip install vllm`, or name it with --engine-binary", err)
	}
	return path, nil
}

// findSGLang returns the Python that has SGLang.
func findSGLang(ctx context.Context, binary string) (string, error) {
	candidates := []string{binary}
	if binary == "" {
		candidates = []string{"python3", "python"}
	}
	for _, c := range candidates {
		path, err := exec.LookPath(c)
		if err != nil {
			continue
		}
		if binary != "" && filepath.Base(path) == "sglang" {
			return path, nil
		}
		probe, cancel := context.WithTimeout(ctx, 10*time.Second)
		err = exec.CommandContext(probe, path, "-c", "import importlib.util,sys; sys.exit(importlib.util.find_spec('sglang') is None)").Run()
		cancel()
		if err == nil {
			return path, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if binary != "" {
		return "", setup(`engine sglang: %s is not a Python that has the sglang package; install it there with pip install "sglang[all]", or name another with --engine-binary`, binary)
	}
	return "", setup(`engine sglang: no Python with the sglang package is on PATH; install it with pip install "sglang[all]", or name that Python with --engine-binary`)
}

// engineOptions says how to run the engine of one pool.
func engineOptions(ctx context.Context, c config.Config, stateDir string) (supervisor.Options, error) {
	kind, binary, err := FindEngine(ctx, c.Engine)
	if err != nil {
		return supervisor.Options{}, err
	}
	models, err := config.LoadModels()
	if err != nil {
		return supervisor.Options{}, err
	}
	repo, args := models.Resolve(c.Model, string(kind))
	o := supervisor.Options{
		Kind: kind, Binary: binary, Model: repo,
		Args: append(args, c.Engine.Args...), URL: c.Engine.URL, StateDir: stateDir, StateDirLocked: true,
		EnginePort: c.Engine.Port, StartTimeout: c.Engine.StartTimeout, DrainTimeout: notDefault(c.Engine.DrainTimeout),
		StopGrace: notDefault(c.Engine.StopGrace), StallAfter: c.Engine.StallAfter, StallRestartAfter: c.Engine.StallAfter,
		Restart: supervisor.RestartPolicy{Budget: budget(c.Engine.MaxRestarts), Window: c.Engine.Window},
	}
	switch {
	case kind == supervisor.External && c.Model != "":
		o.ServedNames = []string{c.Model} // it has its names already; what callers say is translated
	case c.ServedName() != "":
		o.ServedNames = append([]string{c.ServedName()}, c.Aliases...)
	}
	o.APIKey, err = EngineKey(c.Engine)
	return o, err
}

// EngineKey reads the engine's own key from the environment, "" when none is configured. Its error is a *SetupError.
func EngineKey(e config.Engine) (string, error) {
	if e.KeyEnv == "" {
		return "", nil
	}
	key := os.Getenv(e.KeyEnv)
	if key == "" {
		return "", setup("engine.key_env: the environment variable %s is empty; export it with the engine's key", e.KeyEnv)
	}
	return key, nil
}

// notDefault keeps the file's 0 (do not wait) apart from the supervisor's (wait as long as you think right).
func notDefault(d time.Duration) time.Duration { return max(d, time.Millisecond) }

// budget turns engine.max_restarts, where 0 means never, into the supervisor's words.
func budget(restarts int) int {
	if restarts == 0 {
		return -1
	}
	return restarts
}
