package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"admitd/internal/config"
	"admitd/nvml"
	"admitd/supervisor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is a healthy machine with one GPU, a vLLM and a model, which each test breaks in one place.
type bed struct {
	t   *testing.T
	dir string
	m   Machine
	s   Subject
	env map[string]string
	// programs are on PATH; says is what the engine's Python answers, fails makes every program fail.
	programs map[string]bool
	says     string
	fails    bool
	free     uint64
	shm      uint64
	gpu      *nvml.Reading
	busy     error
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dir := t.TempDir()
	b := &bed{t: t, dir: dir, env: map[string]string{"TMPDIR": "/tmp", "PATH": "/bin"},
		programs: map[string]bool{"cc": true, "python3": true}, says: "0.32.0\n", free: 100 * gib, shm: 8 * gib, gpu: gpuWith(80*gib, 79*gib)}
	b.file("model/config.json", "{}")
	b.file("model/model.safetensors", "weights")
	b.file("bin/vllm", "#!"+dir+"/bin/python3\nimport vllm\n")
	b.file("root/proc/meminfo", "MemTotal: 99999999 kB\nMemAvailable: 67108864 kB\n")
	b.s = Subject{Config: config.Default(), StateDir: filepath.Join(dir, "state"), DataDir: filepath.Join(dir, "data"),
		Kind: supervisor.VLLM, Binary: filepath.Join(dir, "bin", "vllm"), Repo: filepath.Join(dir, "model")}
	b.s.Config.Journal.Dir = ""
	b.m = Machine{
		Root: filepath.Join(dir, "root"), Home: dir, Env: func(k string) string { return b.env[k] },
		LookPath: func(n string) (string, error) {
			if b.programs[n] {
				return "/bin/" + n, nil
			}
			return "", os.ErrNotExist
		},
		Output: func(context.Context, string, ...string) (string, error) {
			if b.fails {
				return "", errors.New("exit status 1")
			}
			return b.says, nil
		},
		GPU:     func(context.Context) *nvml.Reading { return b.gpu },
		Listen:  func(context.Context, string, string) error { return b.busy },
		Holder:  func(int) string { return "" },
		Serving: func(string) int { return 0 }, EngineMark: func(dir string) string { return "mark of " + dir },
		Room: func(p string) (uint64, uint64, error) {
			if strings.HasSuffix(p, "dev/shm") {
				return b.shm, b.shm, nil
			}
			return b.free, b.free, nil
		},
		OpenFiles: func() (uint64, error) { return 65536, nil },
		Now:       func() time.Time { return time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC) }, Synchronised: func() (bool, error) { return true, nil },
	}
	return b
}

