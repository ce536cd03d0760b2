package sim

import (
	"bufio"

	"admitd/sim/model"
)

type outputText struct {
	Annotations []struct{} `json:"annotations"`
	Text        string     `json:"text"`
	Type        string     `json:"type"`
	Logprobs    []struct{} `json:"logprobs"`
}

type outputItem struct {
	ID      string       `json:"id"`
	Content []outputText `json:"content"`
	Role    string       `json:"role"`
	Status  string       `json:"status"`
	Type    string       `json:"type"`
	Phase   *string      `json:"phase"`
}

type responsesUsage struct {
	Input        int `json:"input_tokens"`
	InputDetails struct {
		Cached        int   `json:"cached_tokens"`
		CacheWrite    int   `json:"cache_write_tokens"`
		PerTurn       []int `json:"input_tokens_per_turn"`
		CachedPerTurn []int `json:"cached_tokens_per_turn"`
	} `json:"input_tokens_details"`
	Output        int `json:"output_tokens"`
	OutputDetails struct {
		Reasoning   int   `json:"reasoning_tokens"`
		Tool        int   `json:"tool_output_tokens"`
		PerTurn     []int `json:"output_tokens_per_turn"`
		ToolPerTurn []int `json:"tool_output_tokens_per_turn"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type responseBody struct {
	ID                 string            `json:"id"`
	CreatedAt          int64             `json:"created_at"`
	Incomplete         *incomplete       `json:"incomplete_details"`
	Instructions       *string           `json:"instructions"`
	Metadata           map[string]string `json:"metadata"`
	Model              string            `json:"model"`
	Object             string            `json:"object"`
	Output             []outputItem      `json:"output"`
	ParallelToolCalls  bool              `json:"parallel_tool_calls"`
	Temperature        rawNumber         `json:"temperature"`
	ToolChoice         string            `json:"tool_choice"`
	Tools              []struct{}        `json:"tools"`
	TopP               rawNumber         `json:"top_p"`
	Background         bool              `json:"background"`
	MaxOutputTokens    int               `json:"max_output_tokens"`
	MaxToolCalls       *int              `json:"max_tool_calls"`
	PreviousResponseID *string           `json:"previous_response_id"`
	Prompt             *string           `json:"prompt"`
	Reasoning          *struct{}         `json:"reasoning"`
	ServiceTier        string            `json:"service_tier"`
	Status             string            `json:"status"`
	Text               *struct{}         `json:"text"`
	TopLogprobs        *int              `json:"top_logprobs"`
	Truncation         string            `json:"truncation"`
	Usage              *responsesUsage   `json:"usage"`
	User               *string           `json:"user"`
	PresencePenalty    rawNumber         `json:"presence_penalty"`
	FrequencyPenalty   rawNumber         `json:"frequency_penalty"`
	KVTransfer         *struct{}         `json:"kv_transfer_params"`
	ECTransfer         *struct{}         `json:"ec_transfer_params"`
	InputMessages      *struct{}         `json:"input_messages"`
	OutputMessages     *struct{}         `json:"output_messages"`
}

// rawNumber is a float that keeps its ".0", as Python writes it.
type rawNumber string

// MarshalJSON writes the number as it is.
func (n rawNumber) MarshalJSON() ([]byte, error) { return []byte(n), nil }

// responseHead is the response before there is any output.
func (s *Server) responseHead(j *job) responseBody {
	return responseBody{
		ID: j.id, CreatedAt: j.created, Model: j.model, Object: "response", Output: []outputItem{}, ParallelToolCalls: true,
		Temperature: "1.0", ToolChoice: "none", Tools: []struct{}{}, TopP: "1.0", MaxOutputTokens: j.seqs[0].req.MaxTokens,
		ServiceTier: "auto", Status: "in_progress", Truncation: "disabled", PresencePenalty: "0.0", FrequencyPenalty: "0.0",
	}
}

func (s *Server) messageItem(text, status string) outputItem {
	return outputItem{
		ID: "msg_" + s.newID(16), Role: "assistant", Status: status, Type: "message",
		Content: []outputText{{Annotations: []struct{}{}, Text: text, Type: "output_text"}},
	}
}

// response is the finished response around its one message.
func (s *Server) response(j *job, item outputItem, output, cached int, reason string) responseBody {
	r := s.responseHead(j)
	r.Output = []outputItem{item}
	switch reason {
	case string(model.Length):
		r.Status, r.Incomplete = "incomplete", &incomplete{"max_output_tokens"}
	case string(model.Abort):
		r.Status = "incomplete"
	default:
		r.Status = "completed"
	}
	u := &responsesUsage{Input: j.promptTokens, Output: output, Total: j.promptTokens + output}
	u.InputDetails.Cached = cached
	u.InputDetails.PerTurn, u.InputDetails.CachedPerTurn = []int{}, []int{}
	u.OutputDetails.PerTurn, u.OutputDetails.ToolPerTurn = []int{}, []int{}
	r.Usage = u
	return r
}

// responsesStream writes the events of the responses API.
type responsesStream struct {
	s      *Server
	j      *job
	out    *bufio.Writer
	seq    int
	item   outputItem
	text   []byte
	tokens int
	cached int
	reason string
}

func (t *responsesStream) next() int {
	t.seq++
	return t.seq - 1
}

type responseEvent struct {
	Response responseBody `json:"response"`
	Sequence int          `json:"sequence_number"`
	Type     string       `json:"type"`
}

type itemEvent struct {
	Item     outputItem `json:"item"`
	Index    int        `json:"output_index"`
	Sequence int        `json:"sequence_number"`
	Type     string     `json:"type"`
}

type partEvent struct {
	ContentIndex int        `json:"content_index"`
	ItemID       string     `json:"item_id"`
	Index        int        `json:"output_index"`
	Part         outputText `json:"part"`
	Sequence     int        `json:"sequence_number"`
	Type         string     `json:"type"`
}

func (t *responsesStream) begin(cached int) {
	t.cached = cached
	for _, name := range []string{"response.created", "response.in_progress"} {
		namedEvent(t.out, name, encode(responseEvent{t.s.responseHead(t.j), t.next(), name}))
	}
	t.item = t.s.messageItem("", "in_progress")
	t.item.Content = []outputText{}
	name := "response.output_item.added"
	namedEvent(t.out, name, encode(itemEvent{t.item, 0, t.next(), name}))
	name = "response.content_part.added"
	part := outputText{Annotations: []struct{}{}, Type: "output_text", Logprobs: []struct{}{}}
	namedEvent(t.out, name, encode(partEvent{0, t.item.ID, 0, part, t.next(), name}))
}

func (t *responsesStream) piece(_, k int, text, reason string) {
	t.tokens = k
	if reason != "" {
		t.reason = reason
	}
	if text == "" {
		return
	}
	t.text = append(t.text, text...)
	name := "response.output_text.delta"
	namedEvent(t.out, name, encode(struct {
		ContentIndex int        `json:"content_index"`
		Delta        string     `json:"delta"`
		ItemID       string     `json:"item_id"`
		Logprobs     []struct{} `json:"logprobs"`
		Index        int        `json:"output_index"`
		Sequence     int        `json:"sequence_number"`
		Type         string     `json:"type"`
	}{0, text, t.item.ID, []struct{}{}, 0, t.next(), name}))
}

func (t *responsesStream) end() {
	text := string(t.text)
	name := "response.output_text.done"
	namedEvent(t.out, name, encode(struct {
		ContentIndex int        `json:"content_index"`
		ItemID       string     `json:"item_id"`
		Logprobs     []struct{} `json:"logprobs"`
		Index        int        `json:"output_index"`
		Sequence     int        `json:"sequence_number"`
		Text         string     `json:"text"`
		Type         string     `json:"type"`
	}{0, t.item.ID, []struct{}{}, 0, t.next(), text, name}))
	part := outputText{Annotations: []struct{}{}, Text: text, Type: "output_text"}
	name = "response.content_part.done"
	namedEvent(t.out, name, encode(partEvent{0, t.item.ID, 0, part, t.next(), name}))
	t.item.Status, t.item.Content = "completed", []outputText{part}
	name = "response.output_item.done"
	namedEvent(t.out, name, encode(itemEvent{t.item, 0, t.next(), name}))
	name = "response.completed"
	namedEvent(t.out, name, encode(responseEvent{t.s.response(t.j, t.item, t.tokens, t.cached, t.reason), t.next(), name}))
}

func (t *responsesStream) fail(e *apiError) {
	event(t.out, e.line())
}
