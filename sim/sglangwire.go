package sim

import "bufio"

// SGLang's answers differ from vLLM's in their keys. They follow its documentation and source, not a recording.

type sglangUsage struct {
	Prompt     int          `json:"prompt_tokens"`
	Total      int          `json:"total_tokens"`
	Completion int          `json:"completion_tokens"`
	Details    *finalCached `json:"prompt_tokens_details"`
	Reasoning  int          `json:"reasoning_tokens"`
}

type finalCached struct {
	Cached int `json:"cached_tokens"`
}

// sglangUsage reports cached tokens only with the switch that SGLang calls --enable-cache-report.
func (s *Server) sglangUsage(prompt, completion, cached int) *sglangUsage {
	u := &sglangUsage{Prompt: prompt, Completion: completion, Total: prompt + completion}
	if s.opt.PromptTokensDetails && cached > 0 {
		u.Details = &finalCached{cached}
	}
	return u
}

type sglangMessage struct {
	Role      *string   `json:"role"`
	Content   *string   `json:"content"`
	Reasoning *string   `json:"reasoning_content"`
	ToolCalls *struct{} `json:"tool_calls"`
}

type sglangDelta struct {
	Index        int           `json:"index"`
	Delta        sglangMessage `json:"delta"`
	Logprobs     *struct{}     `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	MatchedStop  *int          `json:"matched_stop"`
}

type sglangChoice struct {
	Index        int           `json:"index"`
	Message      sglangMessage `json:"message"`
	Logprobs     *struct{}     `json:"logprobs"`
	FinishReason string        `json:"finish_reason"`
	MatchedStop  *int          `json:"matched_stop"`
}

type sglangTextChoice struct {
	Index        int       `json:"index"`
	Text         string    `json:"text"`
	Logprobs     *struct{} `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
	MatchedStop  *int      `json:"matched_stop"`
}

// sglangStream writes chat and text completions as SGLang's events.
type sglangStream struct {
	s      *Server
	j      *job
	out    *bufio.Writer
	tokens []int
	cached int
}

func (t *sglangStream) chunk(choices []any, usage *sglangUsage) {
	object := "chat.completion.chunk"
	if t.j.kind == kindCompletions {
		object = "text_completion"
	}
	event(t.out, encode(struct {
		chunkHead
		Choices []any        `json:"choices"`
		Usage   *sglangUsage `json:"usage"`
	}{chunkHead{t.j.id, object, t.j.created, t.j.model}, choices, usage}))
}

func (t *sglangStream) running(i int) *sglangUsage {
	if !t.j.running {
		return nil
	}
	return t.s.sglangUsage(t.j.seqs[i].req.PromptTokens, t.tokens[i], t.cached)
}

func (t *sglangStream) begin(cached int) {
	t.cached = cached
	if t.j.kind == kindCompletions {
		return
	}
	role, none := "assistant", ""
	for i := range t.j.seqs {
		t.chunk([]any{sglangDelta{Index: i, Delta: sglangMessage{Role: &role, Content: &none}}}, t.running(i))
	}
}

func (t *sglangStream) piece(i, k int, text, reason string) {
	t.tokens[i] = k
	if t.j.kind == kindCompletions {
		c := sglangTextChoice{Index: i, Text: text}
		if reason != "" {
			c.FinishReason = &reason
		}
		t.chunk([]any{c}, t.running(i))
		return
	}
	if text != "" {
		t.chunk([]any{sglangDelta{Index: i, Delta: sglangMessage{Content: &text}}}, t.running(i))
	}
	if reason != "" {
		// The ending comes in a chunk of its own.
		t.chunk([]any{sglangDelta{Index: i, FinishReason: &reason}}, t.running(i))
	}
}

func (t *sglangStream) end() {
	if t.j.usage {
		total := 0
		for _, n := range t.tokens {
			total += n
		}
		t.chunk([]any{}, t.s.sglangUsage(t.j.promptTokens, total, t.cached))
	}
	_, _ = t.out.WriteString(doneLine)
}

func (t *sglangStream) fail(e *apiError) {
	event(t.out, e.body(openAI))
	_, _ = t.out.WriteString(doneLine)
}

// sglang is the whole answer in SGLang's shape.
func (a *whole) sglang(total int) []byte {
	type metadata struct {
		WeightVersion string `json:"weight_version"`
	}
	var out struct {
		chunkHead
		Choices  []any        `json:"choices"`
		Usage    *sglangUsage `json:"usage"`
		Metadata metadata     `json:"metadata"`
	}
	out.chunkHead = chunkHead{a.j.id, "chat.completion", a.j.created, a.j.model}
	if a.j.kind == kindCompletions {
		out.Object = "text_completion"
	}
	out.Usage, out.Metadata.WeightVersion = a.s.sglangUsage(a.j.promptTokens, total, a.cached), "default"
	role := "assistant"
	for i := range a.text {
		text := a.text[i].String()
		if a.j.kind == kindCompletions {
			out.Choices = append(out.Choices, sglangTextChoice{Index: i, Text: text, FinishReason: &a.reasons[i]})
			continue
		}
		out.Choices = append(out.Choices, sglangChoice{Index: i, Message: sglangMessage{Role: &role, Content: &text}, FinishReason: a.reasons[i]})
	}
	return encode(out)
}
