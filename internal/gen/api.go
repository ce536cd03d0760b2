package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// document is as much of an OpenAPI description as ours uses.
type document struct {
	Info struct {
		Title, Description string
	}
	Tags []struct {
		Name string
	}
	Paths      yaml.MapSlice
	Components struct {
		Parameters    map[string]parameter
		RequestBodies map[string]content `yaml:"requestBodies"`
		Responses     map[string]content
		Schemas       yaml.MapSlice
	}
}

type operation struct {
	Tags        []string
	Summary     string
	Description string
	Security    []yaml.MapSlice
	Parameters  []parameter
	RequestBody *content `yaml:"requestBody"`
	Responses   yaml.MapSlice
}

type parameter struct {
	Ref         string `yaml:"$ref"`
	Name, In    string
	Required    bool
	Description string
	Schema      shape
}

type content struct {
	Ref         string `yaml:"$ref"`
	Description string
	Content     yaml.MapSlice
}

type shape struct {
	Ref         string `yaml:"$ref"`
	Type        any
	Format      string
	Description string
	Enum        []any
	Default     any
	Items       *shape
	AnyOf       []shape `yaml:"anyOf"`
	OneOf       []shape `yaml:"oneOf"`
	AllOf       []shape `yaml:"allOf"`
	Properties  yaml.MapSlice
	Additional  any `yaml:"additionalProperties"`
	Required    []string
}

const openapiFile = "docs/openapi.yaml"

