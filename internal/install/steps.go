package install

import (
	"context"
	_ "embed" // for the script that unpacks the test model
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed gguf_to_hf.py
var unpackScript string

// checkWithin bounds one look at an engine: importing one reads gigabytes from a disk that may be slow.
const checkWithin = 10 * time.Minute

// python is the interpreter in the engine's folder.
func (j *job) python() string { return filepath.Join(j.folder, "bin", "python") }

// pip runs pip of the engine's folder.
func (j *job) pip(ctx context.Context, args ...string) error {
	d := downloads{to: j.o.Reporter}
	all := append([]string{"-m", "pip"}, args...)
	return j.run.run(ctx, d.line, j.python(), append(all, "--cache-dir", filepath.Join(j.folder, cacheDir))...)
}

// first runs a program and returns the first line that it prints.
func (j *job) first(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	line := ""
	err := j.run.run(ctx, func(text string) {
		if line == "" {
			line = text
		}
	}, name, args...)
	return line, err
}

// environment makes the folder a fresh Python environment with a pip that can tell how far it is.
func (j *job) environment(ctx context.Context) error {
	if err := j.clear(); err != nil {
		return err
	}
	python, version, err := j.findPython(ctx)
	if err != nil {
		return err
	}
	j.rec.Python = version
	if err := j.venv(ctx, python, version); err != nil {
		return err
	}
	return j.pip(ctx, "install", "--progress-bar", "off", "--upgrade", "pip>=24.1") // from 24.1 on it knows raw
}

// findPython returns the interpreter to build on and its version.
func (j *job) findPython(ctx context.Context) (path, version string, err error) {
	names := []string{"python3", "python"}
	if j.o.Python != "" {
		names = []string{j.o.Python}
	}
	for _, n := range names {
		if path, err = exec.LookPath(n); err == nil {
			break
		}
	}
	if err != nil {
		return "", "", &Error{What: "there is no Python (looked for " + strings.Join(names, " and ") + ")",
			Fix: install("python3 python3-venv", j.o.Root) + ", or name an interpreter with --python", Precondition: true, Err: err}
	}
	version, err = j.first(ctx, path, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])")
	if err != nil && ctx.Err() != nil {
		return "", "", ctx.Err()
	}
	if err != nil {
		why := err.Error()
		if failed, ok := errors.AsType[*runError](err); ok && len(failed.lines) > 0 {
			why += ", " + tame(failed.lines[len(failed.lines)-1])
		}
		return "", "", &Error{What: fmt.Sprintf("%s does not work as Python: asked for its version it ends with %s", path, why),
			Fix: "mend it, or name another interpreter with --python, for instance --python /usr/bin/python3", Precondition: true, Err: err}
	}
	v, ok := parseVersion(version)
	if least, _ := parseVersion("3.10"); !ok || v.compare(least) < 0 {
		return "", "", &Error{What: fmt.Sprintf("%s is Python %s; engines need 3.10 or newer", path, tame(version)),
			Fix: "name another interpreter with --python", Precondition: true}
	}
	return path, version, nil
}

// venv makes the environment with Python's own module, or with uv where Debian has split that module's other half away.
func (j *job) venv(ctx context.Context, python, version string) error {
	_, err := j.first(ctx, python, "-c", "import venv, ensurepip")
	if err == nil {
		return j.run.run(ctx, nil, python, "-m", "venv", j.folder)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if uv, lookErr := exec.LookPath("uv"); lookErr == nil {
		return j.run.run(ctx, nil, uv, "venv", "--seed", "--allow-existing", "--python", python, j.folder)
	}
	return &Error{What: fmt.Sprintf("Python %s at %s cannot make environments: it lacks venv or ensurepip", version, python),
		Fix: install("python3-venv", j.o.Root) + ", or put uv on PATH, or name another interpreter with --python", Precondition: true, Err: err}
}

// install is the command that installs Debian packages, or words for where there are others.
func install(packages, root string) string {
	b, err := os.ReadFile(filepath.Join(root, "etc", "os-release"))
	if err == nil && !regexp.MustCompile(`(?m)^ID(_LIKE)?=.*(debian|ubuntu)`).Match(b) {
		return "install it with the system's package manager (Debian calls it " + packages + ")"
	}
	return "apt-get install " + packages
}

// clear empties the folder but for what an install keeps across tries.
func (j *job) clear() error {
	entries, err := os.ReadDir(j.folder)
	if err != nil {
		return fmt.Errorf("empty the folder: %w", err)
	}
	for _, e := range entries {
		switch e.Name() {
		case lockFile, logFile, recordFile, tmpDir, cacheDir:
			continue
		}
		if err := os.RemoveAll(filepath.Join(j.folder, e.Name())); err != nil {
			return fmt.Errorf("empty the folder: %w", err)
		}
	}
	j.rec.Done = nil
	return nil
}

// fetch gets the engine's own wheel and writes down what it needs, local pins dropped.
func (j *job) fetch(ctx context.Context) error {
	dir := filepath.Join(j.folder, wheelDir)
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("empty %s: %w", dir, err)
	}
	if err := j.pip(ctx, "download", "--progress-bar", "raw", "--no-deps", "--only-binary", ":all:", "--dest", dir, j.build.Package+"=="+j.o.Version); err != nil {
		return err
	}
	wheel, err := j.wheel()
	if err != nil {
		return err
	}
	_, needs, err := wheelNeeds(wheel)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "requirements.txt"), []byte(strings.Join(needs, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the requirements: %w", err)
	}
	return nil
}

func (j *job) wheel() (string, error) {
	found, _ := filepath.Glob(filepath.Join(j.folder, wheelDir, "*.whl")) // the pattern is well-formed
	if len(found) != 1 {
		return "", fmt.Errorf("%d wheels in %s, want one", len(found), filepath.Join(j.folder, wheelDir))
	}
	return found[0], nil
}

