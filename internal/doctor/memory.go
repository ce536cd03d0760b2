package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"admitd/nvml"
	"admitd/supervisor"
)

// weightsIn adds up the weights in a model's folder, in bytes; ok is false when there are none.
func weightsIn(folder string) (bytes uint64, ok bool) {
	for _, pattern := range []string{"*.safetensors", "*.bin", "*.gguf"} {
		found, _ := filepath.Glob(filepath.Join(folder, pattern)) // the pattern is well-formed unless the folder's name has brackets
		for _, f := range found {
			if st, err := os.Stat(f); err == nil {
				bytes += uint64(st.Size())
			}
		}
		if bytes > 0 {
			return bytes, true // one format of several that hold the same
		}
	}
	return 0, false
}

// namePattern finds the number of parameters that most names of models tell: 7B, 0.5b, 135M, 8x7B.
var namePattern = regexp.MustCompile(`(?i)(?:^|[-_/.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,2})?)([bm])(?:[-_.]|$)`)

// sizeFromName guesses the size of the weights in bytes: two a parameter, half that or less where the name says so.
func sizeFromName(repo string) (bytes uint64, guessed bool) {
	m := namePattern.FindStringSubmatch(repo)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(m[2], 64)
	if err != nil {
		return 0, false
	}
	if strings.EqualFold(m[3], "b") {
		n *= 1e9
	} else {
		n *= 1e6
	}
	if experts, err := strconv.Atoi(m[1]); err == nil {
		n *= float64(experts)
	}
	per, name := 2.0, strings.ToLower(repo)
	switch {
	case strings.Contains(name, "awq"), strings.Contains(name, "gptq"), strings.Contains(name, "int4"), strings.Contains(name, "fp4"), strings.Contains(name, "4bit"):
		per = 0.6
	case strings.Contains(name, "fp8"), strings.Contains(name, "int8"), strings.Contains(name, "8bit"):
		per = 1.1
	}
	return uint64(n * per), true
}

// gpu looks at driver, devices and their memory.
func (x *exam) gpu(ctx context.Context) {
	switch {
	case x.cpu:
		x.add(OK, "GPU", "", "not needed: the engine is a CPU build")
		return
	case x.m.GPU == nil:
		x.add(OK, "GPU", "", "not looked at (gpu.disabled)")
		return
	}
	x.reading = x.m.GPU(ctx)
	if r := x.reading; r.State != nvml.OK || len(r.Devices) == 0 {
		x.noGPU(r)
		return
	}
	x.add(OK, "GPU", "", "%d devices, driver %s", len(x.reading.Devices), x.reading.Driver)
	x.gpuHealth()
	x.gpuMemory()
}

func (x *exam) noGPU(r *nvml.Reading) {
	_, err := os.Stat(filepath.Join(x.m.Root, "proc/driver/nvidia/version"))
	smi := x.m.Env("PATH") != ""
	if smi {
		_, lookErr := x.m.LookPath("nvidia-smi")
		smi = lookErr == nil
	}
	switch {
	case err == nil || smi:
		x.add(Fail, "GPU", "nvidia-smi; after an update of the driver: reboot", "the driver is there but does not answer: %s: %s", r.State, r.Why)
	case x.s.Kind == supervisor.VLLM:
		x.add(Fail, "GPU", "admitd engine install vllm --cpu (or install the NVIDIA driver)", "%s: %s; a GPU build of the engine does not start without one", r.State, r.Why)
	default:
		x.add(Fail, "GPU", "install the NVIDIA driver, or: admitd serve --engine sim", "%s: %s; the engine does not start without one", r.State, r.Why)
	}
}

func (x *exam) gpuHealth() {
	for _, d := range x.reading.Devices {
		name := fmt.Sprintf("GPU %d", d.Index)
		switch {
		case d.State != nvml.OK:
			x.add(Fail, name, "nvidia-smi -q -i "+strconv.Itoa(d.Index), "%s: %s: %s", d.Name, d.State, d.Why)
		case d.ECCUncorrected != nil && *d.ECCUncorrected > 0:
			x.add(Warn, name, "nvidia-smi -q -d ECC -i "+strconv.Itoa(d.Index), "%s: %d uncorrected memory errors since the driver was loaded", d.Name, *d.ECCUncorrected)
		}
	}
}

