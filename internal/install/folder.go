package install

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Names of the files in an engine's folder, beside what Python's venv makes.
const (
	markerFile = "installed.json"
	recordFile = "install.json"
	logFile    = "install.log"
	lockFile   = ".lock"
	modelDir   = "model"
	wheelDir   = "wheel"
	cacheDir   = "cache"
	tmpDir     = "tmp"
)

// Marker is what makes a folder an installed engine. It is written last.
type Marker struct {
	Format int `json:"format"`
	// Name is the folder's name under the data folder, Kind vllm or sglang, Build gpu or cpu.
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Build   string `json:"build"`
	Version string `json:"version"`
	// Folder is where it was installed: Python environments cannot be moved.
	Folder string `json:"folder"`
	// Binary is the program to run, Model the test model's folder, "" without; both below Folder.
	Binary string `json:"binary"`
	Model  string `json:"model,omitempty"`
	// Python is the interpreter's version; Bytes what the folder takes on disk.
	Python      string    `json:"python"`
	Bytes       uint64    `json:"bytes"`
	InstalledAt time.Time `json:"installed_at"`
	// VerifiedAt is when it was last tried, Verified what was tried then, one line each.
	VerifiedAt time.Time `json:"verified_at"`
	Verified   []string  `json:"verified"`
	// Started says that a real start was among that.
	Started bool `json:"started"`
}

// BinaryPath is the program to run: vllm, or for SGLang the Python that has it.
func (m Marker) BinaryPath() string { return filepath.Join(m.Folder, m.Binary) }

// ModelPath is the test model's folder, "" without.
func (m Marker) ModelPath() string {
	if m.Model == "" {
		return ""
	}
	return filepath.Join(m.Folder, m.Model)
}

// DataDir returns admitd's data folder: the configured one, else $XDG_DATA_HOME/admitd, else ~/.local/share/admitd. It does
// not make it. The result is absolute.
func DataDir(configured string) (string, error) {
	dir := configured
	switch {
	case dir != "":
	case filepath.IsAbs(os.Getenv("XDG_DATA_HOME")): // the XDG specification has relative ones ignored
		dir = filepath.Join(os.Getenv("XDG_DATA_HOME"), "admitd")
	default:
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the data folder: %w; set data_dir (--data-dir)", err)
		}
		dir = filepath.Join(home, ".local", "share", "admitd")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("data_dir: %w", err)
	}
	return abs, nil
}

// enginesDir is where engines are below a data folder.
func enginesDir(dataDir string) string { return filepath.Join(dataDir, "engines") }

// folderName is the name of an engine's folder.
func folderName(kind, build, version string) string {
	if build == CPU {
		return kind + "-" + version + "-cpu"
	}
	return kind + "-" + version
}

// Installed is one folder below the data folder.
type Installed struct {
	Name   string `json:"name"`
	Folder string `json:"folder"`
	// Marker is nil while the install is not finished, or was cut.
	Marker *Marker `json:"marker,omitempty"`
	// Problem says why the folder is not an engine that serve would take, "" for a good one.
	Problem string `json:"problem,omitempty"`
}

// List reads what is installed below a data folder, by name. A folder that is not there is an empty list.
func List(dataDir string) ([]Installed, error) {
	entries, err := os.ReadDir(enginesDir(dataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list installed engines: %w", err)
	}
	var out []Installed
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		out = append(out, look(filepath.Join(enginesDir(dataDir), e.Name())))
	}
	return out, nil
}

// look reads one engine's folder.
func look(folder string) Installed {
	in := Installed{Name: filepath.Base(folder), Folder: folder}
	m, err := readMarker(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		in.Problem = "not finished; the same `admitd engine install` goes on where it was cut"
		return in
	case err != nil:
		in.Problem = err.Error()
		return in
	}
	in.Marker = &m
	if !sameFolder(m.Folder, folder) {
		in.Problem = "it was installed in " + m.Folder + " and moved, which Python environments do not survive; remove it and install again"
		return in
	}
	if st, err := os.Stat(m.BinaryPath()); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
		in.Problem = m.BinaryPath() + " is gone; remove it and install again"
	}
	return in
}

func sameFolder(a, b string) bool {
	if a == b {
		return true
	}
	sa, errA := os.Stat(a)
	sb, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(sa, sb)
}

func readMarker(folder string) (Marker, error) {
	var m Marker
	b, err := os.ReadFile(filepath.Join(folder, markerFile))
	if err != nil {
		return m, fmt.Errorf("read the engine's marker: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil || m.Format != 1 || m.Kind == "" || !filepath.IsLocal(m.Binary) ||
		m.Model != "" && !filepath.IsLocal(m.Model) {
		return Marker{}, fmt.Errorf("%s is not a marker that this admitd can read; remove the engine and install it again", filepath.Join(folder, markerFile))
	}
	return m, nil
}

// ErrNotInstalled says that no installed engine is what was asked for.
var ErrNotInstalled = errors.New("no such engine is installed")

// Find returns the installed engine to run: of that kind, of that version when one is given, and of these the build that fits
// the machine before the other, the newest before older. It never returns one that is not finished. Its error is
// ErrNotInstalled, or says why the folder cannot be read.
func Find(dataDir, kind, version string, gpu bool) (Marker, error) {
	all, err := List(dataDir)
	if err != nil {
		return Marker{}, err
	}
	var fit []Marker
	var there []string
	for _, in := range all {
		if in.Marker == nil || in.Problem != "" || in.Marker.Kind != kind {
			continue
		}
		there = append(there, in.Marker.Version)
		if version == "" || sameVersion(version, in.Marker.Version) {
			fit = append(fit, *in.Marker)
		}
	}
	if len(fit) == 0 {
		what := kind
		if version != "" {
			what += " " + version
		}
		if len(there) > 0 {
			return Marker{}, fmt.Errorf("%w: %s below %s (there is %s)", ErrNotInstalled, what, dataDir, strings.Join(there, ", "))
		}
		return Marker{}, fmt.Errorf("%w: %s below %s", ErrNotInstalled, what, dataDir)
	}
	wanted := CPU
	if gpu {
		wanted = GPU
	}
	return slices.MinFunc(fit, func(a, b Marker) int {
		if (a.Build == wanted) != (b.Build == wanted) {
			if a.Build == wanted {
				return -1
			}
			return 1
		}
		if newer(a.Version, b.Version) {
			return -1
		}
		if newer(b.Version, a.Version) {
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	}), nil
}

func sameVersion(a, b string) bool {
	ra, okA := parseVersion(a)
	rb, okB := parseVersion(b)
	return a == b || okA && okB && ra.compare(rb) == 0
}

// HasGPU reports whether a driver's devices are there: a quick look that loads nothing. root is / on a real machine.
func HasGPU(root string) bool {
	for _, p := range []string{"dev/nvidiactl", "proc/driver/nvidia/version", "dev/dxg"} {
		if _, err := os.Stat(filepath.Join(root, p)); err == nil {
			return true
		}
	}
	return false
}
