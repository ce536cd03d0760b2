package dialect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strconv"
)

// Edits is what may be changed in a request body. The zero value changes nothing.
type Edits struct {
	// Model replaces the top-level model name.
	Model *string
	// IncludeUsage asks for usage at the end of the stream, where the body asks for a stream and the operation is
	// chat or completions; it does nothing elsewhere. Nor does it where stream_options ask for continuous_usage_stats:
	// engines heed those only beside include_usage, so that asking for it would put usage on every chunk.
	IncludeUsage bool
	// OutputCap sets the bound on output tokens, in the fields that the caller used or else in the operation's
	// oldest one. It does nothing for operations without output tokens.
	OutputCap *int
	// DropPriority removes the top-level priority, whose sign means opposite things to the two engines.
	DropPriority bool
	// RequestID, unless empty, is set as rid, SGLang's name of the request; a caller's own is replaced.
	RequestID string
}

func (e Edits) none() bool {
	return e.Model == nil && !e.IncludeUsage && e.OutputCap == nil && !e.DropPriority && e.RequestID == ""
}

// ErrNotSpliceable is returned for a body that Read would refuse: there is no place where the edit could go.
var ErrNotSpliceable = errors.New("body cannot be edited")

// edit replaces body[at:end] by with.
type edit struct {
	at, end int
	with    string
}

// Splice applies edits to a body byte by byte: all that is not edited stays as it was, and where nothing has to
// change the result is body itself. Duplicate members are edited alike, so it does not matter which of them an
// engine reads. The error is ErrNotSpliceable, with the place, for a body that is not a JSON object or a form
// without a model, and for stream_options that are no object.
func Splice(ep Endpoint, body []byte, e Edits) ([]byte, error) {
	if e.none() {
		return body, nil
	}
	if ep.Multipart {
		return spliceForm(body, e)
	}
	if ep.Kind == KindOther && len(bytes.TrimSpace(body)) == 0 {
		return body, nil // an opened path that takes no body
	}
	if err := checkJSON(body); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSpliceable, err)
	}
	root := rootOf(body)
	if !root.isObject() {
		return nil, fmt.Errorf("%w: it is %s", ErrNotSpliceable, typeName(root))
	}
	if e.onlyPriority() && !mayHave(body, "priority") {
		return body, nil
	}
	s := splicer{members: slices.Collect(root.members())}
	if e.Model != nil {
		s.set("model", quote(*e.Model))
	}
	if e.OutputCap != nil {
		s.setCap(ep.Kind, *e.OutputCap)
	}
	if e.IncludeUsage && (ep.Kind == KindChat || ep.Kind == KindCompletions) {
		if err := s.includeUsage(); err != nil {
			return nil, err
		}
	}
	if e.DropPriority {
		s.drop("priority")
	}
	if e.RequestID != "" {
		s.set("rid", quote(e.RequestID))
	}
	return s.apply(body, root), nil
}

// onlyPriority reports whether nothing is to be done but to drop the priority.
func (e Edits) onlyPriority() bool {
	e.DropPriority = false
	return e.none()
}

// mayHave reports whether a member of that name, of plain letters, can be anywhere in a body. Letters can only be written
// otherwise with a \u.
func mayHave(body []byte, name string) bool {
	return bytes.Contains(body, []byte(name)) || bytes.Contains(body, []byte(`\u`))
}

// splicer collects the edits of one object.
type splicer struct {
	members []member
	edits   []edit
	insert  []byte
	dropped []bool
}

// set gives every member of that name the value, or inserts one when there is none.
func (s *splicer) set(name, raw string) {
	found := false
	for _, m := range s.members {
		if m.key.is(name) {
			found = true
			s.replace(m.val, raw)
		}
	}
	if !found {
		s.add(name, raw)
	}
}

func (s *splicer) replace(v value, raw string) {
	if string(v.raw) != raw {
		s.edits = append(s.edits, edit{v.at, v.end(), raw})
	}
}

func (s *splicer) add(name, raw string) {
	s.insert = append(s.insert, quote(name)+":"+raw+","...)
}

// last returns the last member of that name.
func (s *splicer) last(name string) value {
	for _, m := range slices.Backward(s.members) {
		if m.key.is(name) {
			return m.val
		}
	}
	return value{}
}

// used reports whether a member of that name has a value other than null.
func (s *splicer) used(name string) bool {
	return slices.ContainsFunc(s.members, func(m member) bool { return m.key.is(name) && !m.val.isNull() })
}

// setCap sets the fields that the caller used. Inserting goes to the field that every version of the engines knows.
func (s *splicer) setCap(k Kind, n int) {
	if !(Endpoint{Kind: k}).Generates() {
		return
	}
	raw, names, set := strconv.Itoa(n), capFields(k), false
	for _, name := range names {
		if s.used(name) {
			s.set(name, raw)
			set = true
		}
	}
	if !set {
		s.set(names[len(names)-1], raw)
	}
}

