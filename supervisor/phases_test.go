package supervisor

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"admitd/test/seeds"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files instead of comparing with them")

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got):\n%s", name, d)
	}
}

// replay gives a log to a tracker, with the times that its lines carry.
func replay(t *testing.T, k Kind, file string) *tracker {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	stamps := map[Kind]*regexp.Regexp{
		VLLM:   regexp.MustCompile(`(?:INFO|WARNING|ERROR) (\d\d-\d\d \d\d:\d\d:\d\d)`),
		SGLang: regexp.MustCompile(`^\[2026-(\d\d-\d\d \d\d:\d\d:\d\d)`),
	}
	var tr *tracker
	now, err := time.Parse("2006-01-02", "0000-01-01")
	if err != nil {
		t.Fatal(err)
	}
	if m := stamps[k].FindSubmatch(b); m != nil {
		if now, err = time.Parse("01-02 15:04:05", string(m[1])); err != nil {
			t.Fatal(err)
		}
	}
	s := splitter{clean: cleaner(nil)}
	s.feed(time.Time{}, b, func(text string, bar bool) {
		if m := stamps[k].FindStringSubmatch(text); m != nil {
			if now, err = time.Parse("01-02 15:04:05", m[1]); err != nil {
				t.Fatal(err)
			}
		}
		if tr == nil {
			tr = newTracker(k, now)
		}
		tr.line(now, text)
	})
	tr.finish(now)
	return tr
}

func timeline(tr *tracker) string {
	var b strings.Builder
	for _, p := range tr.phases {
		fmt.Fprintf(&b, "%-12s %s\n", p.Name, p.Began.Format("15:04:05"))
	}
	fmt.Fprintf(&b, "capacity %d tokens, slots %d, version %q\n", tr.capacity, tr.slots, tr.version)
	return b.String()
}

func TestPhasesOfARealVLLMStart(t *testing.T) {
	golden(t, "vllm-0.32-start.golden", timeline(replay(t, VLLM, "vllm-0.32-start.txt")))
}

func TestPhasesOfAnSGLangStart(t *testing.T) {
	golden(t, "sglang-start.golden", timeline(replay(t, SGLang, "sglang-start.txt")))
}

func TestPhasesOfAGPUStart(t *testing.T) {
	// The lines of a start with compilation and graph capture, which the CPU build does not print.
	tr := newTracker(VLLM, time.Unix(0, 0))
	for i, l := range []string{
		"(APIServer pid=1) INFO [utils.py:1] vLLM server version 0.11.2",
		"(EngineCore_DP0 pid=2) INFO Initializing a V1 LLM engine (v0.11.2) with config: model='m'",
		"(Worker_TP0 pid=3) INFO Starting to load model m...",
		"(Worker_TP0 pid=3) INFO Dynamo bytecode transform time: 3.54 s",
		"(Worker_TP0 pid=3) INFO Loading weights took 24.84 seconds",
		"(EngineCore_DP0 pid=2) INFO GPU KV cache size: 1,234,560 tokens",
		"(EngineCore_DP1 pid=4) INFO GPU KV cache size: 1,000,000 tokens",
		"(EngineCore_DP1 pid=4) INFO GPU KV cache size: 1,000,040 tokens",
		"Capturing CUDA graphs (decode, FULL):  51%|#####     | 18/35",
		"(Worker_TP0 pid=3) INFO Graph capturing finished in 6 secs, took 0.5 GiB",
		"INFO:     Application startup complete.",
	} {
		tr.line(time.Unix(int64(i+1), 0), l)
	}
	var got []string
	for _, p := range tr.phases {
		got = append(got, p.Name)
	}
	want := []string{"launched", "engine_init", "weights", "compile", "kv_cache", "graphs", "warmup", "probe"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("phases differ (-want +got):\n%s", d)
	}
	if tr.capacity != 2234600 {
		t.Errorf("capacity %d; want the sum of the latest line of each engine core, 2234600", tr.capacity)
	}
	if tr.version != "0.11.2" {
		t.Errorf("version %q; want 0.11.2", tr.version)
	}
	for i, p := range tr.phases[:len(tr.phases)-1] {
		if p.Took != tr.phases[i+1].Began.Sub(p.Began) {
			t.Errorf("phase %s took %s; want the time until the next one began", p.Name, p.Took)
		}
	}
}

