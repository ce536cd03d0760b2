package doctor

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"admitd/internal/install"
	"admitd/supervisor"
)

// engine looks whether there is one that admitd can run.
func (x *exam) engine(ctx context.Context) {
	s := x.s
	if s.FindErr != nil {
		what, _, _ := strings.Cut(s.FindErr.Error(), "\n")
		kind := s.Config.Engine.Kind
		if _, known := x.catalog.Engines[kind]; !known {
			kind = "vllm"
		}
		fix := "admitd engine install " + kind
		if s.Config.Engine.Version != "" {
			fix += " --version " + s.Config.Engine.Version
		}
		if s.Config.Engine.Binary != "" {
			fix = "correct --engine-binary, or leave it away and: " + fix
		}
		x.add(Fail, "engine", fix, "%s", what)
		x.cpu = !install.HasGPU(x.m.Root) // the build that would be installed
		x.python(ctx)
		return
	}
	if !x.local {
		x.add(OK, "engine", "", "%s", s.Kind)
		return
	}
	version, build := x.engineVersion(ctx)
	x.cpu = build == install.CPU || strings.Contains(version, "+cpu")
	if version == "" {
		x.add(Warn, "engine", "admitd engine install "+string(s.Kind), "%s at %s does not say its version", s.Kind, s.Binary)
		return
	}
	v := x.catalog.Engines[string(s.Kind)].Supported.Judge(version)
	if !v.OK {
		x.add(Fail, "engine", "admitd engine install "+string(s.Kind), "%s at %s: %s", s.Kind, s.Binary, v.Text)
		return
	}
	x.add(OK, "engine", "", "%s at %s: %s", s.Kind, s.Binary, v.Text)
}

// engineVersion asks the engine's own Python, which is quick; the build is "" when admitd has not installed it.
func (x *exam) engineVersion(ctx context.Context) (version, build string) {
	if all, err := install.List(x.s.DataDir); err == nil {
		for _, in := range all {
			if in.Marker != nil && in.Problem == "" && in.Marker.BinaryPath() == x.s.Binary {
				return in.Marker.Version, in.Marker.Build
			}
		}
	}
	python := x.s.Binary
	if x.s.Kind == supervisor.VLLM || filepath.Base(python) == "sglang" {
		if python = interpreter(x.s.Binary); python == "" {
			return "", ""
		}
	}
	module := x.catalog.Engines[string(x.s.Kind)].Module
	out, err := x.m.Output(ctx, python, "-c", "import importlib.metadata as m; print(m.version('"+module+"'))")
	if err != nil {
		return "", ""
	}
	return strings.TrimSpace(out), ""
}

// interpreter reads the Python that a script says it is run by, "" for what is no such script.
func interpreter(script string) string {
	f, err := os.Open(script)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	line, _ := bufio.NewReaderSize(f, 512).ReadString('\n') // a short file may have no end of line
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(words) == 0 || !strings.Contains(filepath.Base(words[0]), "python") {
		return ""
	}
	return words[0]
}

// python looks whether an engine could be installed.
func (x *exam) python(ctx context.Context) {
	path, err := x.m.LookPath("python3")
	if err != nil {
		x.add(Fail, "python", "apt-get install python3 python3-venv", "there is no python3 on PATH, which `admitd engine install` needs")
		return
	}
	if _, err := x.m.Output(ctx, path, "-c", "import venv, ensurepip; print('ok')"); err != nil {
		if _, uv := x.m.LookPath("uv"); uv == nil {
			x.add(OK, "python", "", "%s, with uv for making environments", path)
			return
		}
		x.add(Fail, "python", "apt-get install python3-venv", "%s cannot make environments, which `admitd engine install` needs: it lacks venv or ensurepip", path)
		return
	}
	x.add(OK, "python", "", "%s", path)
}

