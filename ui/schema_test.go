package ui

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
)

// schemas makes JSON Schemas of Go types, as encoding/json writes them. Only what the admin API's types use.
type schemas struct{ byName map[string]map[string]any }

func (g *schemas) of(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case reflect.TypeFor[time.Duration]():
		return map[string]any{"type": "integer", "description": "nanoseconds"}
	case reflect.TypeFor[json.RawMessage]():
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": g.of(t.Elem())}
	case reflect.Array:
		return map[string]any{"type": "array", "items": g.of(t.Elem()), "minItems": t.Len(), "maxItems": t.Len()}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": g.of(t.Elem())}
	case reflect.Pointer:
		return orNull(g.of(t.Elem()))
	case reflect.Struct:
		return g.ref(t)
	}
	panic(fmt.Sprintf("no schema for %s", t))
}

func orNull(s map[string]any) map[string]any {
	if kind, ok := s["type"].(string); ok {
		s["type"] = []any{kind, "null"}
		return s
	}
	return map[string]any{"anyOf": []any{s, map[string]any{"type": "null"}}}
}

// nameOf is the type's name, with its package's before it when that is not api.
func nameOf(t reflect.Type) string {
	pkg := t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:]
	if pkg == "api" {
		return t.Name()
	}
	return string(unicode.ToUpper(rune(pkg[0]))) + pkg[1:] + t.Name()
}

func (g *schemas) ref(t reflect.Type) map[string]any {
	name := nameOf(t)
	if _, known := g.byName[name]; !known {
		s := map[string]any{"type": "object"}
		g.byName[name] = s
		props, required := map[string]any{}, []any{}
		g.fields(t, props, &required)
		s["properties"] = props
		if len(required) > 0 {
			s["required"] = required
		}
	}
	return map[string]any{"$ref": "#/components/schemas/" + name}
}

func (g *schemas) fields(t reflect.Type, props map[string]any, required *[]any) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			g.fields(f.Type, props, required)
			continue
		case name == "-" || !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		props[name] = g.of(f.Type)
		if !strings.Contains(options, "omitempty") {
			*required = append(*required, name)
		}
	}
}
