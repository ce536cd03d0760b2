package dialect

import (
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// SourceDerived names a session id that was made from the prompt's hash, because the caller said nothing.
const SourceDerived = "derived"

// maxContext bounds an agentic_context that comes as a JSON string.
const maxContext = 16 << 10

// headerFamily is one harness's set of identity headers.
type headerFamily struct {
	source                string
	id                    []string
	agent, parent, fanout string
}

// ownHeaders are admitd's own and come before everything else.
var ownHeaders = headerFamily{
	source: "x-admitd-session", id: []string{"X-Admitd-Session"}, parent: "X-Admitd-Parent", fanout: "X-Admitd-Fanout",
}

// harnessHeaders are those of known harnesses, in the order in which they are asked.
var harnessHeaders = []headerFamily{
	{source: "x-claude-code-session-id", id: []string{"X-Claude-Code-Session-Id"}, agent: "X-Claude-Code-Agent-Id", parent: "X-Claude-Code-Parent-Agent-Id"},
	{source: "x-dynamo-session-id", id: []string{"X-Dynamo-Session-Id"}, parent: "X-Dynamo-Parent-Session-Id"},
	{source: "x-session-affinity", id: []string{"X-Session-Affinity"}},
	{source: "session-id", id: []string{"Session-Id", "Session_id"}, agent: "Thread-Id"},
	{source: "x-litellm-session-id", id: []string{"X-Litellm-Session-Id"}},
	{source: "x-session-id", id: []string{"X-Session-Id"}},
}

// sessionOf finds out which agent task a request belongs to. The first source that gives an id gives everything:
// sources are never mixed. Malformed hints are counted in f.BadHints and passed over.
func sessionOf(f *Facts, h http.Header, top fields) Session {
	if s := f.fromHeaders(h, ownHeaders); s.ID != "" {
		return s
	}
	if s := f.fromContext(top.get("vllm_xargs").get("agentic_context")); s.ID != "" {
		return s
	}
	if s := f.fromHint(top.get("agent_hint")); s.ID != "" {
		return s
	}
	for _, family := range harnessHeaders {
		if s := f.fromHeaders(h, family); s.ID != "" {
			return s
		}
	}
	if s := f.fromBody(top); s.ID != "" {
		return s
	}
	if id := derive(f, top); id != "" {
		return Session{ID: id, Source: SourceDerived}
	}
	return Session{}
}

func (f *Facts) fromHeaders(h http.Header, family headerFamily) Session {
	s := Session{Source: family.source}
	for _, name := range family.id {
		if s.ID = f.part(header(h, name), maxHint); s.ID != "" {
			break
		}
	}
	if s.ID == "" {
		return Session{}
	}
	s.Agent = f.part(header(h, family.agent), maxHint)
	s.Parent = f.part(header(h, family.parent), maxHint)
	if family.fanout != "" {
		s.Fanout = f.count(h, family.fanout, maxFanout)
	}
	return s
}

func header(h http.Header, name string) []string {
	if name == "" {
		return nil
	}
	return h[name]
}

// fromContext reads vllm_xargs.agentic_context: an object, or a string that holds one.
func (f *Facts) fromContext(v value) Session {
	if !v.present() {
		return Session{}
	}
	if v.isString() && len(v.raw) <= 6*maxContext {
		text := []byte(v.text())
		if len(text) <= maxContext && checkJSON(text) == nil {
			v = rootOf(text)
		}
	}
	if !v.isObject() {
		f.BadHints++
		return Session{}
	}
	s := Session{
		ID:     f.firstOf(v, "session_id", "task_id", "program_id"),
		Agent:  f.firstOf(v, "agent_id", "program_id"),
		Parent: f.firstOf(v, "parent_program_id", "parent_id", "parent_agent_id"),
		Source: "agentic_context",
	}
	if s.Agent == s.ID {
		s.Agent = ""
	}
	return s
}

// fromHint reads agent_hint, which names sessions only.
func (f *Facts) fromHint(v value) Session {
	if !v.present() {
		return Session{}
	}
	if !v.isObject() {
		f.BadHints++
		return Session{}
	}
	return Session{ID: f.firstOf(v, "session_id"), Parent: f.firstOf(v, "parent_session_id"), Source: "agent_hint"}
}

func (f *Facts) fromBody(top fields) Session {
	for _, c := range []struct {
		source string
		v      value
	}{
		{"program_id", top.get("program_id")},
		{"extra_body.program_id", top.get("extra_body").get("program_id")},
		{"metadata.session_id", top.get("metadata").get("session_id")},
	} {
		if id := f.hint(c.v); id != "" {
			return Session{ID: id, Source: c.source}
		}
	}
	if f.Endpoint.Family == Anthropic {
		if id := f.userSession(top.get("metadata").get("user_id")); id != "" {
			return Session{ID: id, Source: "metadata.user_id"}
		}
	}
	return Session{ID: f.hint(top.get("prompt_cache_key")), Source: "prompt_cache_key"}
}

// userSession takes the session part out of an Anthropic user_id, which Claude Code writes as
// "user_…_account_…_session_<id>" or as a JSON object in a string. A user_id without one is no session.
func (f *Facts) userSession(v value) string {
	if !v.isString() || len(v.raw) > 4*maxHint {
		return ""
	}
	text := v.text()
	if _, id, ok := strings.Cut(text, "_session_"); ok {
		return f.part([]string{id}, maxHint)
	}
	if b := []byte(text); strings.HasPrefix(text, "{") && checkJSON(b) == nil {
		return f.hint(rootOf(b).get("session_id"))
	}
	return ""
}

// firstOf returns the first of the members that holds a usable name.
func (f *Facts) firstOf(v value, names ...string) string {
	for _, name := range names {
		if s := f.hint(v.get(name)); s != "" {
			return s
		}
	}
	return ""
}

// hint reads an optional name from the body: a string or a whole number.
func (f *Facts) hint(v value) string {
	switch {
	case !v.present():
		return ""
	case v.isString() && len(v.raw) <= 6*maxHint+2:
		return f.part([]string{v.text()}, maxHint)
	case v.isNumber():
		if n, ok := v.integer(); ok {
			return strconv.FormatInt(n, 10)
		}
	}
	f.BadHints++
	return ""
}

// derive makes a session id of what stays the same from turn to turn: a hash chain over the model, the system
// prompt and the first user message. It is "" when there is no user message.
func derive(f *Facts, top fields) string {
	chain := xxhash.New()
	writeString(chain, f.Model)
	found := false
	switch f.Endpoint.Kind {
	case KindChat:
		found = chainMessages(chain, top.get("messages"))
	case KindMessages:
		chainContent(chain, top.get("system"))
		link(chain)
		found = chainMessages(chain, top.get("messages"))
	case KindResponses:
		chainContent(chain, top.get("instructions"))
		link(chain)
		if input := top.get("input"); input.isString() {
			found = chainContent(chain, input)
		} else {
			found = chainMessages(chain, input)
		}
	}
	if !found {
		return ""
	}
	return hex64(chain.Sum64())
}

// hex64 writes a hash with 16 digits.
func hex64(n uint64) string {
	var raw [8]byte
	var text [16]byte
	binary.BigEndian.PutUint64(raw[:], n)
	hex.Encode(text[:], raw[:])
	return string(text[:])
}

// chainMessages adds the system messages that come first and the first user message. It reports whether there
// was a user message with content.
func chainMessages(chain *xxhash.Digest, messages value) bool {
	for m := range messages.items() {
		switch role := m.get("role"); {
		case role.is("system") || role.is("developer"):
			chainContent(chain, m.get("content"))
			link(chain)
		case role.is("user"):
			return chainContent(chain, m.get("content"))
		}
	}
	return false
}

// chainContent adds content by its text, so that marks beside the text (cache_control moves from turn to turn)
// do not change the session. It reports whether there was any.
func chainContent(chain *xxhash.Digest, v value) (added bool) {
	switch v.kind() {
	case '"':
		writeBytes(chain, v.raw)
		return len(v.raw) > len(`""`)
	case '[':
		for item := range v.items() {
			added = chainContent(chain, item) || added
		}
		return added
	case '{':
		if text := v.get("text"); text.isString() {
			return chainContent(chain, text)
		}
		writeBytes(chain, v.raw)
		return true
	}
	return false
}

// link replaces the chain's state by the hash of what it has seen, so that each part rests on those before it.
func link(chain *xxhash.Digest) {
	var sum [8]byte
	binary.BigEndian.PutUint64(sum[:], chain.Sum64())
	chain.Reset()
	writeBytes(chain, sum[:])
}

// A Digest's Write never fails.
func writeBytes(d *xxhash.Digest, b []byte)  { _, _ = d.Write(b) }
func writeString(d *xxhash.Digest, s string) { _, _ = d.WriteString(s) }
