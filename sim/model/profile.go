package model

import (
	"fmt"
	"strings"
	"time"
)

// Profile holds the coefficients of one model on one device. A step with P prefill tokens, n decodes and KV
// resident tokens read by those decodes takes
//
//	Base + PerPrefillToken*P + PerPrefillContext*sum(P_i*ctx_i) + PerDecode*n + PerKVToken*KV
//
// where ctx_i is the mean context of request i's chunk (tokens before it plus half of it), so that the sum does
// not depend on how a prompt is cut into chunks.
type Profile struct {
	Name string
	// Base is the cost of a step whatever is in it (weights are read once), in ms.
	BaseMS float64
	// PerPrefillTokenMS is ms per prompt token computed.
	PerPrefillTokenMS float64
	// PerPrefillContextMS is ms per (prompt token x token of context).
	PerPrefillContextMS float64
	// PerDecodeMS is ms per sequence that decodes one token.
	PerDecodeMS float64
	// PerKVTokenMS is ms per resident token that a decode reads.
	PerKVTokenMS float64
	// KVTokens is the KV cache's size in tokens when nothing else is said.
	KVTokens int
	// ArrivalMS, TokenMS and EndMS are the API server's own time per request before it is queued, per token handed
	// out and at the end of a request.
	ArrivalMS, TokenMS, EndMS float64
}

// Overheads of the API server, fitted by BLIS on an H100 host.
const (
	apiArrivalMS = 15.6
	apiTokenMS   = 0.046
	apiEndMS     = 0.78
)

//nolint:unparam // cMicro is the same for all rows of the source's table, which the rows here repeat in full
func gpu(name string, a, bMicro, b2Micro, cMicro, dMicro float64, kv int) Profile {
	return Profile{
		Name: name, BaseMS: a, PerPrefillTokenMS: bMicro / 1e3, PerPrefillContextMS: b2Micro / 1e3,
		PerDecodeMS: cMicro / 1e3, PerKVTokenMS: dMicro / 1e3, KVTokens: kv,
		ArrivalMS: apiArrivalMS, TokenMS: apiTokenMS, EndMS: apiEndMS,
	}
}

// Profiles returns every built-in profile in a fixed order. The GPU rows are computed (roofline prefill plus BLIS
// decode terms), not measured; cpu-smollm2-135m is fitted to a vLLM 0.32 on two CPU cores.
func Profiles() []Profile {
	return []Profile{
		// One stream at about 50 tokens/s, 4 streams near 140, 8 near 185; 736 prompt tokens in one step take 0.52 s.
		{
			Name: "cpu-smollm2-135m", BaseMS: 16, PerPrefillTokenMS: 0.65, PerPrefillContextMS: 0.0008,
			PerDecodeMS: 3.2, PerKVTokenMS: 0.0005, KVTokens: 46592, ArrivalMS: 4, TokenMS: 0.046, EndMS: 0.78,
		},
		gpu("qwen2.5-0.5b-a10", 3.1, 15, 0.0018, 4.4, 0.040, 1_310_000),
		gpu("qwen2.5-0.5b-a100", 1.6, 6.0, 0.0007, 4.4, 0.012, 5_700_000),
		gpu("qwen2.5-0.5b-h100", 1.3, 1.6, 0.0002, 4.4, 0.007, 5_700_000),
		gpu("qwen2.5-0.5b-h200", 1.2, 1.6, 0.0002, 4.4, 0.005, 9_800_000),
		gpu("qwen2.5-1.5b-a10", 8.0, 55, 0.0036, 4.4, 0.093, 490_000),
		gpu("qwen2.5-1.5b-h100", 2.3, 5.9, 0.0004, 4.4, 0.017, 2_400_000),
		gpu("qwen2.5-7b-a10", 33, 275, 0.0085, 4.4, 0.186, 33_000),
		gpu("qwen2.5-7b-a100", 10.5, 110, 0.0034, 4.4, 0.055, 980_000),
		gpu("qwen2.5-7b-h100", 6.8, 29, 0.0009, 4.4, 0.033, 980_000),
		gpu("qwen2.5-7b-h200", 5.0, 29, 0.0009, 4.4, 0.023, 1_840_000),
		gpu("llama-3.1-8b-a10", 35, 294, 0.0110, 4.4, 0.425, 8_000),
		gpu("llama-3.1-8b-a100", 11.2, 118, 0.0044, 4.4, 0.125, 420_000),
		gpu("llama-3.1-8b-h100", 7.3, 31, 0.0012, 4.4, 0.076, 420_000),
	}
}

// ProfileByName finds a built-in profile; the error lists the names there are.
func ProfileByName(name string) (Profile, error) {
	all := Profiles()
	names := make([]string, 0, len(all))
	for _, p := range all {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Profile{}, fmt.Errorf("unknown profile %q: choose one of %s", name, strings.Join(names, ", "))
}

// Work is what one step computes.
type Work struct {
	// Prefill is the number of prompt (or recomputed) tokens, PrefillContext the sum over requests of chunk length
	// times the chunk's mean context.
	Prefill        int
	PrefillContext float64
	// Decodes is the number of sequences that decode, DecodeKV the resident tokens that they read.
	Decodes  int
	DecodeKV int
}

// StepTime is how long a step with this work takes; never less than a microsecond, so that time moves on.
func (p Profile) StepTime(w Work) time.Duration {
	v := p.BaseMS + p.PerPrefillTokenMS*float64(w.Prefill) + p.PerPrefillContextMS*w.PrefillContext +
		p.PerDecodeMS*float64(w.Decodes) + p.PerKVTokenMS*float64(w.DecodeKV)
	return max(millis(v), time.Microsecond)
}

func millis(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
