package sim

import (
	"bufio"
	"fmt"
)

// openAIStream writes chat and text completions as server-sent events.
type openAIStream struct {
	s      *Server
	j      *job
	out    *bufio.Writer
	tokens []int
	cached int
}

const doneLine = "data: [DONE]\n\n"

// event writes one event; a failing writer shows in the request's context.
func event(out *bufio.Writer, data []byte) {
	_, _ = fmt.Fprintf(out, "data: %s\n\n", data)
}

func namedEvent(out *bufio.Writer, name string, data []byte) {
	_, _ = fmt.Fprintf(out, "event: %s\ndata: %s\n\n", name, data)
}

type roleDelta struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type contentDelta struct {
	Content string `json:"content"`
}

// Chunks keep the field order of the real engine: which keys are there depends on the chunk.
type chunkHead struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
}

type runningUsage struct {
	Prompt     int       `json:"prompt_tokens"`
	Total      int       `json:"total_tokens"`
	Completion int       `json:"completion_tokens"`
	Details    *struct{} `json:"completion_tokens_details"`
}

type finalUsage struct {
	Prompt     int           `json:"prompt_tokens"`
	Total      int           `json:"total_tokens"`
	Completion int           `json:"completion_tokens"`
	Details    *finalDetails `json:"prompt_tokens_details,omitempty"`
}

type finalDetails struct {
	Cached  int `json:"cached_tokens"`
	Created int `json:"created_cache_tokens"`
}

type roleChoice struct {
	Index        int       `json:"index"`
	Delta        roleDelta `json:"delta"`
	Logprobs     *struct{} `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

type deltaChoice struct {
	Index        int          `json:"index"`
	Delta        contentDelta `json:"delta"`
	Logprobs     *struct{}    `json:"logprobs"`
	FinishReason *string      `json:"finish_reason"`
	TokenIDs     *struct{}    `json:"token_ids"`
}

type lastChoice struct {
	Index        int          `json:"index"`
	Delta        contentDelta `json:"delta"`
	Logprobs     *struct{}    `json:"logprobs"`
	FinishReason string       `json:"finish_reason"`
	StopReason   *string      `json:"stop_reason"`
	TokenIDs     *struct{}    `json:"token_ids"`
}

type textDelta struct {
	Index          int       `json:"index"`
	Text           string    `json:"text"`
	Logprobs       *struct{} `json:"logprobs"`
	FinishReason   *string   `json:"finish_reason"`
	StopReason     *string   `json:"stop_reason"`
	PromptTokenIDs *struct{} `json:"prompt_token_ids"`
	TokenIDs       *struct{} `json:"token_ids"`
}

func (t *openAIStream) head() chunkHead {
	object := "chat.completion.chunk"
	if t.j.kind == kindCompletions {
		object = "text_completion"
	}
	return chunkHead{t.j.id, object, t.j.created, t.j.model}
}

// usageNow is the running usage of sequence i, nil when chunks carry none.
func (t *openAIStream) usageNow(i int) *runningUsage {
	if !t.j.running {
		return nil
	}
	p := t.j.seqs[i].req.PromptTokens
	return &runningUsage{Prompt: p, Completion: t.tokens[i], Total: p + t.tokens[i]}
}

func (t *openAIStream) begin(cached int) {
	t.cached = cached
	if t.j.kind == kindCompletions {
		return
	}
	for i := range t.j.seqs {
		event(t.out, encode(struct {
			chunkHead
			Choices        []roleChoice  `json:"choices"`
			Usage          *runningUsage `json:"usage,omitempty"`
			PromptTokenIDs *struct{}     `json:"prompt_token_ids"`
			PromptText     *string       `json:"prompt_text"`
		}{t.head(), []roleChoice{{Index: i, Delta: roleDelta{Role: "assistant"}}}, t.usageNow(i), nil, nil}))
	}
}

func (t *openAIStream) piece(i, k int, text, reason string) {
	t.tokens[i] = k
	var choice any = deltaChoice{Index: i, Delta: contentDelta{text}}
	last := ""
	if reason != "" && !t.j.usage {
		last = t.s.opt.systemFingerprint()
	}
	switch {
	case t.j.kind == kindCompletions:
		d := textDelta{Index: i, Text: text}
		if reason != "" {
			d.FinishReason = &reason
		}
		choice = d
	case reason != "":
		choice = lastChoice{Index: i, Delta: contentDelta{text}, FinishReason: reason}
	}
	event(t.out, encode(struct {
		chunkHead
		Choices     []any         `json:"choices"`
		Usage       *runningUsage `json:"usage,omitempty"`
		Fingerprint string        `json:"system_fingerprint,omitempty"`
	}{t.head(), []any{choice}, t.usageNow(i), last}))
}

func (t *openAIStream) end() {
	if t.j.usage {
		total := 0
		for _, n := range t.tokens {
			total += n
		}
		u := finalUsage{Prompt: t.j.promptTokens, Completion: total, Total: t.j.promptTokens + total}
		if t.s.opt.PromptTokensDetails {
			u.Details = &finalDetails{Cached: t.cached, Created: t.s.created(t.j, t.cached)}
		}
		event(t.out, encode(struct {
			chunkHead
			Choices     []any      `json:"choices"`
			Usage       finalUsage `json:"usage"`
			Fingerprint string     `json:"system_fingerprint"`
		}{t.head(), []any{}, u, t.s.opt.systemFingerprint()}))
	}
	_, _ = t.out.WriteString(doneLine)
}

func (t *openAIStream) fail(e *apiError) {
	event(t.out, e.line())
	_, _ = t.out.WriteString(doneLine)
}
