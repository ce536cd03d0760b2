package config

import (
	"reflect"
	"time"

	"github.com/invopop/jsonschema"

	"admitd/gate/reason"
)

// Schema makes the JSON Schema of the configuration file from the structs.
func Schema(version string) *jsonschema.Schema {
	r := &jsonschema.Reflector{
		FieldNameTag: "yaml", DoNotReference: true, AllowAdditionalProperties: false, RequiredFromJSONSchemaTags: true, Anonymous: true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			switch t {
			case reflect.TypeFor[time.Duration]():
				return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$|^0$`, Examples: []any{"1500ms", "2s", "10m"}}
			case reflect.TypeFor[Bytes]():
				return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "integer"}, {Type: "string", Pattern: `^[0-9]+ ?([KMG]iB)?$`}}}
			case reflect.TypeFor[reason.Code]():
				return &jsonschema.Schema{Type: "string"}
			}
			return nil
		},
	}
	s := r.ReflectFromType(reflect.TypeFor[Config]())
	s.Version = version
	s.Title = "admitd configuration"
	describe(s, reflect.TypeFor[Config]())
	return s
}

// describe copies the doc tags into the schema.
func describe(s *jsonschema.Schema, t reflect.Type) {
	if s == nil {
		return
	}
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
		if s.Items != nil {
			s = s.Items
		}
	}
	if t.Kind() == reflect.Map {
		describe(s.AdditionalProperties, t.Elem())
		return
	}
	if t.Kind() != reflect.Struct || s.Properties == nil {
		return
	}
	for f := range t.Fields() {
		if p, ok := s.Properties.Get(f.Tag.Get("yaml")); ok {
			p.Description = f.Tag.Get("doc")
			describe(p, f.Type)
		}
	}
}
