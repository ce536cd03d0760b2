package sim

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"time"

	"admitd/sim/model"
)

// Dialects of the HTTP face.
const (
	VLLM   = "vllm"
	SGLang = "sglang"
)

// Version is the engine version that the vLLM face states; sglangVersion the one of the SGLang face.
const (
	Version       = "0.32.0"
	sglangVersion = "0.5.16"
)

// DefaultProfile is used when Options names none.
const DefaultProfile = "cpu-smollm2-135m"

// Options describes a simulated engine. The zero value of a field takes the default given.
type Options struct {
	// Dialect is VLLM (default) or SGLang.
	Dialect string
	// Model is the name or path the engine was told to load, default "sim-model".
	Model string
	// ServedNames are the names it answers to; the first is its metrics label. Default: Model.
	ServedNames []string
	// APIKey, when set, is needed for every path under /v1.
	APIKey string

	// Profile is a name of model.Profiles, default DefaultProfile.
	Profile string
	// Speed makes simulated time run this many times faster than real time, 0.001 to 100000, default 1.
	Speed float64
	// MaxNumSeqs, MaxBatchedTokens, KVBlocks, BlockSize (tokens) and MaxModelLen (tokens) size the engine; see
	// model.Config for their defaults.
	MaxNumSeqs, MaxBatchedTokens, KVBlocks, BlockSize, MaxModelLen int
	// MaxQueuedReqs is the engine's own limit: for vLLM on requests waiting or running, for SGLang on those waiting.
	// 0 means none. MaxQueuedTokens is vLLM's limit on prompt tokens in prefill.
	MaxQueuedReqs, MaxQueuedTokens int
	// NoPrefixCache switches the prefix cache off.
	NoPrefixCache bool
	// MedianOutput is the median number of tokens after which an answer ends by itself, default 160.
	MedianOutput int
	// Seed changes every answer's text and length.
	Seed uint64

	// PromptTokensDetails, ForceIncludeUsage, ServerLoadTracking, RequestIDHeaders and AutoToolChoice are vLLM's
	// switches of the same names. Tools are accepted and ignored with AutoToolChoice, refused without.
	PromptTokensDetails, ForceIncludeUsage, ServerLoadTracking, RequestIDHeaders, AutoToolChoice bool
	// Embeddings adds /v1/embeddings, which a generating vLLM does not have.
	Embeddings bool

	// LoadTime is how long starting takes, in real time, default 0.
	LoadTime time.Duration
	// ShutdownTimeout is how long running requests may go on after the stop was asked for; 0 cuts them at once.
	ShutdownTimeout time.Duration
	// Faults are those to begin with; see Faults for the list and ParseFault for the form.
	Faults []string
	// Output receives the engine's log lines; nil discards them. NoAccessLog leaves the line per request out.
	Output      io.Writer
	NoAccessLog bool
}

// maxBody bounds a request body in bytes.
const maxBody = 64 << 20

func (o Options) withDefaults() (Options, model.Config, error) {
	fill(&o.Dialect, VLLM)
	fill(&o.Model, "sim-model")
	fill(&o.Profile, DefaultProfile)
	if len(o.ServedNames) == 0 {
		o.ServedNames = []string{o.Model}
	}
	if o.Output == nil {
		o.Output = io.Discard
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	if o.MedianOutput == 0 {
		o.MedianOutput = 160
	}
	if o.Dialect != VLLM && o.Dialect != SGLang {
		return o, model.Config{}, fmt.Errorf("unknown dialect %q: choose %s or %s", o.Dialect, VLLM, SGLang)
	}
	if math.IsNaN(o.Speed) || o.Speed < 0.001 || o.Speed > 100_000 {
		return o, model.Config{}, fmt.Errorf("speed is %g: it must be between 0.001 and 100000", o.Speed)
	}
	if o.LoadTime < 0 || o.ShutdownTimeout < 0 {
		return o, model.Config{}, errors.New("load time and shutdown timeout cannot be negative")
	}
	if o.MedianOutput < 1 || o.MaxQueuedReqs < 0 || o.MaxQueuedTokens < 0 {
		return o, model.Config{}, errors.New("median output must be at least 1 and queue limits cannot be negative")
	}
	cfg, err := o.modelConfig()
	return o, cfg, err
}

func (o Options) modelConfig() (model.Config, error) {
	p, err := model.ProfileByName(o.Profile)
	if err != nil {
		return model.Config{}, err
	}
	c := model.Config{
		Profile: p, Blocks: o.KVBlocks, BlockTokens: o.BlockSize, MaxSeqs: o.MaxNumSeqs,
		MaxBatchedTokens: o.MaxBatchedTokens, MaxModelLen: o.MaxModelLen, NoPrefixCache: o.NoPrefixCache,
	}
	if o.Dialect == SGLang {
		c.MaxWaiting = o.MaxQueuedReqs
	} else {
		c.MaxInFlight, c.MaxPrefillTokens = o.MaxQueuedReqs, o.MaxQueuedTokens
	}
	return c, nil
}

func fill(s *string, def string) {
	if *s == "" {
		*s = def
	}
}

// systemFingerprint is what the vLLM face puts into answers.
func (o Options) systemFingerprint() string {
	c := model.NewChain(o.Seed, 1)
	for _, b := range []byte(filepath.Base(o.Model) + o.Profile) {
		c.Add(uint32(b))
	}
	return fmt.Sprintf("vllm-%s-%08x", Version, uint32(c.Sum()))
}