func TestFailureSignaturesOfRealLogs(t *testing.T) {
	tests := []struct {
		file      string
		cause     string
		permanent bool
	}{
		{"fail-usage.txt", "the engine does not know an argument", true},
		{"fail-badvalue.txt", "the engine refused the value of an argument", true},
		{"fail-nomodel.txt", "the model's folder does not exist", true},
		{"fail-hubmodel.txt", "the model is not in the local cache and the engine is offline", true},
		{"fail-toolong.txt", "the context length is larger than the model's", true},
		{"fail-kvsmall.txt", "one request of the full context does not fit into the KV cache", true},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			tr := replay(t, VLLM, tt.file)
			if tr.cause == nil {
				t.Fatal("no failure was recognised")
			}
			if tr.cause.cause != tt.cause || tr.cause.permanent != tt.permanent {
				t.Errorf("cause %q, permanent %v; want %q, %v", tr.cause.cause, tr.cause.permanent, tt.cause, tt.permanent)
			}
		})
	}
	if tr := replay(t, VLLM, "vllm-0.32-start.txt"); tr.cause != nil && tr.cause.permanent {
		t.Errorf("a good start was taken for a lasting failure: %s", tr.cause.cause)
	}
}

func TestFailureSignatures(t *testing.T) {
	tests := []struct {
		kind      Kind
		line      string
		cause     string
		permanent bool
	}{
		{VLLM, "ValueError: Free memory on device cuda:0 (3.1/79.1 GiB) on startup is less than desired GPU memory utilization (0.92, 72.8 GiB).", "another process holds the GPU's memory", false},
		{VLLM, "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "the model leaves no memory for the KV cache", true},
		{VLLM, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "the GPU ran out of memory", false},
		{VLLM, "RuntimeError: Failed to infer device type", "the engine found no device it can use", true},
		{VLLM, "OSError: [Errno 98] Address already in use", "the engine's port is taken", false},
		{VLLM, "OSError: You are trying to access a gated repo.", "the model needs a licence agreement", true},
		{VLLM, "admitd: unknown flag -nope", "the simulator does not know an argument", true},
		{SGLang, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. self.server_args.mem_fraction_static=0.7", "the model leaves no memory for the KV cache", true},
		{SGLang, "[2026-07-01 15:19:55 TP0] Scheduler hit an exception: Traceback (most recent call last):", "SGLang's scheduler died", false},
		{SGLang, "/usr/bin/python3: Error while finding module specification for 'sglang.launch_server' (ModuleNotFoundError: No module named 'sglang')", "SGLang is not installed for this Python", true},
	}
	for _, tt := range tests {
		tr := newTracker(tt.kind, time.Unix(0, 0))
		tr.line(time.Unix(1, 0), tt.line)
		if tr.cause == nil || tr.cause.cause != tt.cause || tr.cause.permanent != tt.permanent {
			t.Errorf("%s: got %+v; want %q, permanent %v", tt.line, tr.cause, tt.cause, tt.permanent)
		}
	}
}

func TestEverySignatureHelps(t *testing.T) {
	for _, k := range []Kind{VLLM, SGLang} {
		for _, s := range signatures(k) {
			if s.cause == "" || s.hint == "" || len(s.all) == 0 {
				t.Errorf("%s: signature %+v lacks words, a cause or a hint", k, s)
			}
		}
	}
}

func TestTheLastingCauseWins(t *testing.T) {
	tr := newTracker(VLLM, time.Unix(0, 0))
	for _, l := range []string{"Worker proc VllmWorker-0 died unexpectedly", "No available memory for the cache blocks", "CUDA out of memory"} {
		tr.line(time.Unix(1, 0), l)
	}
	if tr.cause == nil || !tr.cause.permanent {
		t.Errorf("cause %+v; want the one that retrying cannot mend", tr.cause)
	}
}

func FuzzTrackerLine(f *testing.F) {
	for _, b := range seeds.Files(f, "testdata/*.txt") {
		for l := range strings.Lines(string(b)) {
			f.Add(strings.TrimSpace(l))
		}
	}
	f.Add("GPU KV cache size: 99,999,999,999,999,999,999 tokens")
	f.Fuzz(func(t *testing.T, line string) {
		for _, k := range []Kind{VLLM, SGLang} {
			tr := newTracker(k, time.Unix(0, 0))
			tr.line(time.Unix(1, 0), line)
			tr.line(time.Unix(2, 0), line)
			if tr.capacity < 0 || tr.slots < 0 {
				t.Fatalf("%s: capacity %d, slots %d", k, tr.capacity, tr.slots)
			}
			for i := 1; i < len(tr.phases); i++ {
				if tr.rank[tr.phases[i].Name] <= tr.rank[tr.phases[i-1].Name] {
					t.Fatalf("%s: phase %s after %s", k, tr.phases[i].Name, tr.phases[i-1].Name)
				}
			}
		}
	})
}