func (b *bed) file(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func gpuWith(total, free uint64) *nvml.Reading {
	return &nvml.Reading{State: nvml.OK, Driver: "580.1", Devices: []nvml.Device{{Name: "H", State: nvml.OK, MemoryTotalBytes: &total, MemoryFreeBytes: &free}}}
}

func TestHealthyMachineHasNothingToMend(t *testing.T) {
	b := newBed(t)
	found, err := Examine(t.Context(), b.m, b.s)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Level != OK || f.Fix != "" {
			t.Errorf("%+v", f)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir, "*", ".doctor-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := os.Stat(b.s.StateDir); err == nil {
		t.Error("doctor has made the state folder")
	}
}

// trouble is one thing that can be wrong.
type trouble struct {
	name   string
	make   func(b *bed)
	at     string
	level  Level
	text   string // part of what is said
	remedy string // part of what mends it
}

func TestEachTroubleIsNamedWithItsRemedy(t *testing.T) {
	for _, list := range [][]trouble{engineTroubles(), memoryTroubles(), machineTroubles()} {
		for _, c := range list {
			t.Run(c.name, func(t *testing.T) {
				b := newBed(t)
				c.make(b)
				found, err := Examine(t.Context(), b.m, b.s)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range found {
					if f.Name == c.at && f.Level == c.level && strings.Contains(f.Text, c.text) && strings.Contains(f.Fix, c.remedy) && (f.Level == OK || f.Fix != "") {
						return
					}
				}
				t.Errorf("not among\n%s", list2text(found))
			})
		}
	}
}

func list2text(found []Finding) string {
	var s strings.Builder
	for _, f := range found {
		fmt.Fprintf(&s, "%+v\n", f)
	}
	return s.String()
}

func noEngine(b *bed) {
	b.s.Kind, b.s.Binary, b.s.FindErr = "", "", errors.New("no inference engine found.\n  Install one")
}

func engineTroubles() []trouble {
	hub := func(b *bed) { b.s.Repo = "org/Thing-7B-Instruct" }
	return []trouble{
		{"no engine", noEngine, "engine", Fail, "no inference engine found.", "admitd engine install vllm"},
		{"the pinned version is missing", func(b *bed) { noEngine(b); b.s.Config.Engine.Kind, b.s.Config.Engine.Version = "sglang", "0.5.9" }, "engine", Fail, "", "admitd engine install sglang --version 0.5.9"},
		{"no Python to install with", func(b *bed) { noEngine(b); b.programs["python3"] = false }, "python", Fail, "there is no python3", "apt-get install python3 python3-venv"},
		{"no ensurepip", func(b *bed) { noEngine(b); b.fails = true }, "python", Fail, "lacks venv or ensurepip", "apt-get install python3-venv"},
		{"no ensurepip but uv", func(b *bed) { noEngine(b); b.fails, b.programs["uv"] = true, true }, "python", OK, "with uv", ""},
		{"too old a version", func(b *bed) { b.says = "0.9.2\n" }, "engine", Fail, "too old; admitd needs 0.18.0", "admitd engine install vllm"},
		{"too new a version", func(b *bed) { b.says = "2.0\n" }, "engine", Fail, "newer than what admitd knows", "admitd engine install vllm"},
		{"untested version", func(b *bed) { b.says = "0.31.0\n" }, "engine", OK, "in the supported range; admitd is tested with 0.32.0", ""},
		{"broken engine", func(b *bed) { b.fails = true }, "engine", Warn, "does not say its version", "admitd engine install vllm"},
		{"no compiler", func(b *bed) { b.programs["cc"] = false }, "compiler", Warn, "no C compiler", "apt-get install build-essential"},
		{"no model named", func(b *bed) { b.s.Repo = "" }, "model", Warn, "no model is named", "--model NAME"},
		{"model folder missing", func(b *bed) { b.s.Repo = "/no/such/model" }, "model", Fail, "config.json is not there", "--model FOLDER"},
		{"model without weights", func(b *bed) { _ = os.Remove(filepath.Join(b.s.Repo, "model.safetensors")) }, "model", Fail, "has no weights", "fetch the model again"},
		{"model to be fetched", hub, "model", OK, "about 13.0 GiB by its name", ""},
		{"no room for the model", func(b *bed) { hub(b); b.free = 5 * gib }, "model", Fail, "about 13.0 GiB, and 5.0 GiB are free", "HF_HOME="},
		{"offline without the model", func(b *bed) { hub(b); b.env["HF_HUB_OFFLINE"] = "1" }, "model", Fail, "HF_HUB_OFFLINE forbids", "--model FOLDER"},
		{"model in the cache", func(b *bed) {
			hub(b)
			b.env["HF_HUB_OFFLINE"], b.env["HF_HOME"] = "1", filepath.Join(b.dir, "hf")
			b.file("hf/hub/models--org--Thing-7B-Instruct/snapshots/abc/model.safetensors", "w")
		}, "model", OK, "is in ", ""},
	}
}

func memoryTroubles() []trouble {
	none := func(b *bed) { b.gpu = &nvml.Reading{State: nvml.Unavailable, Why: "no library"} }
	big := func(b *bed) { b.s.Repo = "org/Thing-7B" }
	return []trouble{
		{"no GPU", none, "GPU", Fail, "no library; a GPU build of the engine does not start", "admitd engine install vllm --cpu"},
		{"no GPU for SGLang", func(b *bed) { none(b); b.s.Kind = supervisor.SGLang }, "GPU", Fail, "does not start without one", "--engine sim"},
		{"no GPU needed", func(b *bed) { none(b); b.says = "0.32.0+cpu\n" }, "GPU", OK, "not needed", ""},
		{"driver and library differ", func(b *bed) { none(b); b.file("root/proc/driver/nvidia/version", "x") }, "GPU", Fail, "the driver is there but does not answer", "reboot"},
		{"GPU not to be read", func(b *bed) { b.m.GPU = nil }, "GPU", OK, "gpu.disabled", ""},
		{"a sick GPU", func(b *bed) { b.gpu.Devices[0].State, b.gpu.Devices[0].Why = nvml.Lost, "fell off the bus" }, "GPU 0", Fail, "fell off the bus", "nvidia-smi -q -i 0"},
		{"bad memory", func(b *bed) { n := uint64(3); b.gpu.Devices[0].ECCUncorrected = &n }, "GPU 0", Warn, "3 uncorrected", "nvidia-smi -q -d ECC"},
		{"model larger than the GPU", func(b *bed) { big(b); b.gpu = gpuWith(8*gib, 8*gib) }, "GPU memory", Fail, "the model needs about 15.6 GiB (by its name), the GPUs have 8.0 GiB", "smaller or quantised"},
		{"somebody holds the GPU's memory", func(b *bed) {
			big(b)
			b.gpu = gpuWith(80*gib, 4*gib)
			b.gpu.Devices[0].Processes = []nvml.Process{{PID: 4711}}
		}, "GPU memory", Fail, "(held by pid 4711)", "kill 4711"},
		{"a little of it is held", func(b *bed) { b.gpu = gpuWith(80*gib, 60*gib) }, "GPU memory", Warn, "60.0 GiB of 80.0 GiB are free", "nvidia-smi"},
		{"memory not told", func(b *bed) { b.gpu.Devices[0].MemoryFreeBytes = nil }, "GPU memory", OK, "does not tell", ""},
		{"host memory short", func(b *bed) { b.file("root/proc/meminfo", "MemAvailable: 3145728 kB\n") }, "memory", Warn, "needs about 4.0 GiB, and 3.0 GiB are available", "free memory"},
		{"CPU engine and host memory", func(b *bed) {
			big(b)
			b.says = "0.32.0+cpu\n"
			b.file("root/proc/meminfo", "MemAvailable: 3145728 kB\n")
		}, "memory", Fail, "needs about 19.6 GiB", "free memory"},
		{"limit of the container", func(b *bed) {
			b.file("root/proc/self/cgroup", "0::/a/b\n")
			b.file("root/sys/fs/cgroup/a/memory.max", "3221225472\n")
			b.file("root/sys/fs/cgroup/a/memory.current", "1073741824\n")
			b.file("root/sys/fs/cgroup/a/b/memory.max", "max\n")
		}, "memory", Warn, "2.0 GiB are left below the limit of this control group (3.0 GiB)", "docker run --memory"},
		{"version 1 of control groups", func(b *bed) {
			b.file("root/proc/self/cgroup", "4:memory:/\n0::/\n")
			b.file("root/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n")
			b.file("root/sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n")
		}, "memory", Fail, "1.0 GiB are left below", "MemoryMax"},
		{"little shared memory", func(b *bed) { b.shm = 64 << 20 }, "/dev/shm", Warn, "64 MiB", "--shm-size 8g"},
	}
}

func machineTroubles() []trouble {
	held := func(b *bed) { b.busy = fmt.Errorf("listen tcp: bind: %w", syscall.EADDRINUSE) }
	return []trouble{
		{"port held", func(b *bed) { held(b); b.m.Holder = func(int) string { return "pid 12 (nginx)" } }, "listen", Fail, "in use by pid 12 (nginx)", "end pid 12 (nginx)"},
		{"port held by another user", held, "admin.listen", Fail, "cannot look into", "sport = :8081"},
		{"engine port held", func(b *bed) { held(b); b.s.Config.Engine.Port = 8000 }, "engine.port", Fail, "127.0.0.1:8000", "sport = :8000"},
		{"port held by the admitd that serves", func(b *bed) {
			held(b)
			b.m.Holder, b.m.Serving = func(int) string { return "pid 99 (admitd)" }, func(string) int { return 99 }
		}, "listen", OK, "held by the admitd that serves with this state folder (pid 99)", ""},
		{"low port", func(b *bed) { b.busy = fmt.Errorf("listen: %w", syscall.EACCES) }, "listen", Fail, "may not listen on that port", "setcap"},
		{"not an address of ours", func(b *bed) { b.busy = errors.New("cannot assign requested address") }, "listen", Fail, "cannot assign", "ip address"},
		{"socket in a folder that is none", func(b *bed) { b.s.Config.Listen = "unix:" + b.s.Binary + "/gate.sock" }, "listen", Fail, "is not a folder", "folder that this user can write"},
		{"socket", func(b *bed) { b.s.Config.Listen = "unix:" + b.dir + "/gate.sock" }, "listen", OK, "can be made", ""},
		{"state folder is a file", func(b *bed) { b.s.StateDir = b.s.Binary }, "state folder", Fail, "is not a folder", "--state-dir"},
		{"state folder open to others", func(b *bed) { b.file("state/x", ""); _ = os.Chmod(b.s.StateDir, 0o755) }, "state folder", Warn, "can be read by others (0755)", "chmod 700 "},
		{"state folder where none can be", func(b *bed) { b.s.StateDir = "/proc/x" }, "state folder", Fail, "nothing can be made in /proc", "name another folder with --state-dir"},
		{"disk full", func(b *bed) { b.file("state/x", ""); b.free = 1 << 20 }, "state folder", Fail, "1 MiB are free", "df -h"},
		{"data folder below a file", func(b *bed) { b.s.DataDir = b.s.Binary + "/data" }, "data folder", Fail, "", "--data-dir"},
		{"journal folder is a file", func(b *bed) { b.s.Config.Journal.Dir = b.s.Binary }, "journal folder", Fail, "is not a folder", "--journal-dir"},
		{"long TMPDIR", func(b *bed) {
			long := strings.Repeat("x", 80)
			b.file(long+"/x", "")
			b.env["TMPDIR"] = filepath.Join(b.dir, long)
		}, "run folder", Fail, "too long a path", "TMPDIR=/tmp"},
		{"few files", func(b *bed) { b.m.OpenFiles = func() (uint64, error) { return 1024, nil } }, "open files", Warn, "about 412 streams", "LimitNOFILE=65536"},
		{"very few files", func(b *bed) { b.m.OpenFiles = func() (uint64, error) { return 100, nil } }, "open files", Fail, "about 0 streams", "ulimit -Hn"},
		{"clock at its birth", func(b *bed) { b.m.Now = func() time.Time { return time.Unix(0, 0) } }, "clock", Fail, "1970-01-01", "timedatectl set-ntp true"},
		{"clock by itself", func(b *bed) { b.m.Synchronised = func() (bool, error) { return false, nil } }, "clock", Warn, "synchronised", "timedatectl"},
		{"another admitd", func(b *bed) { b.m.Serving = func(string) int { return 99 } }, "other admitd", Warn, "pid 99", "admitd status"},
		{"leftover engine", func(b *bed) {
			b.file("root/proc/77/cmdline", "/v/bin/python\x00/v/bin/vllm\x00serve\x00m")
			b.file("root/proc/77/environ", "A=b\x00"+supervisor.MarkName+"=x")
			b.file("root/proc/77/comm", "vllm\n")
		}, "leftover engine", Warn, "pid 77 (vllm)", "kill PID"},
		{"leftover engine core with a title", func(b *bed) {
			b.file("root/proc/77/environ", supervisor.MarkName+"=x")
			b.file("root/proc/78/cmdline", "VLLM::EngineCore")
			b.file("root/proc/78/stat", "78 (VLLM: (x) y) S 1 77 77 0")
		}, "leftover engine", Warn, "pid 78", "kill PID"},
		{"leftover engine beside the admitd that serves", func(b *bed) {
			b.m.Serving = func(string) int { return 99 }
			b.file("root/proc/77/cmdline", "/v/bin/python\x00/v/bin/vllm\x00serve\x00m")
			b.file("root/proc/77/environ", supervisor.MarkName+"=of one that is gone")
		}, "leftover engine", Warn, "pid 77", "kill PID"},
		{"engine of an admitd with another state folder", anothers, "other engine", Warn,
			"the engine of the admitd (pid 12) that serves with /s/other: pid 77 (vllm)", "stop that one: kill 12"},
		{"somebody else's engine", func(b *bed) { b.file("root/proc/79/cmdline", "python\x00-m\x00sglang.launch_server") }, "other engine", Warn, "pid 79", "--engine external"},
	}
}

// anothers is an engine that serves, under an admitd that runs from another state folder.
func anothers(b *bed) {
	b.file("root/proc/77/cmdline", "/v/bin/python\x00/v/bin/vllm\x00serve\x00m")
	b.file("root/proc/77/environ", "A=b\x00"+supervisor.MarkName+"=mark of /s/other\x00")
	b.file("root/proc/77/comm", "vllm\n")
	b.file("root/proc/12/fd/x", "")
	if err := os.Symlink("/s/other/"+supervisor.LockName, filepath.Join(b.dir, "root/proc/12/fd/7")); err != nil {
		b.t.Fatal(err)
	}
}

func TestAnEngineThatServesIsNobodysLeftover(t *testing.T) {
	b := newBed(t)
	anothers(b)
	found, err := Examine(t.Context(), b.m, b.s)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Name == "leftover engine" && f.Level != OK || strings.Contains(f.Fix, "kill PID") || strings.Contains(f.Fix, "kill 77") {
			t.Errorf("%+v", f)
		}
	}
}

