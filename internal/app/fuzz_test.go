package app

import (
	"fmt"
	"strings"
	"testing"
)

// Whatever the operator gives the engine as arguments: counts and shares are possible ones, and the last word counts in
// every spelling.
func FuzzEngineArguments(f *testing.F) {
	f.Add("-tp 2 --gpu_memory_utilization=0.8 --max-num-queued-reqs 5", 8, 3)
	f.Add("--max-queued-requests 9223372036854775807 --tp 9999999999 --pp-size 9999999999", 1<<40, 1)
	f.Add("--max_num_queued_reqs", -1, 0)
	f.Fuzz(func(t *testing.T, text string, slots, n int) {
		args := strings.Fields(text)
		if got := queueLimit(args, slots); got.AtEngine < 0 || got.Waiting < 0 {
			t.Fatalf("%q with %d slots: a limit of %d", args, slots, got)
		}
		share, _ := argOf(args, "--gpu-memory-utilization")
		if v := fraction(share); !(v >= 0 && v <= 1) {
			t.Fatalf("%q: a share of %v", args, v)
		}
		if gpus := countOf(args, "-tp") * countOf(args, "-pp") * countOf(args, "-dp"); gpus < 1 {
			t.Fatalf("%q: %d GPUs", args, gpus)
		}
		n = n & 0xffff
		for _, last := range []string{"--max-num-queued-reqs %d", "--max_num_queued_reqs=%d", "--max-num-queued-reqs=%d"} {
			all := append(append([]string{}, args...), strings.Fields(fmt.Sprintf(last, n))...)
			if got := argument(all, "--max-num-queued-reqs"); got != n {
				t.Fatalf("%q: the last word is %d", all, got)
			}
		}
	})
}
