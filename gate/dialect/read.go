package dialect

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/cespare/xxhash/v2"

	"admitd/gate/reason"
)

const (
	// maxOutputCap is the largest output cap that is taken seriously.
	maxOutputCap = 1 << 31
	// maxSequences bounds n and best_of.
	maxSequences = 128
	// maxModelName bounds a model name in bytes.
	maxModelName = 256
)

// Read takes the facts out of a request without re-encoding it: those that stand in headers and those in the
// body. A non-nil Problem means that the request must be refused; Facts then hold what had been understood
// until there. Malformed optional hints are never a Problem: they are ignored and counted in BadHints.
func Read(ep Endpoint, h http.Header, body []byte) (Facts, *Problem) {
	f := Facts{Endpoint: ep, BodyBytes: len(body), Sequences: 1, Prompts: 1}
	readHints(&f, h)
	if ep.Kind == KindModels || ep.Kind == KindHealth {
		return f, nil
	}
	f.BodyHash = xxhash.Sum64(body)
	if ep.Multipart {
		p := readForm(&f, h, body)
		f.Session = sessionOf(&f, h, fields{})
		return f, p
	}
	if ep.Kind == KindOther && len(bytes.TrimSpace(body)) == 0 {
		return f, nil
	}
	top, p := readFields(body)
	if p != nil {
		return f, p
	}
	if p := readBody(&f, top); p != nil {
		return f, p
	}
	f.Session = sessionOf(&f, h, top)
	return f, nil
}

// fields are the top-level members that this package knows.
type fields []field

type field struct {
	name string
	val  value
}

// get returns the member of that name, the zero value when there is none. There are few, so that looking along them is quick.
func (f fields) get(name string) value {
	for i := range f {
		if f[i].name == name {
			return f[i].val
		}
	}
	return value{}
}

// set puts a member in, or another value in its place, and reports whether there was one.
func (f *fields) set(name string, v value) (twice bool) {
	for i := range *f {
		if (*f)[i].name == name {
			(*f)[i].val = v
			return true
		}
	}
	*f = append(*f, field{name, v})
	return false
}

// wholeBody is the key under which fields hold the whole body.
const wholeBody = ""

// fieldNames lists the members to look at; true marks those that a decision rests on. Engines disagree on which
// of two such members counts, so they must not appear twice.
var fieldNames = known(map[string]bool{
	"model": true, "stream": true, "stream_options": true, "max_tokens": true, "max_completion_tokens": true,
	"max_output_tokens": true, "n": true, "best_of": true, "use_beam_search": true, "messages": true, "prompt": true,
	"prompt_embeds": true, "input": true, "system": true, "instructions": true, "tools": true, "sampling_params": true,
	"background": true, "truncation": true, "truncate_prompt_tokens": true,
	"functions": false, "tokens": false, "query": false, "documents": false, "queries": false, "items": false,
	"text_1": false, "text_2": false, "data_1": false, "data_2": false, "data": false, "max_new_tokens": false,
	"vllm_xargs": false, "agent_hint": false, "program_id": false, "extra_body": false, "metadata": false,
	"prompt_cache_key": false, "previous_response_id": false,
})

// knownField is a member to look at, under a name that needs no copy.
type knownField struct {
	name string
	once bool
}

func known(names map[string]bool) map[string]knownField {
	m := make(map[string]knownField, len(names))
	for name, once := range names {
		m[name] = knownField{name, once}
	}
	return m
}

// readFields checks the whole body and finds its top-level members.
func readFields(body []byte) (fields, *Problem) {
	if err := checkJSON(body); err != nil {
		if bytes.HasPrefix(body, []byte("\xef\xbb\xbf")) {
			return nil, bad("", "The body starts with a byte order mark; send JSON in plain UTF-8 without one.")
		}
		return nil, bad("", "The body is not valid JSON: %s. Send one JSON object in UTF-8.", err)
	}
	root := rootOf(body)
	if !root.isObject() {
		return nil, bad("", "The body must be a JSON object, but it is %s.", typeName(root))
	}
	top := make(fields, 0, 8)
	top.set(wholeBody, root)
	for m := range root.members() {
		name := m.key.raw[1 : len(m.key.raw)-1]
		if bytes.IndexByte(name, '\\') >= 0 && len(name) < 256 {
			name = []byte(m.key.text())
		}
		known, ok := fieldNames[string(name)]
		if !ok {
			continue
		}
		if top.set(known.name, m.val) && known.once {
			return nil, bad(known.name, "The field %q appears twice in the body; send it once.", name)
		}
	}
	return top, nil
}

func readBody(f *Facts, top fields) *Problem {
	if p := readModel(f, top.get("model")); p != nil {
		return p
	}
	if p := readStream(f, top); p != nil {
		return p
	}
	if p := readCaps(f, top); p != nil {
		return p
	}
	if p := readBackground(f, top); p != nil {
		return p
	}
	f.Truncates = truncates(f.Endpoint.Kind, top)
	if p := readSequences(f, top); p != nil {
		return p
	}
	return readPrompt(f, top)
}

func readModel(f *Facts, v value) *Problem {
	if !v.present() {
		if needsModel(f.Endpoint) {
			return bad("model", `The field "model" is missing; GET /v1/models lists the names.`)
		}
		return nil
	}
	if !v.isString() {
		return bad("model", `The field "model" must be a string, but it is %s.`, typeName(v))
	}
	if len(v.raw) > 6*maxModelName {
		return longModel()
	}
	return setModel(f, v.text())
}

