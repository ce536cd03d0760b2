//go:build vllm

package vllm

import (
	"strconv"
	"testing"

	"admitd/test/harness"
)

// A thousand requests of eight tokens each, while admitd is upgraded twice: none fails, and vLLM keeps its weights and cache.
func TestUpgradesUnderARealEngineFailNoCall(t *testing.T) {
	a := start(t, "policy: admit-all\n", "--max-num-seqs", strconv.Itoa(2*slots))
	a.WaitReady(readyWithin)
	harness.UpgradeUnderLoad(t, binary, a, model, 1000, 2)
}
