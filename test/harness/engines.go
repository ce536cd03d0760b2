package harness

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Record is what admitd keeps of its engine in the state folder, as far as tests look at it.
type Record struct {
	Leader struct {
		PID int `json:"pid"`
	} `json:"leader"`
	Mark     string `json:"mark"`
	Ready    bool   `json:"ready"`
	Stopping bool   `json:"stopping"`
}

// ReadRecord reads the record; false when there is none.
func ReadRecord(state string) (r Record, ok bool) {
	b, err := os.ReadFile(filepath.Join(state, "engine.json"))
	return r, err == nil && json.Unmarshal(b, &r) == nil
}

// Engines are the living processes that carry a mark and whose parent does not: the leaders, and orphans.
func Engines(mark string) []int {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || mark == "" {
		return nil
	}
	marked, parent := map[int]bool{}, map[int]int{}
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name))
		env, err := os.ReadFile(filepath.Join(name, "environ"))
		if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), mark) {
			continue
		}
		if p, state := parentOf(pid); state != "Z" && state != "" {
			marked[pid], parent[pid] = true, p
		}
	}
	var out []int
	for pid := range marked {
		if !marked[parent[pid]] {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
}

// parentOf reads a process's parent and state, "" when it is gone.
func parentOf(pid int) (parent int, state string) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, ""
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	parent, _ = strconv.Atoi(f[1])
	return parent, f[0]
}

// EndEngines kills what a failed test leaves of the engines with a mark, and complains about it.
func EndEngines(t testing.TB, mark string) {
	t.Helper()
	for _, pid := range Engines(mark) {
		t.Errorf("engine %d outlives the test", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// Kill ends the program as a crash would, and waits until it is gone.
func (a *Admitd) Kill() {
	_ = a.cmd.Process.Kill()
	<-a.exited
}
