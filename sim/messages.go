package sim

import (
	"bufio"

	"admitd/sim/model"
)

type messagesUsage struct {
	Input   int  `json:"input_tokens"`
	Output  int  `json:"output_tokens"`
	Created *int `json:"cache_creation_input_tokens,omitempty"`
	Read    *int `json:"cache_read_input_tokens,omitempty"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type messageBody struct {
	ID         string        `json:"id"`
	Type       string        `json:"type"`
	Role       string        `json:"role"`
	Content    []textBlock   `json:"content"`
	Model      string        `json:"model"`
	StopReason string        `json:"stop_reason"`
	Usage      messagesUsage `json:"usage"`
}

// messagesStop is Anthropic's word for an ending.
func messagesStop(reason string) string {
	switch reason {
	case string(model.Length):
		return "max_tokens"
	case string(model.Stop):
		return "end_turn"
	}
	return reason
}

// messagesUsage counts input without what came from the cache, when the engine reports the cache at all.
func (s *Server) messagesUsage(j *job, output, cached int) messagesUsage {
	u := messagesUsage{Input: j.promptTokens, Output: output}
	if s.opt.PromptTokensDetails {
		created := 0
		u.Input -= cached
		u.Created, u.Read = &created, &cached
	}
	return u
}

func (s *Server) message(j *job, text string, output, cached int, reason string) messageBody {
	return messageBody{
		ID: j.id, Type: "message", Role: "assistant", Content: []textBlock{{"text", text}}, Model: j.model,
		StopReason: messagesStop(reason), Usage: s.messagesUsage(j, output, cached),
	}
}

// messagesStream writes Anthropic's events.
type messagesStream struct {
	s      *Server
	j      *job
	out    *bufio.Writer
	tokens int
	cached int
	reason string
}

func (t *messagesStream) begin(cached int) {
	t.cached = cached
	type start struct {
		ID           string        `json:"id"`
		Type         string        `json:"type"`
		Role         string        `json:"role"`
		Content      []textBlock   `json:"content"`
		Model        string        `json:"model"`
		StopReason   *string       `json:"stop_reason"`
		StopSequence *string       `json:"stop_sequence"`
		Usage        messagesUsage `json:"usage"`
	}
	namedEvent(t.out, "message_start", encode(struct {
		Type    string `json:"type"`
		Message start  `json:"message"`
	}{"message_start", start{
		ID: t.j.id, Type: "message", Role: "assistant", Content: []textBlock{}, Model: t.j.model,
		Usage: t.s.messagesUsage(t.j, 0, cached),
	}}))
	namedEvent(t.out, "content_block_start", encode(struct {
		Type  string    `json:"type"`
		Block textBlock `json:"content_block"`
		Index int       `json:"index"`
	}{"content_block_start", textBlock{Type: "text"}, 0}))
}

func (t *messagesStream) piece(_, k int, text, reason string) {
	t.tokens = k
	if reason != "" {
		t.reason = reason
	}
	if text == "" {
		return
	}
	namedEvent(t.out, "content_block_delta", encode(struct {
		Type  string    `json:"type"`
		Delta textBlock `json:"delta"`
		Index int       `json:"index"`
	}{"content_block_delta", textBlock{"text_delta", text}, 0}))
}

func (t *messagesStream) end() {
	type plain struct {
		Type string `json:"type"`
	}
	type delta struct {
		StopReason   string  `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	}
	namedEvent(t.out, "content_block_stop", encode(struct {
		plain
		Index int `json:"index"`
	}{plain{"content_block_stop"}, 0}))
	namedEvent(t.out, "message_delta", encode(struct {
		plain
		Delta delta         `json:"delta"`
		Usage messagesUsage `json:"usage"`
	}{plain{"message_delta"}, delta{StopReason: messagesStop(t.reason)}, t.s.messagesUsage(t.j, t.tokens, t.cached)}))
	namedEvent(t.out, "message_stop", encode(plain{"message_stop"}))
}

func (t *messagesStream) fail(e *apiError) {
	namedEvent(t.out, "error", e.body(anthropic))
}