func setModel(f *Facts, name string) *Problem {
	switch {
	case strings.TrimSpace(name) == "":
		return bad("model", `The field "model" is empty; GET /v1/models lists the names.`)
	case len(name) > maxModelName:
		return longModel()
	}
	f.Model = name
	return nil
}

func longModel() *Problem {
	return bad("model", `The field "model" is longer than %d bytes; GET /v1/models lists the names.`, maxModelName)
}

// needsModel: everything priced names its model, so that limits and rights are decided on a name that the caller
// said and never on the engine's default.
func needsModel(ep Endpoint) bool {
	return ep.Class == Inference && ep.Kind != KindOther
}

func readStream(f *Facts, top fields) *Problem {
	v := top.get("stream")
	if v.present() && !v.isBool() {
		return bad("stream", `The field "stream" must be true or false, but it is %s.`, typeName(v))
	}
	f.Stream = v.kind() == 't'
	o := top.get("stream_options")
	if !o.present() || f.Endpoint.Kind != KindChat && f.Endpoint.Kind != KindCompletions {
		return nil
	}
	if !o.isObject() {
		return bad("stream_options", `The field "stream_options" must be an object, but it is %s.`, typeName(o))
	}
	u := o.get("include_usage")
	if u.present() && !u.isBool() {
		return bad("stream_options.include_usage", `The field "stream_options.include_usage" must be true or false, but it is %s.`, typeName(u))
	}
	f.IncludeUsage = u.kind() == 't'
	return nil
}

// capFields names the members that bound the output, by operation.
func capFields(k Kind) []string {
	switch k {
	case KindChat:
		return []string{"max_completion_tokens", "max_tokens"}
	case KindCompletions, KindMessages:
		return []string{"max_tokens"}
	case KindResponses:
		return []string{"max_output_tokens"}
	case KindAdmit, KindOther:
		return []string{"max_completion_tokens", "max_tokens", "max_output_tokens", "max_new_tokens"}
	}
	return nil
}

func readCaps(f *Facts, top fields) *Problem {
	first := ""
	for _, name := range capFields(f.Endpoint.Kind) {
		n, p := readCap(top.get(name), name)
		if p != nil {
			return p
		}
		switch {
		case n == nil:
		case f.OutputCap == nil:
			f.OutputCap, first = n, name
		case *n != *f.OutputCap:
			return badCap(name, "The fields %q (%d) and %q (%d) contradict each other; send one of them.", first, *f.OutputCap, name, *n)
		}
	}
	if sampling := top.get("sampling_params"); f.Endpoint.Kind == KindOther && f.OutputCap == nil && sampling.isObject() {
		for _, name := range []string{"max_tokens", "max_new_tokens"} {
			n, p := readCap(sampling.get(name), "sampling_params."+name)
			if p != nil {
				return p
			}
			if n != nil {
				f.OutputCap = n
			}
		}
	}
	return nil
}

func readCap(v value, name string) (*int, *Problem) {
	if !v.present() {
		return nil, nil
	}
	if !v.isNumber() {
		return nil, bad(name, "The field %q must be a whole number, but it is %s.", name, typeName(v))
	}
	n, ok := v.integer()
	if !ok || n < 1 || n > maxOutputCap {
		return nil, badCap(name, "The field %q must be a whole number from 1 to %d.", name, maxOutputCap)
	}
	out := int(n)
	return &out, nil
}

// readBackground refuses background responses: the engine would answer at once and work on outside the reservation,
// and the paths that fetch and cancel such a response are closed.
func readBackground(f *Facts, top fields) *Problem {
	v := top.get("background")
	responses := f.Endpoint.Kind == KindResponses || f.Endpoint.Kind == KindAdmit && top.get("input").present()
	if !responses || !v.present() {
		return nil
	}
	if !v.isBool() {
		return bad("background", `The field "background" must be true or false, but it is %s.`, typeName(v))
	}
	if v.kind() == 't' {
		return bad("background", "Background responses cannot be fetched through this gate; send background: false.")
	}
	return nil
}

// truncates reports whether the caller asked the engine to cut a prompt that is too long: vLLM's
// truncate_prompt_tokens (-1 stands for the model's length) or truncation "auto" of the responses dialect. Its value is
// for the engine to judge.
func truncates(k Kind, top fields) bool {
	auto := top.get("truncation").is("auto") && (k == KindResponses || k == KindAdmit)
	return auto || top.get("truncate_prompt_tokens").present() && k != KindMessages && k != KindResponses
}

func readSequences(f *Facts, top fields) *Problem {
	switch f.Endpoint.Kind {
	case KindChat, KindCompletions, KindAdmit, KindOther:
	default:
		return nil
	}
	if v := top.get("use_beam_search"); v.present() && !v.isBool() {
		return bad("use_beam_search", `The field "use_beam_search" must be true or false, but it is %s.`, typeName(v))
	}
	// With beam search n is the beam width, so it needs no case of its own.
	for _, name := range []string{"n", "best_of"} {
		v := top.get(name)
		if !v.present() {
			continue
		}
		n, ok := v.integer()
		if !ok || n < 1 || n > maxSequences {
			return bad(name, "The field %q must be a whole number from 1 to %d.", name, maxSequences)
		}
		f.Sequences = max(f.Sequences, int(n))
	}
	return nil
}

// bad builds the Problem of a malformed request.
func bad(param, format string, args ...any) *Problem {
	return &Problem{Reason: reason.BadRequest, Message: fmt.Sprintf(format, args...), Param: param}
}

// badCap builds the Problem of an output cap that nobody can serve.
func badCap(param, format string, args ...any) *Problem {
	return &Problem{Reason: reason.OutputCap, Message: fmt.Sprintf(format, args...), Param: param}
}
