// Package strict reads YAML files so that every mistake has a place.
//
// Goal: one decoder for configuration, policies and model tables: unknown keys, duplicate keys and wrong types
// are errors with file, line, column and field.
//
// Non-goals: validation of values (the owner of the struct does that and asks Locate for the place), writing YAML.
//
// Invariants: nothing is decoded in part: on an error the target must not be used; messages are one line each
// and say what is allowed where that is known.
package strict

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxBytes bounds a file: far above any sane policy or configuration.
const maxBytes = 1 << 20

// Place is one mistake. Line and Column count from 1 and are 0 when the mistake has no single place.
type Place struct {
	File   string
	Line   int
	Column int
	// Field is the dotted path of the key, "" when not known.
	Field string
	Text  string
}

// String gives file:line:column: field: text.
func (p Place) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		b.WriteByte(':')
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", p.Line, p.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if p.Field != "" {
		b.WriteString(p.Field)
		b.WriteString(": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Error lists every mistake found, in the order of the file.
type Error struct {
	Places []Place
	// Cause is the error of the system behind it, nil when the text itself is wrong.
	Cause error
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Error implements error: one line per place.
func (e *Error) Error() string {
	lines := make([]string, len(e.Places))
	for i, p := range e.Places {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Errorf returns an Error with one place: that of the dotted path in src.
func Errorf(file string, src []byte, path, format string, args ...any) *Error {
	p := Locate(file, src, path)
	p.Text = fmt.Sprintf(format, args...)
	return &Error{Places: []Place{p}}
}

// Join merges errors into one Error sorted by line and column; nil and non-strict errors are kept as plain places.
// It returns nil when nothing is left.
func Join(errs ...error) error {
	var places []Place
	for _, err := range errs {
		if err == nil {
			continue
		}
		if se, ok := errors.AsType[*Error](err); ok {
			places = append(places, se.Places...)
			continue
		}
		places = append(places, Place{Text: err.Error()})
	}
	if len(places) == 0 {
		return nil
	}
	sort.SliceStable(places, func(i, j int) bool {
		if places[i].Line != places[j].Line {
			return places[i].Line < places[j].Line
		}
		return places[i].Column < places[j].Column
	})
	return &Error{Places: places}
}

// Decode reads one YAML document into the struct that into points to. Unknown keys, duplicate keys, wrong types,
// a second document and more than 1 MiB are errors, always an *Error. An empty document leaves into as it is.
func Decode(file string, src []byte, into any) (err error) {
	if len(src) > maxBytes {
		return &Error{Places: []Place{{File: file, Text: fmt.Sprintf("the file has %d bytes; the limit is %d", len(src), maxBytes)}}}
	}
	defer func() {
		// The YAML library is not ours: a panic in it on odd input is an error of the file, not the end of the program.
		if r := recover(); r != nil {
			err = &Error{Places: []Place{{File: file, Text: "this is not YAML that can be read"}}}
		}
	}()
	src = withoutBOM(src)
	if p, bad := notText(file, src); bad {
		return &Error{Places: []Place{p}}
	}
	f, perr := parser.ParseBytes(src, 0)
	if perr != nil {
		return convert(file, perr, nil)
	}
	docs := 0
	for _, d := range f.Docs {
		if d.Body != nil {
			docs++
		}
		if docs > 1 {
			tok := d.Body.GetToken()
			return &Error{Places: []Place{{File: file, Line: tok.Position.Line, Column: tok.Position.Column, Text: "a second document starts here; one file holds one document"}}}
		}
	}
	if docs == 0 {
		return nil
	}
	for _, d := range f.Docs {
		if d.Body == nil {
			continue
		}
		if places := scalars(file, "", d.Body, reflect.TypeOf(into), nil); len(places) > 0 {
			return &Error{Places: places}
		}
	}
	if derr := yaml.NewDecoder(bytes.NewReader(src), yaml.Strict()).Decode(into); derr != nil {
		return convert(file, derr, into)
	}
	return nil
}

// withoutBOM drops the byte order mark that some editors begin a file with.
func withoutBOM(src []byte) []byte { return bytes.TrimPrefix(src, []byte("\xef\xbb\xbf")) }

// notText finds the first place that is not UTF-8, and the directives that this reader does not take.
func notText(file string, src []byte) (Place, bool) {
	for i, line := range bytes.Split(src, []byte("\n")) {
		if bytes.HasPrefix(line, []byte("%")) {
			return Place{File: file, Line: i + 1, Column: 1, Text: "a line that begins with % is a YAML directive, which is not taken here; remove it"}, true
		}
		if utf8.Valid(line) {
			continue
		}
		for at, r := range string(line) { // an invalid byte reads as U+FFFD of width 1
			if _, n := utf8.DecodeRune(line[at:]); r == utf8.RuneError && n == 1 {
				return Place{File: file, Line: i + 1, Column: utf8.RuneCount(line[:at]) + 1,
					Text: fmt.Sprintf("the byte 0x%02x is not UTF-8; save the file as UTF-8", line[at])}, true
			}
		}
	}
	return Place{}, false
}

// convert turns the YAML library's error into ours, and names the allowed keys for an unknown one.
func convert(file string, err error, into any) *Error {
	p := Place{File: file, Text: firstLine(err.Error())}
	if ye, ok := errors.AsType[yaml.Error](err); ok {
		p.Text = ye.GetMessage()
		if tok := ye.GetToken(); tok != nil && tok.Position != nil {
			p.Line, p.Column = tok.Position.Line, tok.Position.Column
			if _, ok := errors.AsType[*yaml.UnknownFieldError](err); ok {
				p.Field = tok.Value
				p.Text = "unknown key" + allowed(into, tok.Value)
			}
			if typ, ok := errors.AsType[*yaml.TypeError](err); ok {
				p.Text = fmt.Sprintf("%q is not %s", tok.Value, want(typ.DstType))
			}
		}
	}
	p.Text = strings.TrimSpace(strings.ReplaceAll(p.Text, "\n", " "))
	return &Error{Places: []Place{p}}
}

// want says in words what a Go type takes.
func want(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 1500ms, 2s or 10m"
	case t == reflect.TypeFor[time.Time]():
		return "a time such as 2026-12-31T00:00:00Z"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a group of keys"
	}
	return "a value of the right kind"
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// allowed lists the keys of the struct that would take the key best: the one with a key most like it.
func allowed(into any, key string) string {
	if into == nil {
		return ""
	}
	best, score := []string(nil), -1
	walkStructs(reflect.TypeOf(into), map[reflect.Type]bool{}, func(keys []string) {
		for _, k := range keys {
			if s := likeness(k, key); s > score {
				best, score = keys, s
			}
		}
	})
	if len(best) == 0 {
		return ""
	}
	for _, k := range best {
		if likeness(k, key) == score && 2*score >= len(key) {
			return fmt.Sprintf("; did you mean %s?", k)
		}
	}
	return ""
}

// likeness counts the letters that two words share at their ends, and in their beginnings.
func likeness(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	m := 0
	for m < len(a)-n && m < len(b)-n && a[len(a)-1-m] == b[len(b)-1-m] {
		m++
	}
	return n + m
}

func walkStructs(t reflect.Type, seen map[reflect.Type]bool, visit func([]string)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return
	}
	seen[t] = true
	var keys []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name != "" && name != "-" {
			keys = append(keys, name)
		}
		walkStructs(f.Type, seen, visit)
	}
	if len(keys) > 0 {
		visit(keys)
	}
}

// Locate finds the place of a dotted path such as params.max_waiting in src. When the path is not there, its
// nearest parent that is; Line is 0 when nothing of it is there. Text is left empty.
func Locate(file string, src []byte, path string) Place {
	p := Place{File: file, Field: path}
	f, err := parser.ParseBytes(withoutBOM(src), 0)
	if err != nil || len(f.Docs) == 0 || f.Docs[0].Body == nil {
		return p
	}
	var node = f.Docs[0].Body
	for key := range strings.SplitSeq(path, ".") {
		next, tokenNode := child(node, key)
		if tokenNode == nil {
			break
		}
		pos := tokenNode.GetToken().Position
		p.Line, p.Column = pos.Line, pos.Column
		if next == nil {
			break
		}
		node = next
	}
	return p
}

// child returns the value under key and the node that marks its place: the key of a mapping, or the item of a
// sequence when key is a number.
func child(n ast.Node, key string) (value, mark ast.Node) {
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, mv := range n.Values {
			if mv.Key.GetToken().Value == key {
				return mv.Value, mv.Key
			}
		}
	case *ast.MappingValueNode:
		if n.Key.GetToken().Value == key {
			return n.Value, n.Key
		}
	case *ast.SequenceNode:
		for i, v := range n.Values {
			if strconv.Itoa(i) == key {
				return v, v
			}
		}
	}
	return nil, nil
}
