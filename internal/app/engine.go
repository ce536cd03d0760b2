package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"admitd/internal/config"
	"admitd/internal/install"
	"admitd/supervisor"
)

// ErrNoEngine: --engine auto found nothing to run. It comes inside a *SetupError.
var ErrNoEngine = errors.New(`no inference engine found: none is installed by admitd, and neither vllm nor sglang is on PATH.
  Install one:        admitd engine install vllm
  or point to one:    --engine-binary /path/to/venv/bin/vllm
  or attach to one:   --engine external --engine-url http://127.0.0.1:8000
  or try admitd with its simulated engine (answers are made up):  --engine sim`)

// FindEngine turns engine.kind auto into a kind, and finds its program: the one that engine.binary names, else one that admitd
// installed, the newest or engine.version, else one on PATH. Its errors are *SetupError, or the context's.
func FindEngine(ctx context.Context, c config.Config) (supervisor.Kind, string, error) {
	e := c.Engine
	switch e.Kind {
	case "sim":
		return supervisor.Sim, "", nil
	case "external":
		return supervisor.External, "", nil
	case "vllm":
		bin, err := findVLLM(c)
		return supervisor.VLLM, bin, err
	case "sglang":
		bin, err := findSGLang(ctx, c)
		return supervisor.SGLang, bin, err
	}
	if e.Binary != "" {
		return "", "", setup("engine.binary is %s, but engine.kind is auto: say --engine vllm or --engine sglang", e.Binary)
	}
	// What was installed for admitd goes before what happens to be on PATH, whatever its kind.
	for _, kind := range []supervisor.Kind{supervisor.VLLM, supervisor.SGLang} {
		if bin, err := findInstalled(c, kind); err == nil {
			return kind, bin, nil
		}
	}
	if e.Version != "" {
		return "", "", setup("engine.version is %s, and no vllm or sglang of that version is installed; `admitd engine list` shows what is, and `admitd engine install vllm --version %s` installs it", e.Version, e.Version)
	}
	if bin, err := findVLLM(c); err == nil {
		return supervisor.VLLM, bin, nil
	}
	if bin, err := findSGLang(ctx, c); err == nil {
		return supervisor.SGLang, bin, nil
	}
	if err := ctx.Err(); err != nil {
		// A probe that was cut short proves nothing.
		return "", "", err
	}
	return "", "", &SetupError{ErrNoEngine}
}

// findInstalled returns the program of an engine that admitd installed.
func findInstalled(c config.Config, kind supervisor.Kind) (string, error) {
	dir, err := install.DataDir(c.DataDir)
	if err != nil {
		return "", err
	}
	m, err := install.Find(dir, string(kind), c.Engine.Version, install.HasGPU("/"))
	if err != nil {
		return "", err
	}
	return m.BinaryPath(), nil
}

func setup(format string, args ...any) error { return &SetupError{fmt.Errorf(format, args...)} }

// installedOr returns the installed engine's program, "" when it is to be looked for on PATH.
func installedOr(c config.Config, kind supervisor.Kind) (string, error) {
	if c.Engine.Binary != "" {
		return "", nil
	}
	bin, err := findInstalled(c, kind)
	switch {
	case err == nil:
		return bin, nil
	case c.Engine.Version != "":
		return "", setup("engine.version: %w; install it: admitd engine install %s --version %s", err, kind, c.Engine.Version)
	case errors.Is(err, install.ErrNotInstalled):
		return "", nil
	}
	return "", setup("engine %s: %w", kind, err)
}

func findVLLM(c config.Config) (string, error) {
	if bin, err := installedOr(c, supervisor.VLLM); bin != "" || err != nil {
		return bin, err
	}
	binary := c.Engine.Binary
	if binary == "" {
		binary = "vllm"
	}
	path, err := exec.LookPath(binary)
	if err != nil {
		return "", setup("engine vllm: %w; install it with `admitd engine install vllm`, or name it with --engine-binary", err)
	}
	return path, nil
}

// findSGLang returns the Python that has SGLang.
func findSGLang(ctx context.Context, conf config.Config) (string, error) {
	if bin, err := installedOr(conf, supervisor.SGLang); bin != "" || err != nil {
		return bin, err
	}
	binary := conf.Engine.Binary
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
	return "", setup(`engine sglang: no Python with the sglang package is on PATH; install it with admitd engine install sglang, or name that Python with --engine-binary`)
}

// engineOptions says how to run the engine of one pool.
func engineOptions(ctx context.Context, c config.Config, stateDir string) (supervisor.Options, error) {
	kind, binary, err := FindEngine(ctx, c)
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

// plainVariable is what names of variables mostly are. Anything else may be a key that somebody put into its place.
var plainVariable = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,39}$`)

// EngineKey reads the engine's own key from the environment, "" when none is configured. Its error is a *SetupError.
func EngineKey(e config.Engine) (string, error) {
	if e.KeyEnv == "" {
		return "", nil
	}
	key := os.Getenv(e.KeyEnv)
	if key == "" {
		name := "that it names"
		if plainVariable.MatchString(e.KeyEnv) {
			name = e.KeyEnv
		}
		return "", setup("engine.key_env: the environment variable %s is empty; export it with the engine's key", name)
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
