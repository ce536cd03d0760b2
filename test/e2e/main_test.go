// Package e2e runs the built admitd with its simulated engine, as a user would.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"admitd/test/harness"
)

// model is the name callers use in these tests.
const model = "Qwen2.5-0.5B"

// readyWithin is generous for a busy machine: the simulated engine needs well under a second.
const readyWithin = 3 * time.Minute

// endless is the median length of an answer that is cut to the length asked for: none ends by itself before.
const endless = "1073741824"

var binary string

func TestMain(m *testing.M) {
	path, remove, err := harness.Build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = path
	// They wait far more than they work.
	flag.Parse()
	if err := flag.Set("test.parallel", "10"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	remove()
	os.Exit(code)
}

// start runs admitd with the simulated engine and a policy text, "" for the built-in default.
func start(t *testing.T, policy string, engineArgs ...string) *harness.Admitd {
	t.Helper()
	args := []string{"--engine", "sim", "--model", model}
	if policy != "" {
		args = append(args, "--policy", harness.WriteFile(t, "policy.yaml", policy))
	}
	engineArgs = append([]string{"--load-time", "200ms"}, engineArgs...)
	return harness.Start(t, harness.Options{Binary: binary, Args: args, EngineArgs: engineArgs})
}
