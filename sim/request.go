package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"admitd/sim/model"
)

// kind is an inference operation.
type kind string

const (
	kindChat        kind = "chat"
	kindCompletions kind = "completions"
	kindMessages    kind = "messages"
	kindResponses   kind = "responses"
)

func (k kind) family() family {
	if k == kindMessages {
		return anthropic
	}
	return openAI
}

// job is one inference request after validation.
type job struct {
	kind kind
	id   string
	// rid is SGLang's name of the request, by which it can be aborted.
	rid     string
	model   string
	created int64
	stream  bool
	// usage asks for a usage chunk at the end, running for usage on every chunk.
	usage, running bool
	n              int
	// limit is the caller's output bound, 0 when none.
	limit     int
	noEOS     bool
	minTokens int
	seqs      []sequence
	// promptTokens is the sum over the prompts, each counted once.
	promptTokens int
}

// sequence is one answer to make: what the model needs and what its text is made from.
type sequence struct {
	req  model.Request
	seed uint64
}

// params are request parameters that the engine's metrics know.
type params struct {
	n, maxTokens int
	stream       bool
}

// readBody returns the body when it is JSON of the right content type.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *apiError) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, badRequest("", "cannot read the request body: %v", err)
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, schemaError("", "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed")
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(body, &top); err != nil {
		return nil, jsonError(err)
	}
	return body, nil
}

func jsonError(err error) *apiError {
	if syn, ok := errors.AsType[*json.SyntaxError](err); ok {
		at := syn.Offset - 1
		if strings.HasPrefix(syn.Error(), "unexpected end") {
			at = syn.Offset
		}
		loc := fmt.Sprintf("body.%d", max(at, 0))
		return schemaError(loc, fmt.Sprintf("1 validation error:\n  {'type': 'json_invalid', 'loc': '%s', 'msg': 'JSON decode error', "+
			"'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting value'}}", loc))
	}
	return schemaError("body", "1 validation error:\n  {'type': 'model_attributes_type', 'loc': 'body', "+
		"'msg': 'Input should be a valid dictionary or object to extract fields from', 'input': '<value>'}")
}

func size(b gjson.Result) int {
	n := 0
	b.ForEach(func(_, _ gjson.Result) bool { n++; return true })
	return n
}

// missing is the validation error for required fields that are not there.
func missing(b gjson.Result, fields ...string) *apiError {
	var lines []string
	for _, f := range fields {
		lines = append(lines, fmt.Sprintf("  {'type': 'missing', 'loc': 'body.%s', 'msg': 'Field required', 'input': '<dict of %d items>'}", f, size(b)))
	}
	return schemaError("body."+fields[0], validationHead(len(lines))+strings.Join(lines, "\n"))
}

func validationHead(n int) string {
	if n == 1 {
		return "1 validation error:\n"
	}
	return fmt.Sprintf("%d validation errors:\n", n)
}

// capFields are the names of the output bound by operation, the one that wins first.
func capFields(k kind) []string {
	switch k {
	case kindChat:
		return []string{"max_completion_tokens", "max_tokens"}
	case kindResponses:
		return []string{"max_output_tokens"}
	}
	return []string{"max_tokens"}
}

// checkSchema does what the validation layer does before the engine's own code runs.
func checkSchema(k kind, b gjson.Result) *apiError {
	need := map[kind][]string{
		kindChat: {"messages"}, kindCompletions: {"prompt"}, kindMessages: {"messages", "max_tokens"}, kindResponses: {"input"},
	}[k]
	var absent []string
	for _, f := range need {
		if !b.Get(f).Exists() {
			absent = append(absent, f)
		}
	}
	if len(absent) > 0 {
		return missing(b, absent...)
	}
	for _, f := range append(capFields(k), "n") {
		if bad := checkInt(b, f); bad != nil {
			return bad
		}
	}
	return nil
}

func checkInt(b gjson.Result, field string) *apiError {
	v := b.Get(field)
	var kind, text string
	input := v.Raw
	switch {
	case !v.Exists() || v.Type == gjson.Null:
		return nil
	case v.Type == gjson.Number && v.Num == float64(int64(v.Num)):
		return nil
	case v.Type == gjson.Number:
		kind, text = "int_from_float", "Input should be a valid integer, got a number with a fractional part"
	case v.Type == gjson.String:
		kind, text, input = "int_parsing", "Input should be a valid integer, unable to parse string as an integer", "'"+v.Str+"'"
	default:
		kind, text = "int_type", "Input should be a valid integer"
	}
	loc := "body." + field
	return schemaError(loc, fmt.Sprintf("1 validation error:\n  {'type': '%s', 'loc': '%s', 'msg': '%s', 'input': %s}", kind, loc, text, input))
}

