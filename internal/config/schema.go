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
			case reflect.TypeOf(time.Duration(0)):
				return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$|^0$`, Examples: []any{"1500ms", "2s", "10m"}}
			case reflect.TypeOf(Bytes(0)):
				return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "integer"}, {Type: "string", Pattern: `^[0-9]+ ?([KMG]iB)?$`}}}
			case reflect.TypeOf(reason.Code("")):
				return &jsonschema.Schema{Type: "string"}
			}
			return nil
		},
	}
	s := r.ReflectFromType(reflect.TypeOf(Config{}))
	s.Version = version
	s.Title = "admitd configuration"
	describe(s, reflect.TypeOf(Config{}))
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
	for i := range t.NumField() {
		f := t.Field(i)
		if p, ok := s.Properties.Get(f.Tag.Get("yaml")); ok {
			p.Description = f.Tag.Get("doc")
			describe(p, f.Type)
		}
	}
}