// A remedy that fails when it is tried is worse than none.
func TestNoFolderIsToBeMadeWhereAFileIs(t *testing.T) {
	for _, at := range []string{"", "/below/it"} {
		b := newBed(t)
		b.s.StateDir = b.s.Binary + at
		found, err := Examine(t.Context(), b.m, b.s)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.Name == "state folder" && (strings.Contains(f.Fix, "mkdir") || !strings.Contains(f.Fix, "--state-dir")) {
				t.Errorf("%+v", f)
			}
		}
	}
}

func TestSizeFromName(t *testing.T) {
	for name, want := range map[string]uint64{
		"Qwen/Qwen2.5-0.5B-Instruct": 1e9, "HuggingFaceTB/SmolLM2-135M-Instruct": 270e6, "meta-llama/Llama-3.1-8B": 16e9,
		"org/Thing-70B-AWQ": 42e9, "org/Thing-7b-fp8": 77e8, "org/Mixtral-8x7B": 112e9, "gpt2": 0, "org/b52": 0,
	} {
		if got, _ := sizeFromName(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// On this machine everything can be looked at, and nothing is left.
func TestLocalMachine(t *testing.T) {
	s := Subject{Config: config.Default(), StateDir: t.TempDir(), DataDir: t.TempDir(), Kind: supervisor.Sim}
	s.Config.Listen, s.Config.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0"
	found, err := Examine(t.Context(), Local(false), s)
	if err != nil || len(found) < 6 {
		t.Errorf("%v %v", found, err)
	}
	for _, f := range found {
		if f.Level == Fail {
			t.Errorf("%+v", f)
		}
	}
}