func (s *splicer) includeUsage() error {
	if s.last("stream").kind() != 't' {
		return nil
	}
	for _, m := range s.members {
		if v := m.val.get("continuous_usage_stats"); m.key.is("stream_options") && v.present() && v.kind() != 'f' {
			return nil
		}
	}
	const want = `{"include_usage":true}`
	found := false
	for _, m := range s.members {
		if !m.key.is("stream_options") {
			continue
		}
		found = true
		switch {
		case m.val.isNull():
			s.replace(m.val, want)
		case m.val.isObject():
			s.includeIn(m.val)
		default:
			return fmt.Errorf("%w: stream_options at byte %d is %s", ErrNotSpliceable, m.val.at, typeName(m.val))
		}
	}
	if !found {
		s.add("stream_options", want)
	}
	return nil
}

// includeIn sets include_usage inside stream_options that are there already.
func (s *splicer) includeIn(options value) {
	found, empty := false, true
	for m := range options.members() {
		empty = false
		if m.key.is("include_usage") {
			found = true
			s.replace(m.val, "true")
		}
	}
	if found {
		return
	}
	with := `"include_usage":true`
	if !empty {
		with += ","
	}
	s.edits = append(s.edits, edit{options.at + 1, options.at + 1, with})
}

// drop removes the members of that name, each with one comma beside it.
func (s *splicer) drop(name string) {
	kept := -1 // the last member that stays
	s.dropped = make([]bool, len(s.members))
	for i, m := range s.members {
		s.dropped[i] = m.key.is(name)
		if !s.dropped[i] {
			kept = i
		}
	}
	for i, m := range s.members {
		switch {
		case !s.dropped[i]:
		case i < kept:
			s.edits = append(s.edits, edit{m.key.at, s.members[i+1].key.at, ""})
		case kept < 0:
			s.edits = append(s.edits, edit{m.key.at, s.members[len(s.members)-1].val.end(), ""})
			return
		default:
			s.edits = append(s.edits, edit{s.members[kept].val.end(), s.members[len(s.members)-1].val.end(), ""})
			return
		}
	}
}

// apply writes the edited body. root is the object that the edits belong to.
func (s *splicer) apply(body []byte, root value) []byte {
	if len(s.insert) > 0 {
		if !slices.Contains(s.dropped, false) && (len(s.members) == 0 || s.dropped != nil) {
			s.insert = s.insert[:len(s.insert)-1] // nothing follows: no comma
		}
		s.edits = append(s.edits, edit{root.at + 1, root.at + 1, string(s.insert)})
	}
	return applyEdits(body, s.edits)
}

func applyEdits(body []byte, edits []edit) []byte {
	if len(edits) == 0 {
		return body
	}
	slices.SortStableFunc(edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.end, b.end))
	})
	size := len(body)
	for _, e := range edits {
		size += len(e.with) - (e.end - e.at)
	}
	out := make([]byte, 0, size)
	from := 0
	for _, e := range edits {
		out = append(append(out, body[from:e.at]...), e.with...)
		from = e.end
	}
	return append(out, body[from:]...)
}

// quote writes a JSON string. Marshalling a string cannot fail.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}

// spliceForm sets the model field of a multipart form; the other edits have no field there.
func spliceForm(body []byte, e Edits) ([]byte, error) {
	if e.Model == nil {
		return body, nil
	}
	boundary, _, ok := bytes.Cut(body, []byte("\r\n"))
	if !ok || !bytes.HasPrefix(boundary, []byte("--")) {
		return nil, fmt.Errorf("%w: the form does not start with its boundary", ErrNotSpliceable)
	}
	var edits []edit
	found := false
	mark := append([]byte("\r\n"), boundary...)
	for at := len(boundary); ; {
		part := body[at:]
		head := bytes.Index(part, []byte("\r\n\r\n"))
		if head < 0 {
			break
		}
		size := bytes.Index(part[head+4:], mark)
		if size < 0 {
			return nil, fmt.Errorf("%w: the form ends early", ErrNotSpliceable)
		}
		from := at + head + 4
		if isModelPart(part[:head]) {
			found = true
			edits = append(edits, edit{from, from + size, *e.Model})
		}
		at = from + size + len(mark)
	}
	if !found {
		return nil, fmt.Errorf("%w: the form has no model field", ErrNotSpliceable)
	}
	return applyEdits(body, edits), nil
}

// isModelPart reports whether the header lines of a part name the field "model".
func isModelPart(head []byte) bool {
	for line := range bytes.Lines(head) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		if !bytes.EqualFold(bytes.TrimSpace(name), []byte("content-disposition")) {
			continue
		}
		_, params, err := mime.ParseMediaType(string(bytes.TrimSpace(rest)))
		return err == nil && params["name"] == "model"
	}
	return false
}
