package install

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"admitd/supervisor"
)

// put makes an engine's folder with its marker.
func put(t *testing.T, dataDir string, m Marker) string {
	t.Helper()
	m.Format, m.Kind, m.Binary = 1, "vllm", "bin/vllm"
	if m.Name == "" {
		m.Name = folderName(m.Kind, m.Build, m.Version)
	}
	folder := filepath.Join(enginesDir(dataDir), m.Name)
	if err := os.MkdirAll(filepath.Join(folder, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if m.Folder == "" {
		m.Folder = folder
	}
	write(t, filepath.Join(folder, "bin", "vllm"), "#!/bin/sh\nread forever\n", 0o700)
	if err := supervisor.WriteJSON(filepath.Join(folder, markerFile), m); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestFindTakesTheNewestThatFits(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, Marker{Version: "0.9.0", Build: GPU})
	put(t, dir, Marker{Version: "0.32.0", Build: GPU})
	put(t, dir, Marker{Version: "0.32.0", Build: CPU})
	put(t, dir, Marker{Version: "0.33.0rc1", Build: CPU})
	put(t, dir, Marker{Version: "0.40.0", Build: GPU, Folder: "/somewhere/else"}) // moved
	broken := put(t, dir, Marker{Version: "0.41.0", Build: GPU})
	write(t, filepath.Join(broken, markerFile), `{"format":1,"kind":"vllm","binary":"../../../bin/sh"}`, 0o600)
	gone := put(t, dir, Marker{Version: "0.42.0", Build: GPU})
	if err := os.Remove(filepath.Join(gone, "bin", "vllm")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		version string
		gpu     bool
		want    string
	}{
		{"", true, "vllm-0.32.0"}, {"", false, "vllm-0.33.0rc1-cpu"}, {"0.9", true, "vllm-0.9.0"}, {"0.9", false, "vllm-0.9.0"},
		{"0.32.0", false, "vllm-0.32.0-cpu"}, {"0.40.0", true, ""}, {"0.41.0", true, ""}, {"0.42.0", true, ""},
	} {
		m, err := Find(dir, "vllm", c.version, c.gpu)
		if m.Name != c.want || (c.want == "") != errors.Is(err, ErrNotInstalled) {
			t.Errorf("version %q, GPU %v: %q %v, want %q", c.version, c.gpu, m.Name, err, c.want)
		}
	}
	if _, err := Find(dir, "sglang", "", true); !errors.Is(err, ErrNotInstalled) {
		t.Error(err)
	}
}

func TestVersionsAreOrdered(t *testing.T) {
	order := []string{"nonsense", "0.9", "0.9.2", "0.10.0rc1", "0.10.0rc2", "0.10.0", "0.10.0.post1", "0.10.1", "1"}
	for i := range order {
		for j := range order {
			if got := newer(order[i], order[j]); got != (i > j) {
				t.Errorf("newer(%s, %s) = %v", order[i], order[j], got)
			}
		}
	}
}

func TestRemoveRefusesWhatIsInUse(t *testing.T) {
	dir := t.TempDir()
	folder := put(t, dir, Marker{Version: "0.32.0", Build: CPU})
	release, err := Hold(filepath.Join(folder, "bin", "vllm"))
	if err != nil {
		t.Fatal(err)
	}
	var used *InUseError
	if err := Remove(dir, "vllm-0.32.0-cpu", "/proc"); !errors.As(err, &used) {
		t.Errorf("removed under a serve: %v", err)
	}
	release()

	// An engine that nobody holds, but that runs.
	cmd := exec.Command(filepath.Join(folder, "bin", "vllm"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir, "vllm-0.32.0-cpu", "/proc"); !errors.As(err, &used) || len(used.Users) != 1 || used.Users[0].PID != cmd.Process.Pid {
		t.Errorf("removed under an engine: %v", err)
	}
	_ = in.Close()
	_ = cmd.Wait() // it ends with an error: there was no line to read

	if err := Remove(dir, "vllm-0.32.0-cpu", "/proc"); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(enginesDir(dir))
	if err != nil || len(left) != 1 || left[0].Name() != lockFile {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestRemoveTakesNamesOnly(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, Marker{Version: "1", Build: GPU})
	for _, name := range []string{"", "..", "../engines", ".lock", "vllm-1/bin", "nothing"} {
		if err := Remove(dir, name, "/proc"); !errors.Is(err, ErrNotInstalled) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestCutRemovalIsFinished(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, Marker{Version: "1", Build: GPU})
	put(t, dir, Marker{Name: ".removing-x", Version: "2", Build: GPU})
	if all, err := List(dir); err != nil || len(all) != 1 {
		t.Errorf("half-removed engines are listed: %+v %v", all, err)
	}
	if err := Remove(dir, "vllm-1", "/proc"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(enginesDir(dir), ".removing-x")); err == nil {
		t.Error("it is still there")
	}
}

func TestDataDir(t *testing.T) {
	t.Setenv("HOME", "/h")
	for _, c := range []struct{ configured, xdg, want string }{
		{"/d", "/x", "/d"}, {"", "/x", "/x/admitd"}, {"", "", "/h/.local/share/admitd"}, {"", "relative", "/h/.local/share/admitd"},
	} {
		t.Setenv("XDG_DATA_HOME", c.xdg)
		if got, err := DataDir(c.configured); got != c.want || err != nil {
			t.Errorf("%+v: %q %v", c, got, err)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add("Version: 1\nRequires-Dist: torch==2.13.0+cpu; x == \"y\"\n\nbody")
	f.Fuzz(func(t *testing.T, text string) {
		_, needs := parseMetadata(strings.NewReader(text))
		for _, n := range needs {
			if strings.Contains(n, "\n") || localPin.MatchString(n) {
				t.Errorf("%q", n)
			}
		}
	})
}

func FuzzVersion(f *testing.F) {
	for _, s := range []string{"0.32.0+cpu", "1.0rc1", "v2", "1.0.post3.dev1"} {
		f.Add(s, "1")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if newer(a, b) && newer(b, a) {
			t.Errorf("%q and %q are newer than each other", a, b)
		}
	})
}
