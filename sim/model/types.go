package model

import (
	"errors"
	"fmt"
	"time"
)

// ID names a request; the caller chooses it and must not use it twice at the same time.
type ID uint64

// Config is one engine's size. The zero value of a field takes the default given.
type Config struct {
	Profile Profile
	// Blocks is the number of KV blocks as the engine states it; one of them is never handed out. Default: the
	// profile's KVTokens divided by BlockTokens.
	Blocks int
	// BlockTokens is the size of a block in tokens, default 16.
	BlockTokens int
	// MaxSeqs bounds the running requests, default 256.
	MaxSeqs int
	// MaxBatchedTokens bounds the tokens computed in one step, default 2048.
	MaxBatchedTokens int
	// MaxModelLen bounds prompt plus output of one request in tokens. Default: 32768 or what the KV cache holds,
	// whichever is less.
	MaxModelLen int
	// NoPrefixCache switches the prefix cache off.
	NoPrefixCache bool
	// AdmitPartialPrompt lets a prompt start when only its first chunk fits. By default the whole prompt must fit.
	AdmitPartialPrompt bool
	// MaxInFlight, when above 0, refuses a request while that many are waiting or running
	// (vLLM's --max-num-queued-reqs counts both).
	MaxInFlight int
	// MaxPrefillTokens, when above 0, refuses a request while the prompts of requests that have not produced a token
	// sum to that many tokens or more (--max-num-queued-tokens).
	MaxPrefillTokens int
	// MaxWaiting, when above 0, refuses a request while that many are waiting (SGLang's --max-queued-requests).
	MaxWaiting int
}

// Limits on Config, so that a simulation stays within ordinary memory.
const (
	maxBlocks = 1 << 22
	maxSeqs   = 1 << 16
)

// withDefaults fills the zero fields and says which value cannot be.
func (c Config) withDefaults() (Config, error) {
	if c.BlockTokens == 0 {
		c.BlockTokens = 16
	}
	if c.BlockTokens < 1 || c.BlockTokens > 4096 {
		return c, fmt.Errorf("block size is %d tokens: it must be between 1 and 4096", c.BlockTokens)
	}
	if c.Blocks == 0 {
		c.Blocks = min(c.Profile.KVTokens/c.BlockTokens, maxBlocks)
	}
	if c.Blocks < 2 || c.Blocks > maxBlocks {
		return c, fmt.Errorf("%d KV blocks: there must be between 2 and %d", c.Blocks, maxBlocks)
	}
	for _, d := range []struct {
		v    *int
		def  int
		max  int
		what string
	}{
		{&c.MaxSeqs, 256, maxSeqs, "max running requests"},
		{&c.MaxBatchedTokens, 2048, 1 << 24, "max batched tokens"},
		{&c.MaxModelLen, min(32768, c.usableTokens()), 1 << 24, "max model length"},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
		if *d.v < 1 || *d.v > d.max {
			return c, fmt.Errorf("%s is %d: it must be between 1 and %d", d.what, *d.v, d.max)
		}
	}
	if c.MaxInFlight < 0 || c.MaxPrefillTokens < 0 || c.MaxWaiting < 0 {
		return c, errors.New("a queue limit is negative: use 0 for no limit")
	}
	return c, nil
}

func (c Config) usableTokens() int { return (c.Blocks - 1) * c.BlockTokens }

// Request is one sequence to generate.
type Request struct {
	ID ID
	// PromptTokens is the prompt's length, at least 1.
	PromptTokens int
	// Prefix is the hash chain of the sequence's full blocks, the prompt's first and then those that its output will
	// fill. It may be shorter than the sequence: what is not covered shares nothing.
	Prefix []uint64
	// MaxTokens bounds the output; 0 means up to the model length.
	MaxTokens int
	// NaturalTokens is how many tokens the model would produce by itself, the end token included; 0 means that it
	// never ends by itself.
	NaturalTokens int
}

// Reason says how a request ended.
type Reason string

// Endings.
const (
	Stop   Reason = "stop"
	Length Reason = "length"
	Abort  Reason = "abort"
)

// Kind says what an Event reports.
type Kind uint8

// Events, in the order in which one request meets them. Preempted and Scheduled may alternate.
const (
	// Scheduled: the request left the waiting queue (again, after Preempted).
	Scheduled Kind = iota + 1
	// Token: one token is out; Tokens is how many so far, 1 for the first.
	Token
	// Preempted: its blocks were taken; it waits at the head of the queue and will be computed again.
	Preempted
	// Finished: the last event of a request that was not cancelled.
	Finished
)

// String implements fmt.Stringer.
func (k Kind) String() string {
	return [...]string{"none", "scheduled", "token", "preempted", "finished"}[min(int(k), 4)]
}

// Event is one thing that happened to one request.
type Event struct {
	// At is the time at which a client could know: the end of the step plus the API server's share.
	At     time.Duration
	ID     ID
	Kind   Kind
	Tokens int
	// Cached is, with Scheduled, the number of prompt tokens found in the prefix cache.
	Cached int
	// Again is true for a Scheduled that follows a Preempted.
	Again  bool
	Reason Reason
}

// Stats is what the engine's own counters say at a moment.
type Stats struct {
	// Running and Waiting count requests; Arriving those still in the API server.
	Running, Waiting, Arriving int
	// Used, Cached and Free blocks sum to Usable.
	Used, Cached, Free, Usable int
	// Steps and StepTokens count finished steps and the tokens computed in them (recomputed ones included).
	Steps, StepTokens int
	// PromptTokens counts prompts that finished prefill once, CachedTokens the part of them that came from the cache.
	PromptTokens, CachedTokens int
	// GeneratedTokens counts output tokens.
	GeneratedTokens int
	// PrefixQueries and PrefixHits are tokens looked up and found at first scheduling.
	PrefixQueries, PrefixHits int
	Preemptions               int
	// RefusedInFlight and RefusedTokens count refusals by limit.
	RefusedInFlight, RefusedTokens int
	// Finished counts endings; Cancelled those whose client left.
	Stopped, Lengthened, Cancelled int
}

// KVUsage is the fraction, 0 to 1, of usable blocks that live requests hold; cached blocks without a holder count
// as free.
func (s Stats) KVUsage() float64 {
	if s.Usable == 0 {
		return 0
	}
	return float64(s.Used) / float64(s.Usable)
}

// Errors of Submit.
var (
	// ErrQueueFull means that MaxInFlight or MaxWaiting is reached.
	ErrQueueFull = errors.New("too many requests are in flight")
	// ErrPrefillFull means that MaxPrefillTokens is reached.
	ErrPrefillFull = errors.New("too many prompt tokens are waiting")
	// ErrDuplicate means that the ID is in flight.
	ErrDuplicate = errors.New("the request id is already in flight")
	// ErrTooLong means that the prompt leaves no room for one token of output within MaxModelLen.
	ErrTooLong = errors.New("the prompt does not fit the model length")
	// ErrInvalid means that a number of the request is out of range.
	ErrInvalid = errors.New("invalid request")
)
