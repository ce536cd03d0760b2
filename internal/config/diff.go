package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Setting is one leaf key of the file.
type Setting struct {
	// Path is the dotted key, for instance engine.start_timeout.
	Path string
	// Type is the kind of value in words; Default as written in a file; Doc the reference text.
	Type, Default, Doc string
	// Reload is hot or process.
	Reload string
}

// Settings lists every key in the order of the file.
func Settings() []Setting {
	var out []Setting
	walk("", reflect.ValueOf(Default()), func(path string, f reflect.StructField, v reflect.Value) {
		out = append(out, Setting{Path: path, Type: typeWord(f.Type), Default: valueText(v), Doc: f.Tag.Get("doc"), Reload: f.Tag.Get("reload")})
	})
	return out
}

// Fields lists the keys of one entry of a list or map of the file, such as Key{}.
func Fields(entry any) []Setting {
	var out []Setting
	walk("", reflect.ValueOf(entry), func(path string, f reflect.StructField, _ reflect.Value) {
		out = append(out, Setting{Path: path, Type: typeWord(f.Type), Doc: f.Tag.Get("doc"), Reload: f.Tag.Get("reload")})
	})
	return out
}

// Diff lists the settings that differ, by what it takes to change them. Values are told, as "path old -> new", only where
// they cannot hold a secret: the lines go into the log, the journal and the admin API.
func Diff(old, next Config) (hot, process []string) {
	values := map[string]string{}
	walk("", reflect.ValueOf(old), func(path string, _ reflect.StructField, v reflect.Value) { values[path] = valueText(v) })
	walk("", reflect.ValueOf(next), func(path string, f reflect.StructField, v reflect.Value) {
		before, after := values[path], valueText(v)
		if before == after {
			return
		}
		line := path
		if printable(f) {
			line = fmt.Sprintf("%s %s -> %s", path, before, after)
		}
		if f.Tag.Get("reload") == "hot" {
			hot = append(hot, line)
			return
		}
		process = append(process, line)
	})
	return hot, process
}

// printable: numbers, durations, sizes and switches are no secrets; of texts, those that are marked.
func printable(f reflect.StructField) bool {
	switch f.Type.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int64:
		return true
	case reflect.String:
		return f.Tag.Get("show") != ""
	}
	return false
}

// walk visits every leaf: fields that are not themselves settings groups.
func walk(prefix string, v reflect.Value, visit func(string, reflect.StructField, reflect.Value)) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		path := strings.TrimPrefix(prefix+"."+name, ".")
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[time.Time]() {
			walk(path, v.Field(i), visit)
			continue
		}
		visit(path, f, v.Field(i))
	}
}

func valueText(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case string:
		if x == "" {
			return `""`
		}
		return x
	}
	return fmt.Sprintf("%v", v.Interface())
}

func typeWord(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t == reflect.TypeFor[Bytes]():
		return "size"
	case t.Kind() == reflect.Slice:
		return "list"
	case t.Kind() == reflect.Map:
		return "map"
	case t.Kind() == reflect.Bool:
		return "true/false"
	case t.Kind() == reflect.Int:
		return "number"
	}
	return "text"
}