// gpuMemory holds the model against the memory that is free: its weights must fit, and room for the KV cache beside them.
func (x *exam) gpuMemory() {
	var free, total uint64
	var holders []string
	for _, d := range x.reading.Devices {
		if d.MemoryFreeBytes == nil || d.MemoryTotalBytes == nil {
			x.add(OK, "GPU memory", "", "GPU %d does not tell its memory", d.Index)
			return
		}
		free, total = free+*d.MemoryFreeBytes, total+*d.MemoryTotalBytes
		for _, p := range d.Processes {
			holders = append(holders, strconv.Itoa(p.PID))
		}
	}
	who, fix := "", ""
	if len(holders) > 0 {
		who, fix = " (held by pid "+strings.Join(holders, ", ")+")", "end what holds it: kill "+strings.Join(holders, " ")
	}
	need := x.weights + x.weights/5
	switch {
	case x.weights > 0 && need > total:
		x.add(Fail, "GPU memory", "a smaller or quantised model", "the model needs about %s%s, the GPUs have %s", size(need), x.byName(), size(total))
	case x.weights > 0 && need > free:
		x.add(Fail, "GPU memory", orElse(fix, "nvidia-smi shows what holds it"), "the model needs about %s%s, and %s of %s are free%s", size(need), x.byName(), size(free), size(total), who)
	case free < total/10*9:
		x.add(Warn, "GPU memory", orElse(fix, "nvidia-smi shows what holds it; or: -- --gpu-memory-utilization 0.5"), "%s of %s are free%s; engines take nine tenths", size(free), size(total), who)
	default:
		x.add(OK, "GPU memory", "", "%s of %s are free", size(free), size(total))
	}
}

func (x *exam) byName() string {
	if x.guessed {
		return " (by its name)"
	}
	return ""
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// memory holds the model against the host's memory and the limit of our control group: weights pass through it.
func (x *exam) memory() {
	available, known := x.meminfo("MemAvailable")
	what := "available"
	if limit, used, ok := x.cgroup(); ok && (!known || limit-min(used, limit) < available) {
		available, known, what = limit-min(used, limit), true, "left below the limit of this control group ("+size(limit)+")"
	}
	if !known {
		x.add(OK, "memory", "", "cannot be read")
		return
	}
	need := uint64(4 * gib) // an engine's own programs
	if x.cpu {
		need += x.weights + x.weights/5
	}
	fix := "free memory, or raise the limit (docker run --memory, systemctl set-property UNIT MemoryMax=)"
	if available < need {
		level := Warn
		if available < need/2 {
			level = Fail
		}
		x.add(level, "memory", fix, "the engine needs about %s, and %s are %s", size(need), size(available), what)
		return
	}
	x.add(OK, "memory", "", "%s %s", size(available), what)
}

func (x *exam) read(path string) string {
	b, err := os.ReadFile(filepath.Join(x.m.Root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// meminfo reads one line of /proc/meminfo, in bytes.
func (x *exam) meminfo(key string) (uint64, bool) {
	for line := range strings.Lines(x.read("proc/meminfo")) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == key+":" {
			n, err := strconv.ParseUint(f[1], 10, 50) // so that it stays a number in bytes
			if err != nil {
				return 0, false
			}
			return n << 10, true
		}
	}
	return 0, false
}

// cgroup reads the tightest memory limit of the groups that this process is in, version 2 first; ok is false without one.
func (x *exam) cgroup() (limit, used uint64, ok bool) {
	for line := range strings.Lines(x.read("proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		base, most, now := "sys/fs/cgroup", "memory.max", "memory.current"
		if parts[1] == "memory" {
			base, most, now = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		// In a container the path may be the host's, of which only the root is to be seen.
		for at := filepath.Clean(parts[2]); ; at = filepath.Dir(at) {
			l, err := strconv.ParseUint(x.read(filepath.Join(base, at, most)), 10, 64)
			if err == nil && l < 1<<60 && (!ok || l < limit) {
				limit, ok = l, true
				used, _ = strconv.ParseUint(x.read(filepath.Join(base, at, now)), 10, 64)
			}
			if at == "/" || at == "." {
				break
			}
		}
	}
	return limit, used, ok
}

// sharedMemory: an engine's processes talk through /dev/shm; a container gives 64 MiB unless told otherwise.
func (x *exam) sharedMemory() {
	_, total, err := x.m.Room(filepath.Join(x.m.Root, "dev/shm"))
	switch {
	case err != nil:
		x.add(Warn, "/dev/shm", "mount -t tmpfs -o size=8g tmpfs /dev/shm", "cannot be looked at: %v", err)
	case total < gib:
		x.add(Warn, "/dev/shm", "mount -o remount,size=8g /dev/shm (docker run --shm-size 8g)", "%s; engines of several processes want 1 GiB or more", size(total))
	default:
		x.add(OK, "/dev/shm", "", "%s", size(total))
	}
}
