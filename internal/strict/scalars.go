package strict

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// scalars finds what the YAML library would take without complaint, or complain about without a place: fractions
// where a whole number is wanted, durations and times that are none, and what a type's own reader refuses. Everything else is left to the library.
func scalars(file, path string, n ast.Node, t reflect.Type, found []Place) []Place {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, mv := range n.Values {
			found = scalars(file, path, mv, t, found)
		}
	case *ast.MappingValueNode:
		key := n.Key.GetToken().Value
		found = scalars(file, strings.TrimPrefix(path+"."+key, "."), n.Value, keyType(t, key), found)
	case *ast.SequenceNode:
		if t == nil || t.Kind() != reflect.Slice {
			return found
		}
		for i, v := range n.Values {
			found = scalars(file, fmt.Sprintf("%s.%d", path, i), v, t.Elem(), found)
		}
	case *ast.AnchorNode:
		return scalars(file, path, n.Value, t, found)
	default:
		if t == nil {
			return found
		}
		if text := complaint(n, t); text != "" {
			tok := n.GetToken()
			found = append(found, Place{File: file, Line: tok.Position.Line, Column: tok.Position.Column, Field: path, Text: text})
		}
	}
	return found
}

// complaint says what is wrong with a scalar for a type, "" when nothing that the library would not say itself.
func complaint(n ast.Node, t reflect.Type) string {
	value := n.GetToken().Value
	if u, ok := reflect.TypeAssert[yaml.BytesUnmarshaler](reflect.New(t)); ok {
		if err := u.UnmarshalYAML([]byte(value)); err != nil {
			return err.Error()
		}
		return ""
	}
	if !fits(n, t) {
		return fmt.Sprintf("%q is not %s", value, want(t))
	}
	return ""
}

// fits is strict where the library is not. It turns every time that it cannot read into the zero time, which the owner of
// a setting takes for "not set": for an expiry that would mean never, so only what is surely a time passes.
func fits(n ast.Node, t reflect.Type) bool {
	value := n.GetToken().Value
	_, isText := n.(*ast.StringNode)
	_, isFloat := n.(*ast.FloatNode)
	switch {
	case t == reflect.TypeFor[time.Time]():
		return isText && isTime(value)
	case t == reflect.TypeFor[time.Duration]() && (isText || isFloat):
		_, err := time.ParseDuration(value)
		return err == nil
	}
	return !isFloat || !reflect.Zero(t).CanInt() && !reflect.Zero(t).CanUint()
}

// isTime takes RFC 3339 and a plain date (UTC), but not the zero time.
func isTime(s string) bool {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return !t.IsZero()
		}
	}
	return false
}

// keyType is the type that a key of a mapping is decoded into; nil when the library will complain about the key.
func keyType(t reflect.Type, key string) reflect.Type {
	if t == nil {
		return nil
	}
	switch t.Kind() {
	case reflect.Map:
		return t.Elem()
	case reflect.Struct:
		for f := range t.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name == key {
				return f.Type
			}
		}
	}
	return nil
}
