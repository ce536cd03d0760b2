package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A size guessed from a model's name is a possible one, and a quantised model is never larger than the whole one.
func FuzzSizeFromName(f *testing.F) {
	for _, s := range []string{"Qwen/Qwen2.5-0.5B-Instruct", "mistralai/Mixtral-8x7B-v0.1", "a/999x9999.99B", "a-70b-awq", "x_135M_fp8", "0b", "7B"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		bytes, guessed := sizeFromName(name)
		if !guessed && bytes != 0 || bytes > 999*9999.99*1e9*2 {
			t.Fatalf("%q is guessed at %d bytes", name, bytes)
		}
		if small, _ := sizeFromName(name + "-awq"); guessed && small > bytes {
			t.Fatalf("%q: %d bytes, quantised %d", name, bytes, small)
		}
	})
}

func TestMoreMemoryThanThereCanBeIsNotKnown(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o700); err != nil {
		t.Fatal(err)
	}
	x := &exam{m: Machine{Root: root}}
	for text, want := range map[string]uint64{"MemAvailable: 18014398509481985 kB\n": 0, "MemAvailable: 2 kB\n": 2048} {
		if err := os.WriteFile(filepath.Join(root, "proc", "meminfo"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, ok := x.meminfo("MemAvailable"); n != want || ok != (want > 0) {
			t.Errorf("%q: %d, %v", text, n, ok)
		}
	}
}

// What the kernel says about memory is taken as it is said, and a limit only where its group's file has one.
func FuzzMemory(f *testing.F) {
	f.Add("MemTotal: 99 kB\nMemAvailable:   67108864 kB\n", "0::/a/b\n", "max\n", "1000000\n")
	f.Add("MemAvailable: 18446744073709551615 kB", "5:memory:/docker/x\n0::/../..\n", "9223372036854771712", "x")
	f.Add("MemAvailable:", "0::relative\n1:memory", "-1", "")
	root := f.TempDir()
	for _, dir := range []string{"proc/self", "sys/fs/cgroup/a/b", "sys/fs/cgroup/memory"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			f.Fatal(err)
		}
	}
	x := &exam{m: Machine{Root: root}}
	f.Fuzz(func(t *testing.T, meminfo, groups, most, now string) {
		for name, text := range map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": groups, "sys/fs/cgroup/a/memory.max": most, "sys/fs/cgroup/a/memory.current": now} {
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if n, ok := x.meminfo("MemAvailable"); ok && (n%1024 != 0 || n > 1<<60) || !ok && n != 0 {
			t.Fatalf("%q: %d bytes, %v", meminfo, n, ok)
		}
		limit, used, ok := x.cgroup()
		if !ok && limit+used != 0 || limit >= 1<<60 || ok && !strings.Contains(groups, ":/a") {
			t.Fatalf("%q, limit %q: %d, %d used, %v", groups, most, limit, used, ok)
		}
	})
}
