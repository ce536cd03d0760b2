package dialect

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// KindOther is an engine operation that admitd has no reader of its own for. When such a path is opened, every
// string in its body counts as prompt text.
const KindOther Kind = "other"

// Opening is a setting that opens a blocked path.
type Opening struct {
	// Path is a blocked path exactly as Table lists it, placeholders included.
	Path string
	// Class is Inference or Helper.
	Class Class
}

// Paths is an immutable path table. The zero value knows no path; use NewPaths.
type Paths struct {
	rows     []Endpoint
	exact    map[string]int
	patterns []int
}

// NewPaths returns the built-in table with the given blocked paths opened. It fails for a path that the table
// does not list as blocked and for a class other than Inference and Helper.
func NewPaths(open ...Opening) (*Paths, error) {
	rows := builtinRows()
	for _, o := range open {
		i := slices.IndexFunc(rows, func(e Endpoint) bool { return e.Path == o.Path })
		switch {
		case i < 0:
			return nil, fmt.Errorf("cannot open %q: admitd knows no such engine path", o.Path)
		case rows[i].Class != Blocked:
			return nil, fmt.Errorf("cannot open %q: it is not blocked but %s already", o.Path, rows[i].Class)
		case o.Class != Inference && o.Class != Helper:
			return nil, fmt.Errorf("cannot open %q as %q: the class must be %s or %s", o.Path, o.Class, Inference, Helper)
		}
		rows[i].Class = o.Class
	}
	return newPaths(rows), nil
}

func newPaths(rows []Endpoint) *Paths {
	p := &Paths{rows: rows, exact: make(map[string]int, len(rows))}
	for i, e := range rows {
		if strings.ContainsAny(e.Path, "{*") {
			p.patterns = append(p.patterns, i)
			continue
		}
		p.exact[e.Path] = i
	}
	return p
}

var builtin = newPaths(builtinRows())

// Classify looks a raw escaped path up in the built-in table. See Paths.Classify.
func Classify(method, escapedPath string) Endpoint { return builtin.Classify(method, escapedPath) }

// Table returns the built-in table in its documented order. The caller may keep and change the slice.
func Table() []Endpoint { return builtin.Table() }

// Table returns all rows. The caller may keep and change the slice, but not the Methods in it.
func (p *Paths) Table() []Endpoint { return slices.Clone(p.rows) }

// Classify returns the row of a raw escaped path (URL.EscapedPath), compared byte for byte: nothing is decoded,
// cleaned or lower-cased, so no spelling of a path can move it into another class. A path has one class whatever
// the method is; Endpoint.Allows says whether the method is taken. A path that no row matches gives Class
// Unknown with an empty Path.
func (p *Paths) Classify(_, escapedPath string) Endpoint {
	if i, ok := p.exact[escapedPath]; ok {
		return p.rows[i]
	}
	for _, i := range p.patterns {
		if matchPattern(p.rows[i].Path, escapedPath) {
			return p.rows[i]
		}
	}
	return Endpoint{Class: Unknown, Family: familyOf(escapedPath)}
}

// Allows reports whether the endpoint takes the method.
func (e Endpoint) Allows(method string) bool { return slices.Contains(e.Methods, method) }

// Generates reports whether the operation produces output tokens.
func (e Endpoint) Generates() bool {
	switch e.Kind {
	case KindChat, KindCompletions, KindResponses, KindMessages:
		return true
	}
	return false
}

// familyOf guesses the error shape for a path that is not in the table: whoever calls below /v1/messages reads
// Anthropic's.
func familyOf(path string) Family {
	if path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/") {
		return Anthropic
	}
	return OpenAI
}

// matchPattern matches "{name}" against one non-empty segment and a final "*" against one or more segments.
// Segments that a later hop could fold away (empty, dots, escaped dots) match nothing.
func matchPattern(pattern, path string) bool {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, w := range want {
		if i >= len(got) {
			return false
		}
		if w == "*" {
			return i > 0 && !slices.ContainsFunc(got[i:], foldable)
		}
		if strings.HasPrefix(w, "{") {
			if foldable(got[i]) {
				return false
			}
			continue
		}
		if w != got[i] {
			return false
		}
	}
	return len(want) == len(got)
}

func foldable(segment string) bool {
	s := strings.ReplaceAll(strings.ToLower(segment), "%2e", ".")
	return s == "" || s == "." || s == ".."
}

