// Package filter reads the decision filter of the dashboard, the admin API and the command line.
//
// Goal: one small grammar, for instance
//
//	decision:reject reason:kv tenant:acme session:ab12 code:529 est>4000 !retry
//
// read strictly: a word that is not understood is an error that says where and what is known, never a filter that
// silently matches everything or nothing.
//
// Non-goals: or, brackets, patterns.
//
// Invariants: terms are joined by and; a comparison with a quantity that is not known is false (so its negation
// is true); reading takes bounded time and memory and never panics.
//
// Grammar:
//
//	filter = { term }                       separated by spaces
//	term   = [ "!" ] ( field ":" value | number-field op number | flag )
//	op     = ">" | ">=" | "<" | "<=" | "="
//	value  = word { "," word }, joined by or; in double quotes as a whole where a space stands in it
//
// A field matches from its beginning, whatever the case: reason:kv finds kv_pressure and kv_forecast, and
// decision:defer,reject every refusal; none finds an empty one. code takes 529 and 5xx. Numbers take k, M, %, ms and
// s; times are in milliseconds, kv is a fraction.
package filter

import (
	"fmt"
	"sort"
	"strings"

	"admitd/ui/api"
)

// Limits of a filter text.
const (
	MaxBytes = 1024
	MaxTerms = 32
)

// Filter is a compiled filter, immutable and safe for concurrent use. The zero Filter matches everything.
type Filter struct {
	text  string
	terms []func(*api.DecisionItem) bool
}

// Error says what is wrong in a filter and where.
type Error struct {
	// Column is the 1-based byte position of the term.
	Column int
	Text   string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("filter column %d: %s", e.Column, e.Text) }

// Match reports whether a decision passes all terms.
func (f *Filter) Match(d *api.DecisionItem) bool {
	for _, t := range f.terms {
		if !t(d) {
			return false
		}
	}
	return true
}

// String returns the text that was parsed.
func (f *Filter) String() string { return f.text }

// Parse reads a filter. An empty text matches everything. Errors are *Error.
func Parse(text string) (*Filter, error) {
	if len(text) > MaxBytes {
		return nil, &Error{MaxBytes + 1, fmt.Sprintf("the filter is %d bytes long; at most %d are read", len(text), MaxBytes)}
	}
	words, err := split(text)
	if err != nil {
		return nil, err
	}
	if len(words) > MaxTerms {
		return nil, &Error{words[MaxTerms].column, fmt.Sprintf("more than %d terms", MaxTerms)}
	}
	f := &Filter{text: text}
	for _, w := range words {
		match, err := term(w.text)
		if err != nil {
			return nil, &Error{w.column, err.Error()}
		}
		f.terms = append(f.terms, match)
	}
	return f, nil
}

type word struct {
	column int
	text   string
}

// split cuts the text at spaces outside double quotes.
func split(text string) ([]word, error) {
	var words []word
	start, quote := -1, -1
	for i := 0; i <= len(text); i++ {
		switch {
		case i == len(text):
			if quote >= 0 {
				return nil, &Error{quote + 1, "the double quote is not closed"}
			}
			fallthrough
		case quote < 0 && (text[i] == ' ' || text[i] == '\t'):
			if start >= 0 {
				words = append(words, word{start + 1, text[start:i]})
				start = -1
			}
		case text[i] < 0x20 || text[i] == 0x7f:
			return nil, &Error{i + 1, "control characters cannot stand in a filter"}
		default:
			if start < 0 {
				start = i
			}
			if text[i] == '"' {
				if quote >= 0 {
					quote = -1
				} else {
					quote = i
				}
			}
		}
	}
	return words, nil
}

func term(text string) (func(*api.DecisionItem) bool, error) {
	if rest, ok := strings.CutPrefix(text, "!"); ok {
		if strings.HasPrefix(rest, "!") {
			return nil, fmt.Errorf("%s: one ! is enough", quoted(text))
		}
		match, err := term(rest)
		if err != nil {
			return nil, err
		}
		return func(d *api.DecisionItem) bool { return !match(d) }, nil
	}
	i := strings.IndexAny(text, ":<>=")
	if i < 0 {
		if match, ok := flags[text]; ok {
			return match, nil
		}
		return nil, fmt.Errorf("%s is neither a flag (%s) nor of the form field:value or number>limit",
			quoted(text), names(flags))
	}
	if text[i] == ':' {
		return field(text[:i], text[i+1:])
	}
	return comparison(text[:i], text[i:])
}

func quoted(s string) string {
	if len(s) > 40 {
		s = s[:40] + "..."
	}
	return fmt.Sprintf("%q", s)
}

func names[V any](m map[string]V) string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}

// Fields lists the words of the grammar, for help texts: fields, numbers, flags. Sorted.
func Fields() (fields, nums, flagNames []string) {
	list := func(s string) []string { return strings.Split(s, ", ") }
	return list(fieldNames()), list(names(numbers)), list(names(flags))
}