// apiPage writes the admin API's description as a page to read.
func apiPage() ([]byte, error) {
	text, err := os.ReadFile(openapiFile)
	if err != nil {
		return nil, err
	}
	var d document
	if err := yaml.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("%s: %w", openapiFile, err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n<!-- Written by make generate from openapi.yaml. -->\n\n%s\n", d.Info.Title, strings.TrimSpace(d.Info.Description))
	b.WriteString("\nWhat callers of the model API see is in [gate.md](gate.md). The same in a form for programs: [openapi.yaml](openapi.yaml).\n")
	for _, tag := range d.Tags {
		fmt.Fprintf(&b, "\n## %s\n", strings.ToUpper(tag.Name[:1])+tag.Name[1:])
		for _, path := range d.Paths {
			if err := writePath(&b, d, tag.Name, fmt.Sprint(path.Key), path.Value); err != nil {
				return nil, err
			}
		}
	}
	b.WriteString("\n## Shapes\n\nFields without \"always\" may be left out.\n")
	for _, item := range d.Components.Schemas {
		if err := writeShape(&b, fmt.Sprint(item.Key), item.Value); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// as reads a part of the document into a type of ours.
func as(part, into any) error {
	text, err := yaml.Marshal(part)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(text, into)
}

func writePath(b *bytes.Buffer, d document, tag, path string, part any) error {
	var methods yaml.MapSlice
	if err := as(part, &methods); err != nil {
		return err
	}
	for _, m := range methods {
		var op operation
		if err := as(m.Value, &op); err != nil {
			return fmt.Errorf("%s %v: %w", path, m.Key, err)
		}
		if !slices.Contains(op.Tags, tag) {
			continue
		}
		fmt.Fprintf(b, "\n### `%s %s`\n\n%s%s\n", strings.ToUpper(fmt.Sprint(m.Key)), path, op.Summary, needs(op))
		if op.Description != "" {
			fmt.Fprintf(b, "\n%s\n", strings.TrimSpace(op.Description))
		}
		writeParameters(b, d, op.Parameters)
		if op.RequestBody != nil {
			body := *op.RequestBody
			if body.Ref != "" {
				body = d.Components.RequestBodies[last(body.Ref)]
			}
			fmt.Fprintf(b, "\nBody: %s\n", sentence(body))
		}
		if err := writeAnswers(b, d, op.Responses); err != nil {
			return err
		}
	}
	return nil
}

// needs says whether the token is always needed.
func needs(op operation) string {
	if len(op.Security) == 1 && len(op.Security[0]) > 0 {
		return " Needs the admin token."
	}
	return ""
}

func writeParameters(b *bytes.Buffer, d document, list []parameter) {
	if len(list) == 0 {
		return
	}
	b.WriteString("\n| parameter | in | what |\n|---|---|---|\n")
	for _, p := range list {
		if p.Ref != "" {
			p = d.Components.Parameters[last(p.Ref)]
		}
		what := cell(p.Description)
		if p.Required {
			what = strings.TrimSpace(what + " Required.")
		}
		if p.Schema.Default != nil {
			what = strings.TrimSpace(fmt.Sprintf("%s Default %v.", what, p.Schema.Default))
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", p.Name, p.In, what)
	}
}

func writeAnswers(b *bytes.Buffer, d document, answers yaml.MapSlice) error {
	b.WriteString("\n| status | answer |\n|---|---|\n")
	for _, a := range answers {
		var c content
		if err := as(a.Value, &c); err != nil {
			return err
		}
		said := sentence(c)
		if c.Ref != "" {
			said = sentence(content{Content: d.Components.Responses[last(c.Ref)].Content})
		}
		status := fmt.Sprint(a.Key)
		if status == "default" {
			status = "other"
		}
		fmt.Fprintf(b, "| %s | %s |\n", status, cell(said))
	}
	return nil
}

// sentence says what a body is.
func sentence(c content) string {
	var kinds []string
	for _, item := range c.Content {
		var media struct{ Schema shape }
		if as(item.Value, &media) == nil {
			kinds = append(kinds, fmt.Sprintf("%s as `%v`", kind(media.Schema), item.Key))
		}
	}
	return strings.TrimSpace(strings.TrimSpace(c.Description) + " " + strings.Join(kinds, ", or "))
}

func writeShape(b *bytes.Buffer, name string, part any) error {
	var s shape
	if err := as(part, &s); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Fprintf(b, "\n### %s\n", name)
	if s.Description != "" {
		fmt.Fprintf(b, "\n%s\n", strings.TrimSpace(s.Description))
	}
	if len(s.Properties) == 0 {
		fmt.Fprintf(b, "\n%s\n", kind(s))
		return nil
	}
	b.WriteString("\n| field | type | |\n|---|---|---|\n")
	for _, p := range s.Properties {
		var field shape
		if err := as(p.Value, &field); err != nil {
			return fmt.Errorf("%s.%v: %w", name, p.Key, err)
		}
		note := cell(field.Description)
		if slices.Contains(s.Required, fmt.Sprint(p.Key)) {
			note = strings.TrimSpace("always " + note)
		}
		fmt.Fprintf(b, "| `%v` | %s | %s |\n", p.Key, kind(field), note)
	}
	return nil
}

// kind is a type in words.
func kind(s shape) string {
	if s.Ref != "" {
		return fmt.Sprintf("[%s](#%s)", last(s.Ref), strings.ToLower(last(s.Ref)))
	}
	for _, set := range [][]shape{s.AnyOf, s.OneOf, s.AllOf} {
		var parts []string
		for _, one := range set {
			parts = append(parts, kind(one))
		}
		if len(parts) > 0 {
			return strings.Join(parts, " or ")
		}
	}
	switch {
	case len(s.Enum) > 0:
		var words []string
		for _, e := range s.Enum {
			words = append(words, fmt.Sprintf("`%v`", e))
		}
		return strings.Join(words, ", ")
	case s.Items != nil:
		return "list of " + kind(*s.Items)
	}
	var of shape
	if s.Additional != nil && as(s.Additional, &of) == nil && (of.Ref != "" || of.Type != nil) {
		return "map of " + kind(of)
	}
	if list, ok := s.Type.([]any); ok {
		var parts []string
		for _, one := range list {
			parts = append(parts, fmt.Sprint(one))
		}
		return strings.Join(parts, " or ")
	}
	if s.Format != "" {
		return s.Format
	}
	if s.Type == nil {
		return "anything"
	}
	return fmt.Sprint(s.Type)
}

// last is the name at the end of a reference.
func last(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// cell makes a text fit into a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}