func builtinRows() []Endpoint {
	post, get := []string{http.MethodPost}, []string{http.MethodGet, http.MethodHead}
	row := func(path string, c Class, k Kind, methods []string) Endpoint {
		return Endpoint{Path: path, Class: c, Kind: k, Family: familyOf(path), Methods: methods}
	}
	form := func(path string) Endpoint {
		e := row(path, Inference, KindAudio, post)
		e.Multipart = true
		return e
	}
	rows := []Endpoint{
		row("/v1/chat/completions", Inference, KindChat, post),
		row("/v1/completions", Inference, KindCompletions, post),
		row("/v1/responses", Inference, KindResponses, post),
		row("/v1/messages", Inference, KindMessages, post),
		row("/v1/embeddings", Inference, KindEmbeddings, post),
		row("/v1/rerank", Inference, KindRerank, post),
		row("/rerank", Inference, KindRerank, post),
		row("/v1/score", Inference, KindScore, post),
		row("/score", Inference, KindScore, post),
		row("/pooling", Inference, KindPooling, post),
		row("/classify", Inference, KindClassify, post),
		row("/v1/classify", Inference, KindClassify, post),
		form("/v1/audio/transcriptions"),
		form("/v1/audio/translations"),
		row("/v1/audio/speech", Inference, KindAudio, post),

		row("/tokenize", Helper, KindTokenize, post),
		row("/detokenize", Helper, KindDetokenize, post),
		row("/v1/messages/count_tokens", Helper, KindCountTokens, post),

		row("/v1/models", Own, KindModels, get),
		row("/v1/models/{id}", Own, KindModels, get),
		row("/health", Own, KindHealth, get),
		row("/v1/admit", Own, KindAdmit, post),
	}
	for _, b := range blockedPaths {
		kind := b.kind
		if kind == "" {
			kind = KindOther
		}
		rows = append(rows, row(b.path, Blocked, kind, anyMethod))
	}
	return rows
}

// anyMethod is every method that a blocked path may be opened for; the engine answers 405 for the wrong one.
var anyMethod = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// blockedPaths are the routes of vLLM (0.6 to 0.32) and SGLang (to 0.5.16) that callers have no business with.
var blockedPaths = []struct {
	path string
	kind Kind
}{
	// Work for the model that is not priced by a reader of its own, or that duplicates an open path.
	{"/v1/chat/completions/batch", ""}, {"/invocations", ""}, {"/inference/v1/generate", ""}, {"/generate", ""},
	{"/encode", ""}, {"/vertex_generate", ""}, {"/generative_scoring", ""}, {"/v1/systemone", ""}, {"/v1/realtime", ""},
	{"/v2/embed", ""}, {"/v2/rerank", KindRerank}, {"/v1/tokenize", KindTokenize}, {"/v1/detokenize", KindDetokenize},
	{"/v1/chat/completions/render", KindChat}, {"/v1/messages/render", KindMessages},
	{"/v1/completions/render", KindCompletions}, {"/v1/responses/render", KindResponses},
	{"/v1/chat/completions/derender", ""}, {"/v1/completions/derender", ""}, {"/api/*", ""},
	// Stored answers, files and batches.
	{"/v1/responses/{id}", ""}, {"/v1/responses/{id}/cancel", ""}, {"/v1/files", ""}, {"/v1/files/*", ""},
	{"/v1/batches", ""}, {"/v1/batches/*", ""}, {"/v1/conversations", ""}, {"/v1/conversations/*", ""},
	// What the engine tells about itself.
	{"/", ""}, {"/openapi.json", ""}, {"/docs", ""}, {"/docs/oauth2-redirect", ""}, {"/redoc", ""}, {"/load", ""}, {"/version", ""},
	{"/kv_event_sources", ""}, {"/metrics", ""}, {"/metrics/", ""}, {"/ping", ""}, {"/health_generate", ""},
	{"/server_info", ""}, {"/get_server_info", ""}, {"/model_info", ""}, {"/get_model_info", ""},
	{"/tokenizer_info", ""}, {"/v1/loads", ""}, {"/get_load", ""}, {"/is_sleeping", ""}, {"/is_paused", ""},
	{"/is_scaling_elastic_ep", ""},
	// What changes the engine.
	{"/sleep", ""}, {"/wake_up", ""}, {"/pause", ""}, {"/resume", ""}, {"/pause_generation", ""},
	{"/continue_generation", ""}, {"/slow_down", ""}, {"/scale_elastic_ep", ""}, {"/reset_prefix_cache", ""},
	{"/reset_mm_cache", ""}, {"/reset_encoder_cache", ""}, {"/flush_cache", ""}, {"/collective_rpc", ""},
	{"/abort_request", ""}, {"/abort_requests", ""}, {"/inference/v1/abort_requests", ""},
	{"/v1/load_lora_adapter", ""}, {"/v1/unload_lora_adapter", ""}, {"/load_lora_adapter", ""},
	{"/unload_lora_adapter", ""}, {"/start_profile", ""}, {"/stop_profile", ""}, {"/init_weight_transfer_engine", ""},
	{"/update_weights", ""}, {"/get_world_size", ""}, {"/update_weights_from_disk", ""},
	{"/update_weights_from_tensor", ""}, {"/update_weights_from_distributed", ""}, {"/init_weights_update_group", ""},
	{"/destroy_weights_update_group", ""}, {"/get_weights_by_name", ""}, {"/release_memory_occupation", ""},
	{"/resume_memory_occupation", ""}, {"/open_session", ""}, {"/close_session", ""}, {"/set_internal_state", ""},
	{"/start_expert_distribution_record", ""}, {"/stop_expert_distribution_record", ""},
	{"/dump_expert_distribution_record", ""}, {"/configure_logging", ""}, {"/freeze_gc", ""},
}
