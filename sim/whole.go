package sim

import (
	"net/http"
	"strings"
)

// whole collects an answer that is sent in one piece.
type whole struct {
	s       *Server
	j       *job
	w       http.ResponseWriter
	text    []strings.Builder
	tokens  []int
	reasons []string
	cached  int
}

func (a *whole) begin(cached int) { a.cached = cached }

func (a *whole) piece(i, k int, text, reason string) {
	a.text[i].WriteString(text)
	a.tokens[i] = k
	if reason != "" {
		a.reasons[i] = reason
	}
}

func (a *whole) fail(e *apiError) { a.s.writeError(a.w, a.j.kind.family(), e) }

func (a *whole) end() {
	total := 0
	for _, n := range a.tokens {
		total += n
	}
	var body []byte
	switch {
	case a.s.opt.Dialect == SGLang:
		body = a.sglang(total)
	case a.j.kind == kindChat:
		body = a.chat(total)
	case a.j.kind == kindCompletions:
		body = a.completions(total)
	case a.j.kind == kindMessages:
		body = encode(a.s.message(a.j, a.text[0].String(), a.tokens[0], a.cached, a.reasons[0]))
	case a.j.kind == kindResponses:
		body = encode(a.s.response(a.j, a.s.messageItem(a.text[0].String(), "completed"), a.tokens[0], a.cached, a.reasons[0]))
	}
	a.s.writeJSON(a.w, http.StatusOK, body)
}

type chatMessage struct {
	Role         string    `json:"role"`
	Content      string    `json:"content"`
	Refusal      *string   `json:"refusal"`
	Annotations  *struct{} `json:"annotations"`
	Audio        *struct{} `json:"audio"`
	FunctionCall *struct{} `json:"function_call"`
	Reasoning    *string   `json:"reasoning"`
}

type chatChoice struct {
	Index         int         `json:"index"`
	Message       chatMessage `json:"message"`
	Logprobs      *struct{}   `json:"logprobs"`
	FinishReason  string      `json:"finish_reason"`
	StopReason    *string     `json:"stop_reason"`
	TokenIDs      *struct{}   `json:"token_ids"`
	RoutedExperts *struct{}   `json:"routed_experts"`
}

type wholeUsage struct {
	Prompt     int            `json:"prompt_tokens"`
	Total      int            `json:"total_tokens"`
	Completion int            `json:"completion_tokens"`
	Details    *promptDetails `json:"prompt_tokens_details"`
	Output     *struct{}      `json:"completion_tokens_details"`
}

type promptDetails struct {
	Cached     int  `json:"cached_tokens"`
	Created    int  `json:"created_cache_tokens"`
	Multimodal *int `json:"multimodal_tokens"`
}

// created is the number of prompt tokens that the prefix cache did not know and now does.
func (s *Server) created(j *job, cached int) int {
	if s.opt.NoPrefixCache {
		return 0
	}
	full := j.promptTokens / s.cfg.BlockTokens * s.cfg.BlockTokens
	return max(full-cached, 0)
}

func (s *Server) wholeUsage(j *job, completion, cached int) wholeUsage {
	u := wholeUsage{Prompt: j.promptTokens, Completion: completion, Total: j.promptTokens + completion}
	if s.opt.PromptTokensDetails {
		u.Details = &promptDetails{Cached: cached, Created: s.created(j, cached)}
	}
	return u
}

func (a *whole) chat(total int) []byte {
	var out struct {
		ID             string       `json:"id"`
		Object         string       `json:"object"`
		Created        int64        `json:"created"`
		Model          string       `json:"model"`
		Choices        []chatChoice `json:"choices"`
		ServiceTier    *string      `json:"service_tier"`
		Fingerprint    string       `json:"system_fingerprint"`
		Usage          wholeUsage   `json:"usage"`
		PromptLogprobs *struct{}    `json:"prompt_logprobs"`
		PromptTokenIDs *struct{}    `json:"prompt_token_ids"`
		PromptText     *string      `json:"prompt_text"`
		KVTransfer     *struct{}    `json:"kv_transfer_params"`
		ECTransfer     *struct{}    `json:"ec_transfer_params"`
		Metrics        *struct{}    `json:"metrics"`
	}
	out.ID, out.Object, out.Created, out.Model = a.j.id, "chat.completion", a.j.created, a.j.model
	out.Fingerprint, out.Usage = a.s.opt.systemFingerprint(), a.s.wholeUsage(a.j, total, a.cached)
	for i := range a.text {
		c := chatChoice{Index: i, FinishReason: a.reasons[i]}
		c.Message.Role, c.Message.Content = "assistant", a.text[i].String()
		out.Choices = append(out.Choices, c)
	}
	return encode(out)
}

type textChoice struct {
	Index          int       `json:"index"`
	Text           string    `json:"text"`
	Logprobs       *struct{} `json:"logprobs"`
	FinishReason   string    `json:"finish_reason"`
	StopReason     *string   `json:"stop_reason"`
	TokenIDs       *struct{} `json:"token_ids"`
	PromptLogprobs *struct{} `json:"prompt_logprobs"`
	PromptTokenIDs *struct{} `json:"prompt_token_ids"`
}

func (a *whole) completions(total int) []byte {
	var out struct {
		ID          string       `json:"id"`
		Object      string       `json:"object"`
		Created     int64        `json:"created"`
		Model       string       `json:"model"`
		Choices     []textChoice `json:"choices"`
		ServiceTier *string      `json:"service_tier"`
		Fingerprint string       `json:"system_fingerprint"`
		Usage       wholeUsage   `json:"usage"`
		KVTransfer  *struct{}    `json:"kv_transfer_params"`
	}
	out.ID, out.Object, out.Created, out.Model = a.j.id, "text_completion", a.j.created, a.j.model
	out.Fingerprint, out.Usage = a.s.opt.systemFingerprint(), a.s.wholeUsage(a.j, total, a.cached)
	for i := range a.text {
		out.Choices = append(out.Choices, textChoice{Index: i, Text: a.text[i].String(), FinishReason: a.reasons[i]})
	}
	return encode(out)
}
