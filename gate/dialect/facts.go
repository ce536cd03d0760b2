// Package dialect knows the wire formats that callers and engines speak: OpenAI chat completions,
// completions, responses, embeddings, rerank and score, and Anthropic messages.
//
// Goal: facts from request bytes, usage and endings from response bytes, refusal bodies that the caller's SDK
// can read. Bytes in, values out.
//
// Non-goals: HTTP serving, deciding, re-encoding what passes through.
//
// Invariants: a body is never re-encoded: what must change is spliced, every other byte stays; unknown fields
// pass; prompt and answer text never leave this package (sizes and hashes do); an observer never stops a
// relay and holds bounded memory whatever it is fed.
package dialect

import (
	"time"

	"admitd/gate/reason"
)

// Family is the shape of bodies and errors that a caller of an endpoint expects.
type Family string

const (
	// OpenAI shape: {"error":{"message","type","param","code"}}.
	OpenAI Family = "openai"
	// Anthropic shape: {"type":"error","error":{"type","message"}}.
	Anthropic Family = "anthropic"
)

// Class says how the gate treats a path.
type Class string

const (
	// Inference paths are priced and pass admission.
	Inference Class = "inference"
	// Helper paths reach the engine but cost little; their number at once is limited.
	Helper Class = "helper"
	// Own paths are answered by the gate itself.
	Own Class = "own"
	// Blocked paths exist on the engine and are closed.
	Blocked Class = "blocked"
	// Unknown paths are nothing the gate knows.
	Unknown Class = "unknown"
)

// Kind is the operation behind a path.
type Kind string

// Operations. Everything but the KindChat..KindResponses group produces no output tokens.
const (
	KindChat        Kind = "chat"
	KindCompletions Kind = "completions"
	KindResponses   Kind = "responses"
	KindMessages    Kind = "messages"
	KindEmbeddings  Kind = "embeddings"
	KindRerank      Kind = "rerank"
	KindScore       Kind = "score"
	KindPooling     Kind = "pooling"
	KindClassify    Kind = "classify"
	KindAudio       Kind = "audio"
	KindTokenize    Kind = "tokenize"
	KindDetokenize  Kind = "detokenize"
	KindCountTokens Kind = "count_tokens"
	KindModels      Kind = "models"
	KindHealth      Kind = "health"
	KindAdmit       Kind = "admit"
)

// Endpoint is what the path table says about one path.
type Endpoint struct {
	// Path is the canonical path of the table, for instance /v1/chat/completions.
	Path   string
	Class  Class
	Kind   Kind
	Family Family
	// Methods allowed, upper case.
	Methods []string
	// Multipart is true where the body is a form (audio).
	Multipart bool
}

// TextSize counts prompt text by kind, in UTF-8 bytes of decoded strings (escapes do not count twice).
type TextSize struct {
	// Latin, CJK and Other are prose bytes by script; Code is bytes of text that looks like code or JSON.
	Latin, CJK, Other, Code int
	// ToolSchema is bytes of tool definitions.
	ToolSchema int
	// Messages is the number of messages (chat template overhead).
	Messages int
	// TokenIDs is the number of token ids given as such: exact tokens.
	TokenIDs int
	// Media is the number of images, audio or video parts.
	Media int
}

// Facts is what a decision may know about a request. It holds no text.
type Facts struct {
	Endpoint Endpoint
	// Model is the name the caller asked for.
	Model  string
	Stream bool
	// IncludeUsage is true when the caller asked for usage on the stream (stream_options.include_usage).
	IncludeUsage bool
	// OutputCap is the caller's bound on output tokens per sequence; nil when none was given.
	OutputCap *int
	// Sequences is max(n, best_of, beam width), at least 1; Prompts the number of prompts in one call, at least 1.
	Sequences int
	Prompts   int
	Text      TextSize
	// LargestText is the size of the largest single prompt of a batch (equal to Text for one prompt).
	LargestText TextSize
	// Truncates is true when the caller asked the engine to cut a prompt that is too long instead of refusing it.
	Truncates bool
	Tools     int
	BodyBytes int
	// BodyHash is a keyed-free 64-bit hash of the body for recognising retries; it never leaves the process.
	BodyHash uint64

	Session Session
	// Deadline, TTFT and TPOT are what the caller asked for; 0 when nothing was said.
	Deadline time.Duration
	TTFT     time.Duration
	TPOT     time.Duration
	// Class is the SLO class asked for with X-Admitd-Class, "" when none.
	Class string
	// Attempt is 0 for a first try, from x-stainless-retry-count.
	Attempt int
	// Ticket is the value of X-Admitd-Ticket, "" when none.
	Ticket string
	// BadHints counts optional hints that were malformed and ignored.
	BadHints int
}

// Session identifies the agent task a request belongs to. Strings are at most 256 bytes.
type Session struct {
	// ID is "" when neither said nor derivable.
	ID     string
	Agent  string
	Parent string
	Fanout int
	// Source names where ID came from: "x-admitd-session", "derived", ...
	Source string
}

// Problem is a request that must be refused because of what it says.
type Problem struct {
	Reason reason.Code
	// Message is one plain sentence: what, where, the limit, what to do. It quotes no prompt text.
	Message string
	// Param names the offending field in OpenAI's words, "" when none.
	Param string
}

// Usage is what the engine said about tokens; a nil field was not said.
type Usage struct {
	PromptTokens     *int
	CachedTokens     *int
	CompletionTokens *int
}

// Ending says how a response ended, as seen in its bytes.
type Ending string

const (
	// EndWhole: a finish reason and the dialect's terminal mark were seen (or a whole JSON body).
	EndWhole Ending = "whole"
	// EndError: the engine answered an error, as a status or inside the stream.
	EndError Ending = "engine_error"
	// EndRefused: the engine refused because its own queue was full (in-stream or real 503).
	EndRefused Ending = "engine_refused"
	// EndAborted: the engine ended the request itself (finish_reason abort).
	EndAborted Ending = "engine_aborted"
	// EndCut: the stream stopped without its terminal mark.
	EndCut Ending = "engine_cut"
	// EndCaller: the caller went away.
	EndCaller Ending = "caller_gone"
	// EndInvalid: the engine answered 4xx, the request itself was bad.
	EndInvalid Ending = "engine_invalid"
)

// Result is what a Filter knows at the end of a response.
type Result struct {
	Ending Ending
	Usage  Usage
	// OutputEvents counts stream events that carried output; the fallback when usage is not known.
	OutputEvents int
	// FinishReason is the last one seen, "" when none.
	FinishReason string
	// ErrorCode is the HTTP status that the engine's error stands for, 0 when there was none or it did not say.
	// ErrorMessage is cut to 300 bytes and holds no echoed input.
	ErrorCode    int
	ErrorMessage string
	// UsageUnknown is true when an event or body could not be read (it was cut off or is no JSON) and usage may have
	// been in it. Size alone never makes usage unknown.
	UsageUnknown bool
}