func (s *Server) checkModel(b gjson.Result) *apiError {
	name := b.Get("model").String()
	if name == "" || s.opt.Dialect == SGLang {
		// SGLang does not look at the name.
		return nil
	}
	if slices.Contains(s.opt.ServedNames, name) {
		return nil
	}
	return &apiError{
		Status: http.StatusNotFound, Type: "NotFoundError", Param: "model",
		Message: fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", name, strings.Join(s.opt.ServedNames, ", ")),
	}
}

// checkValues does the engine's own checks, in its order.
func (s *Server) checkValues(k kind, b gjson.Result, j *job) *apiError {
	if tools := b.Get("tools"); k != kindResponses && tools.IsArray() && size(tools) > 0 && !s.opt.AutoToolChoice && b.Get("tool_choice").String() != "none" {
		return badRequest("", `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`)
	}
	for _, f := range capFields(k) {
		v := b.Get(f)
		if !v.Exists() || v.Type == gjson.Null {
			continue
		}
		n := v.Int()
		if n < 1 {
			return badRequest("max_tokens", "max_tokens must be at least 1, got %d. (parameter=max_tokens, value=%d)", n, n)
		}
		if n > int64(s.cfg.MaxModelLen) {
			return badRequest("max_tokens", "max_tokens=%d cannot be greater than max_model_len=%d. Please request fewer output tokens. "+
				"(parameter=max_tokens, value=%d)", n, s.cfg.MaxModelLen, n)
		}
		j.limit = int(n)
		break
	}
	j.n = 1
	if v := b.Get("n"); v.Type == gjson.Number && k != kindMessages && k != kindResponses {
		j.n = int(v.Int())
	}
	if j.n < 1 || j.n > maxChoices {
		return badRequest("n", "n must be between 1 and %d, got %d. (parameter=n, value=%d)", maxChoices, j.n, j.n)
	}
	if t := b.Get("temperature"); j.n > 1 && t.Exists() && t.Num == 0 {
		return badRequest("", "n must be 1 when using greedy sampling, got %d.", j.n)
	}
	return nil
}

// Bounds on one request: n, and the number of answers (prompts times n).
const (
	maxChoices   = 128
	maxSequences = 1024
)

// readJob validates a body and prepares what the model is to run.
func (s *Server) readJob(k kind, r *http.Request, body []byte) (*job, *apiError) {
	b := gjson.ParseBytes(body)
	if bad := checkSchema(k, b); bad != nil {
		return nil, bad
	}
	if bad := s.checkModel(b); bad != nil {
		return nil, bad
	}
	j := &job{kind: k, model: s.opt.ServedNames[0], created: s.unix(), stream: b.Get("stream").Bool()}
	if name := b.Get("model").String(); name != "" {
		j.model = name
	}
	if bad := s.checkValues(k, b, j); bad != nil {
		return nil, bad
	}
	j.usage = b.Get("stream_options.include_usage").Bool() || s.opt.ForceIncludeUsage
	j.running = j.usage && (b.Get("stream_options.continuous_usage_stats").Bool() || s.opt.ForceIncludeUsage)
	j.noEOS, j.minTokens = b.Get("ignore_eos").Bool(), int(b.Get("min_tokens").Int())
	id := r.Header.Get("X-Request-Id")
	if id == "" {
		id = s.newID(16)
	}
	if s.opt.Dialect == SGLang {
		// The prefix of vLLM's ids is not SGLang's: its id is the rid.
		j.rid = b.Get("rid").String()
		if j.rid == "" {
			j.rid = s.newID(32)
		}
		j.id = j.rid
		return j, s.prepare(k, b, j)
	}
	j.id = map[kind]string{kindChat: "chatcmpl-", kindMessages: "chatcmpl-", kindCompletions: "cmpl-", kindResponses: "resp_"}[k] + id
	return j, s.prepare(k, b, j)
}

// prepare turns the prompts into sequences.
func (s *Server) prepare(k kind, b gjson.Result, j *job) *apiError {
	salt := uint64(0)
	for _, c := range []byte(b.Get("cache_salt").String()) {
		salt = scramble(salt ^ uint64(c))
	}
	prompts := promptsOf(k, b)
	if len(prompts)*j.n > maxSequences {
		return badRequest("prompt", "%d prompts with n=%d: the limit is %d answers in one request", len(prompts), j.n, maxSequences)
	}
	for _, p := range prompts {
		chain := model.NewChain(salt, s.cfg.BlockTokens)
		p(chain.Add)
		if chain.Len() == 0 {
			return badRequest("prompt", "the prompt is empty: give at least one token")
		}
		if chain.Len() >= s.cfg.MaxModelLen {
			if s.opt.Dialect == SGLang {
				return badRequest("", "The input (%d tokens) is longer than the model's context length (%d tokens).", chain.Len(), s.cfg.MaxModelLen)
			}
			return badRequest("input_tokens", "This model's maximum context length is %d tokens. However, your prompt contains at least %d input tokens, "+
				"which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=%d)",
				s.cfg.MaxModelLen, s.cfg.MaxModelLen+1, s.cfg.MaxModelLen+1)
		}
		j.promptTokens += chain.Len()
		for c := range j.n {
			j.seqs = append(j.seqs, s.sequence(j, chain, c))
		}
	}
	return nil
}