// packages installs the engine and what it needs.
func (j *job) packages(ctx context.Context) error {
	args := []string{"install", "--progress-bar", "raw", "--no-compile"}
	if j.o.TestModel {
		args = append(args, j.test.UnpackWith...)
	}
	if !j.build.DropLocalPins {
		return j.pip(ctx, append(args, j.build.Package+"=="+j.o.Version)...)
	}
	wheel, err := j.wheel()
	if err != nil {
		return err
	}
	if err := j.pip(ctx, append(args, "-r", filepath.Join(j.folder, wheelDir, "requirements.txt"))...); err != nil {
		return err
	}
	return j.pip(ctx, "install", "--no-compile", "--no-deps", wheel)
}

// register writes package metadata under the name by which the engine looks itself up.
func (j *job) register(ctx context.Context) error {
	site, err := j.first(ctx, j.python(), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
	if err != nil {
		return err
	}
	version := j.o.Version + j.build.RegisterSuffix
	info := filepath.Join(site, j.build.RegisterAs+"-"+version+".dist-info")
	if err := os.MkdirAll(info, 0o755); err != nil { //nolint:gosec // as the packages beside it
		return fmt.Errorf("register the version: %w", err)
	}
	text := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", j.build.RegisterAs, version)
	if err := os.WriteFile(filepath.Join(info, "METADATA"), []byte(text), 0o644); err != nil { //nolint:gosec // as the packages beside it
		return fmt.Errorf("register the version: %w", err)
	}
	return nil
}

// model unpacks the test model. It is written beside its place and moved there whole.
func (j *job) model(ctx context.Context) error {
	work := filepath.Join(j.folder, tmpDir, "model")
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("empty %s: %w", work, err)
	}
	if err := os.MkdirAll(work, 0o755); err != nil { //nolint:gosec // holds a public model
		return fmt.Errorf("unpack the model: %w", err)
	}
	script := filepath.Join(work, "unpack.py")
	if err := os.WriteFile(script, []byte(unpackScript), 0o600); err != nil {
		return fmt.Errorf("unpack the model: %w", err)
	}
	if err := j.pip(ctx, append([]string{"install", "--progress-bar", "raw", "--no-compile"}, j.test.UnpackWith...)...); err != nil {
		return err
	}
	if err := j.pip(ctx, "download", "--progress-bar", "raw", "--no-deps", "--dest", work, j.test.Package+"=="+j.test.Version); err != nil {
		return err
	}
	done := filepath.Join(work, "done")
	if err := j.run.run(ctx, nil, j.python(), script, work, done); err != nil {
		return err
	}
	target := filepath.Join(j.folder, modelDir)
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("replace the model: %w", err)
	}
	if err := os.Rename(done, target); err != nil {
		return fmt.Errorf("put the model into place: %w", err)
	}
	j.marker.Model = modelDir
	return nil
}

// check looks whether the engine is what it should be: the version that its packages say, and that it can be imported.
func (j *job) check(ctx context.Context) error {
	if j.marker.Format == 0 {
		j.marker = Marker{Format: 1, Name: filepath.Base(j.folder), Kind: j.o.Kind, Build: j.o.Build, Version: j.o.Version, Folder: j.folder,
			Binary: filepath.Join("bin", "vllm"), Python: j.rec.Python}
		if j.o.Kind == "sglang" {
			j.marker.Binary = filepath.Join("bin", "python")
		}
		if st, err := os.Stat(filepath.Join(j.folder, modelDir, "config.json")); err == nil && st.Mode().IsRegular() {
			j.marker.Model = modelDir
		}
	}
	version, err := j.first(ctx, j.python(), "-c", "import importlib.metadata as m; print(m.version('"+j.engine.Module+"'))")
	if err != nil {
		return err
	}
	if !sameVersion(version, j.o.Version) {
		return &Error{What: fmt.Sprintf("the folder holds %s %s, not %s", j.o.Kind, tame(version), j.o.Version), Fix: "remove it (admitd engine remove) and install again"}
	}
	j.o.Reporter.Doing("importing it, which can take a minute the first time")
	ready := "import " + j.engine.Module + "; print('imported')"
	if err := j.run.run(ctx, nil, j.python(), "-c", ready); err != nil {
		return err
	}
	if j.o.Kind == "vllm" {
		if _, err := j.first(ctx, j.marker.BinaryPath(), "--version"); err != nil {
			return err
		}
	}
	j.marker.Verified = append(j.marker.Verified, "version "+version+", imported, its command answers")
	j.o.Reporter.Note("it is version " + version + ", and can be imported")
	return nil
}

// start tries the engine for real, where there is a model to try it with.
func (j *job) start(ctx context.Context) error {
	model := j.o.VerifyModel
	if model == "" {
		model = j.marker.ModelPath()
	}
	if model == "" || j.o.Start == nil {
		return nil
	}
	line, err := j.o.Start(ctx, j.marker, model, j.o.Reporter.Doing)
	if err != nil {
		return err
	}
	j.marker.Verified, j.marker.Started = append(j.marker.Verified, line), true
	j.o.Reporter.Note(line)
	return nil
}

// diskUse adds up what a folder takes on disk, in bytes; links that several names share count once.
func diskUse(folder string) uint64 {
	var total uint64
	seen := map[uint64]bool{}
	_ = filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err != nil || unix.Lstat(path, &st) != nil {
			if errors.Is(err, fs.ErrPermission) {
				return fs.SkipDir
			}
			return nil
		}
		if st.Nlink < 2 || !seen[st.Ino] {
			total += uint64(st.Blocks) * 512
		}
		seen[st.Ino] = true
		return nil
	})
	return total
}
