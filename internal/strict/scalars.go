package strict

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// scalars finds what the YAML library would take without complaint, or complain about without a place: fractions
// where a whole number is wanted, and durations that are none. Everything else is left to the library.
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
	case *ast.FloatNode, *ast.StringNode:
		if t != nil && !fits(n, t) {
			tok := n.GetToken()
			found = append(found, Place{File: file, Line: tok.Position.Line, Column: tok.Position.Column, Field: path,
				Text: fmt.Sprintf("%q is not %s", tok.Value, want(t))})
		}
	}
	return found
}

func fits(n ast.Node, t reflect.Type) bool {
	if t == reflect.TypeFor[time.Duration]() {
		_, err := time.ParseDuration(n.GetToken().Value)
		return err == nil
	}
	_, isFloat := n.(*ast.FloatNode)
	return !isFloat || !reflect.Zero(t).CanInt() && !reflect.Zero(t).CanUint()
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