// compiler: Triton and Inductor call one when they compile kernels at the first start.
func (x *exam) compiler() {
	for _, c := range []string{"cc", "gcc", "clang"} {
		if path, err := x.m.LookPath(c); err == nil {
			x.add(OK, "compiler", "", "%s", path)
			return
		}
	}
	x.add(Warn, "compiler", "apt-get install build-essential", "there is no C compiler, which engines call at their first start unless told --enforce-eager")
}

// model looks for the model's files, or for room to fetch them.
func (x *exam) model() {
	repo := x.s.Repo
	switch {
	case repo == "":
		x.add(Warn, "model", "admitd doctor --model NAME", "no model is named, so that its need of memory and disk is not known")
		return
	case strings.HasPrefix(repo, "/") || strings.HasPrefix(repo, "."):
		x.modelFolder(repo)
		return
	}
	if st, err := os.Stat(repo); err == nil && st.IsDir() {
		x.modelFolder(repo)
		return
	}
	cache := x.hubCache()
	pattern := filepath.Join(cache, "models--"+strings.ReplaceAll(repo, "/", "--"), "snapshots", "*")
	if found, _ := filepath.Glob(pattern); len(found) > 0 {
		if bytes, ok := weightsIn(found[len(found)-1]); ok {
			x.weights = bytes
			x.add(OK, "model", "", "%s is in %s (%s)", repo, cache, size(bytes))
			return
		}
	}
	x.weights, x.guessed = sizeFromName(repo)
	if offline(x.m.Env("HF_HUB_OFFLINE")) || offline(x.m.Env("TRANSFORMERS_OFFLINE")) {
		x.add(Fail, "model", "HF_HUB_OFFLINE=0 admitd serve ... once, or --model FOLDER", "%s is not in %s, and HF_HUB_OFFLINE forbids fetching it", repo, cache)
		return
	}
	x.roomFor(repo, cache)
}

func (x *exam) roomFor(repo, cache string) {
	free, _, err := x.m.Room(cache)
	switch {
	case err != nil:
		x.add(Warn, "model", "HF_HOME=/a/folder/that/can/be/written", "%s is not in %s and is fetched at the first start; the room there cannot be read: %v", repo, cache, err)
	case x.weights > 0 && free < x.weights+gib:
		x.add(Fail, "model", "HF_HOME=/a/larger/disk admitd serve ...", "%s has to be fetched into %s: about %s, and %s are free", repo, cache, size(x.weights), size(free))
	case x.weights > 0:
		x.add(OK, "model", "", "%s is fetched into %s at the first start: about %s by its name; %s are free", repo, cache, size(x.weights), size(free))
	default:
		x.add(OK, "model", "", "%s is fetched into %s at the first start; its size is not known, %s are free", repo, cache, size(free))
	}
}

func (x *exam) modelFolder(folder string) {
	if _, err := os.Stat(filepath.Join(folder, "config.json")); err != nil {
		x.add(Fail, "model", "--model FOLDER with config.json and weights in it, or a hub name", "%s is no model: %s", folder, reasonOf(err))
		return
	}
	bytes, ok := weightsIn(folder)
	if !ok {
		x.add(Fail, "model", "fetch the model again", "%s has no weights (*.safetensors or *.bin)", folder)
		return
	}
	x.weights = bytes
	x.add(OK, "model", "", "%s (%s)", folder, size(bytes))
}

func reasonOf(err error) string {
	if errors.Is(err, os.ErrNotExist) {
		return "config.json is not there"
	}
	return err.Error()
}

func offline(v string) bool {
	switch strings.ToUpper(v) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// hubCache is where the model hub's library keeps what it has fetched.
func (x *exam) hubCache() string {
	if v := x.m.Env("HF_HUB_CACHE"); v != "" {
		return v
	}
	if v := x.m.Env("HF_HOME"); v != "" {
		return filepath.Join(v, "hub")
	}
	if v := x.m.Env("XDG_CACHE_HOME"); v != "" {
		return filepath.Join(v, "huggingface", "hub")
	}
	return filepath.Join(x.m.Home, ".cache", "huggingface", "hub")
}