// sequence plans one answer: its seed, its natural length and the hash chain of prompt and answer. The chain is
// not changed.
func (s *Server) sequence(j *job, chain *model.Chain, choice int) sequence {
	q := sequence{seed: scramble(chain.Sum() ^ s.opt.Seed ^ uint64(choice)<<40)}
	q.req.PromptTokens = chain.Len()
	room := s.cfg.MaxModelLen - chain.Len()
	q.req.MaxTokens = room
	if j.limit > 0 {
		q.req.MaxTokens = min(room, j.limit)
	}
	if !j.noEOS {
		q.req.NaturalTokens = max(naturalLength(q.seed, s.opt.MedianOutput), j.minTokens)
	}
	out := q.req.MaxTokens
	if n := q.req.NaturalTokens; n > 0 {
		out = min(out, n)
	}
	grown := chain.Fork()
	for k := range out {
		id := uint32(endToken)
		if t := q.text(j, k); t != "" {
			id = tokenID(t)
		}
		grown.Add(id)
	}
	q.req.Prefix = grown.Hashes()
	return q
}

// text is the k-th piece, from 0, of an answer; the token that ends it by itself has none.
func (q sequence) text(j *job, k int) string {
	if q.req.NaturalTokens > 0 && k == q.req.NaturalTokens-1 {
		return ""
	}
	return wordAt(q.seed, k, k == 0 && j.kind != kindCompletions)
}

// promptsOf returns one function per prompt, each of which feeds the prompt's tokens.
func promptsOf(k kind, b gjson.Result) []func(add func(uint32)) {
	if k != kindCompletions {
		return []func(func(uint32)){func(add func(uint32)) { chatTokens(b, add) }}
	}
	p := b.Get("prompt")
	one := func(v gjson.Result) func(func(uint32)) {
		return func(add func(uint32)) { promptTokens(v, add) }
	}
	if first := p.Get("0"); p.IsArray() && first.Type != gjson.Number {
		var list []func(func(uint32))
		p.ForEach(func(_, v gjson.Result) bool {
			list = append(list, one(v))
			return true
		})
		return list
	}
	return []func(func(uint32)){one(p)}
}

func promptTokens(v gjson.Result, add func(uint32)) {
	if !v.IsArray() {
		textTokens(v.String(), add)
		return
	}
	v.ForEach(func(_, t gjson.Result) bool {
		add(uint32(t.Int()))
		return true
	})
}

func textTokens(text string, add func(uint32)) {
	eachToken(text, func(p string) { add(tokenID(p)) })
}

// chatTokens feeds the tokens of a chat: for each message a head of two tokens, its text and an end of two; then the
// head of the answer. Tool definitions, system prompt and the responses API's input count as messages.
func chatTokens(b gjson.Result, add func(uint32)) {
	message := func(role, text string) {
		add(headToken)
		add(tokenID(role))
		add(tokenID("\n"))
		textTokens(text, add)
		add(endToken)
		add(tokenID("\n"))
	}
	if t := b.Get("tools"); t.IsArray() {
		message("tools", t.Raw)
	}
	for _, f := range []string{"system", "instructions"} {
		if v := b.Get(f); v.Exists() && v.Type != gjson.Null {
			message("system", contentText(v))
		}
	}
	if in := b.Get("input"); in.Type == gjson.String {
		message("user", in.Str)
	}
	for _, f := range []string{"messages", "input"} {
		b.Get(f).ForEach(func(_, m gjson.Result) bool {
			if m.IsObject() {
				message(m.Get("role").String(), contentText(m.Get("content"))+m.Get("tool_calls").Raw)
			}
			return true
		})
	}
	add(headToken)
	add(tokenID("assistant"))
	add(tokenID("\n"))
}

// contentText is a message's text: a string, or the text parts of a list.
func contentText(v gjson.Result) string {
	if !v.IsArray() {
		return v.String()
	}
	var sb strings.Builder
	v.ForEach(func(_, part gjson.Result) bool {
		if t := part.Get("text"); t.Exists() {
			sb.WriteString(t.String())
		} else {
			sb.WriteString(part.Raw)
		}
		return true
	})
	return sb.String()
}
