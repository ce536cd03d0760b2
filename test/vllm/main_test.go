//go:build vllm

// Package vllm tests admitd against a real vLLM. It needs ADMITD_VLLM, the folder that scripts/vllm-cpu.sh filled.
package vllm

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"admitd/test/harness"
)

// model is the name callers use in these tests.
const model = "smol"

// slots is the engine's limit on running requests, small so that a handful of calls fills it.
const slots = 4

// readyWithin is generous: a cold start on two busy cores takes over a minute.
const readyWithin = 6 * time.Minute

var binary string

func TestMain(m *testing.M) {
	if os.Getenv("ADMITD_VLLM") == "" {
		fmt.Fprintln(os.Stderr, "set ADMITD_VLLM to the folder that scripts/vllm-cpu.sh filled (make test-vllm does)")
		os.Exit(1)
	}
	path, remove, err := harness.Build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = path
	code := m.Run()
	remove()
	os.Exit(code)
}

// start runs admitd with a real vLLM and a policy text, "" for the built-in default.
func start(t *testing.T, policy string, engineArgs ...string) *harness.Admitd {
	t.Helper()
	return startIn(t, "", policy, engineArgs...)
}

// startIn is start with a state folder that lasts over several admitds, "" for one of its own.
func startIn(t *testing.T, state, policy string, engineArgs ...string) *harness.Admitd {
	t.Helper()
	folder := os.Getenv("ADMITD_VLLM")
	args := []string{"--engine", "vllm", "--engine-binary", filepath.Join(folder, "bin", "vllm"),
		"--model", filepath.Join(folder, "model"), "--model-name", model}
	if policy != "" {
		args = append(args, "--policy", harness.WriteFile(t, "policy.yaml", policy))
	}
	engineArgs = append([]string{"--enforce-eager", "--dtype", "bfloat16", "--max-model-len", "2048", "--block-size", "32"}, engineArgs...)
	return harness.Start(t, harness.Options{
		Binary: binary, Args: args, EngineArgs: engineArgs, StateDir: state,
		Env: []string{"VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_CI_ENV=1", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1"},
	})
}
