package ui

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	yamlv "github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/supervisor"
	"admitd/ui/api"
)

var update = flag.Bool("update", false, "write the schemas of docs/openapi.yaml anew")

const (
	openAPIFile   = "../docs/openapi.yaml"
	schemasMarker = "  schemas:"
)

// wireTypes are the shapes that routes and stream messages have, by their name in the file.
var wireTypes = []any{
	api.Status{}, api.Signals{}, api.Decisions{}, api.DecisionItem{}, api.Sessions{}, api.Tenants{}, api.PolicyDocument{},
	api.PolicyText{}, api.RevertRequest{}, api.ReloadResult{}, api.DryRun{}, api.PolicyHistory{}, supervisor.Status{},
	api.Accepted{}, api.EngineLogs{}, api.LogEvent{}, api.UpgradeRequest{}, api.UpgradeStep{}, api.History{}, api.Poll{}, api.Problem{}, api.Hello{}, api.Snap{},
	api.Frame{}, api.EventMessage{}, api.GapMessage{}, api.Bye{}, api.ViewerMessage{},
}

func openAPIText(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(openAPIFile)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func openAPI(t *testing.T) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := yamlv.Unmarshal(openAPIText(t), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// at follows keys into nested maps; nil when one is missing.
func at(v any, keys ...string) any {
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

func TestOpenAPIHasTheServersRoutesAndNoOthers(t *testing.T) {
	var inFile []string
	for path, ops := range at(openAPI(t), "paths").(map[string]any) {
		for method := range ops.(map[string]any) {
			inFile = append(inFile, strings.ToUpper(method)+" "+path)
		}
	}
	served := Routes()
	slices.Sort(inFile)
	slices.Sort(served)
	if diff := cmp.Diff(served, inFile); diff != "" {
		t.Error("served (-) against docs/openapi.yaml (+):", diff)
	}
}

func TestOpenAPISchemasAreTheGoTypes(t *testing.T) {
	g := &schemas{byName: map[string]map[string]any{}}
	for _, v := range wireTypes {
		g.of(reflect.TypeOf(v))
	}
	text := openAPIText(t)
	head, _, ok := bytes.Cut(text, []byte("\n"+schemasMarker))
	if !ok {
		t.Fatal("docs/openapi.yaml has no schemas")
	}
	made, err := yamlv.MarshalWithOptions(g.byName, yamlv.Indent(2), yamlv.IndentSequence(true))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n%s\n", head, schemasMarker)
	for line := range strings.Lines(string(made)) {
		out.WriteString("    " + line)
	}
	if *update {
		if err := os.WriteFile(openAPIFile, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(text), out.String()); diff != "" {
		t.Error("docs/openapi.yaml is not what the Go types say; run: go test ./ui -run TestOpenAPI -update", diff)
	}
}

// TestOpenAPIDescribesWhatTheServerAnswers calls every route and holds the answer to the file's schema for it and to
// the Go type.
func TestOpenAPIDescribesWhatTheServerAnswers(t *testing.T) {
	r := newRig(t)
	doc := openAPI(t)
	check := newChecker(t)
	d := judged("a", 6, reason.VerdictAdmit, reason.OK)
	d.Session, d.Tenant = "s", "acme"
	r.decide(d)
	r.journal.Append(journal.Entry{At: t0, Kind: journal.KindOutcome, Outcome: &journal.Outcome{ID: "a", Ending: "whole", TTFTMS: new(5.0), PromptTokens: new(9)}})
	r.decide(judged("b", 20, reason.VerdictDefer, reason.QueueDepth))
	r.engine.log("x")
	r.step()
	called := map[string]bool{}
	for _, c := range []struct {
		route, path, body string
		status            int
		into              func(*testing.T, []byte)
		header            []string
	}{
		{"GET /healthz", "", "", 200, nil, nil},
		{"GET /readyz", "", "", 200, nil, nil},
		{"GET /metrics", "", "", 200, nil, nil},
		{"GET /api/v1/status", "", "", 200, decodes[api.Status], nil},
		{"GET /api/v1/signals", "", "", 200, decodes[api.Signals], nil},
		{"GET /api/v1/decisions", "", "", 200, decodes[api.Decisions], nil},
		{"GET /api/v1/decisions", "?limit=0", "", 400, decodes[api.Problem], nil},
		{"GET /api/v1/decisions/{id}", "a", "", 200, decodes[api.DecisionItem], nil},
		{"GET /api/v1/decisions/{id}", "none", "", 404, decodes[api.Problem], nil},
		{"GET /api/v1/sessions", "", "", 200, decodes[api.Sessions], nil},
		{"GET /api/v1/tenants", "", "", 200, decodes[api.Tenants], nil},
		{"GET /api/v1/policy", "", "", 200, decodes[api.PolicyDocument], nil},
		{"PUT /api/v1/policy", "", "policy: x\n", 400, decodes[api.Problem], yaml("If-Match", "*")},
		{"PUT /api/v1/policy", "", draft, 200, decodes[api.ReloadResult], yaml("If-Match", "*")},
		{"POST /api/v1/policy/dry-run", "", draft, 200, decodes[api.DryRun], yaml()},
		{"POST /api/v1/policy/revert", "", "{}", 200, decodes[api.ReloadResult], nil},
		{"GET /api/v1/policy/history", "", "", 200, decodes[api.PolicyHistory], nil},
		{"GET /api/v1/engine", "", "", 200, decodes[supervisor.Status], nil},
		{"POST /api/v1/engine/restart", "", "", 202, decodes[api.Accepted], nil},
		{"GET /api/v1/engine/logs", "", "", 200, decodes[api.EngineLogs], nil},
		{"POST /api/v1/reload", "", "", 200, decodes[api.ReloadResult], nil},
		{"POST /api/v1/upgrade", "", "{}", 200, nil, nil},
		{"GET /api/v1/history", "", "", 200, decodes[api.History], nil},
		{"GET /api/v1/frame", "", "", 200, decodes[api.Poll], nil},
		{"GET /api/v1/stream", "", "", 426, decodes[api.Problem], nil},
	} {
		t.Run(c.route+" "+strconv.Itoa(c.status), func(t *testing.T) {
			called[c.route] = true
			method, path, _ := strings.Cut(c.route, " ")
			url := strings.ReplaceAll(path, "{id}", "") + c.path
			resp, body := r.write(method, url, c.body, c.header...)
			if resp.StatusCode != c.status {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
			answers := at(doc, "paths", path, strings.ToLower(method), "responses")
			answer := at(answers, strconv.Itoa(c.status))
			if answer == nil {
				answer = at(answers, "default")
			}
			if ref, ok := at(answer, "$ref").(string); ok {
				answer = at(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
			ref, _ := at(answer, "content", media, "schema", "$ref").(string)
			if c.into == nil {
				if at(answer, "content", media) == nil {
					t.Errorf("the file does not have %s there", media)
				}
				return
			}
			if ref == "" {
				t.Fatalf("the file has no schema for %s there", media)
			}
			check.valid(t, strings.TrimPrefix(ref, "#/components/schemas/"), body)
			c.into(t, body)
		})
	}
	for _, route := range Routes() {
		if !called[route] {
			t.Errorf("%s is not called", route)
		}
	}
}

func TestOpenAPIDescribesTheStream(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hub.SlotFrames = 2 })
	check := newChecker(t)
	schema := map[string]string{api.KindHello: "Hello", api.KindSnap: "Snap", api.KindFrame: "Frame", api.KindEvent: "EventMessage",
		api.KindGap: "GapMessage", api.KindBye: "Bye"}
	s := r.dial("?resume=1")
	seen := map[string]bool{}
	read := func() {
		e, data := s.next()
		seen[e.Kind] = true
		check.valid(t, schema[e.Kind], data)
	}
	for range 2 {
		read()
	}
	r.admit("a")
	r.journal.Append(journal.Entry{At: t0, Kind: journal.KindEvent, Event: &journal.Event{Name: "start", Level: "info", Text: "x"}})
	r.step()
	read()
	read()
	go r.s.Close("over")
	read()
	if !seen[api.KindHello] || !seen[api.KindSnap] || !seen[api.KindFrame] || !seen[api.KindEvent] || !seen[api.KindBye] {
		t.Errorf("kinds seen: %v", seen)
	}
	gap, err := json.Marshal(api.GapMessage{Envelope: api.Envelope{V: 1, Kind: api.KindGap}, From: 1, To: 2, S: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	check.valid(t, "GapMessage", gap)
}

func decodes[T any](t *testing.T, body []byte) {
	t.Helper()
	strictly[T](t, body)
}

// checker validates bodies by the schemas of the file.
type checker struct{ compiler *jsonschema.Compiler }

func newChecker(t *testing.T) *checker {
	t.Helper()
	asJSON, err := json.Marshal(openAPI(t))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	return &checker{c}
}

func (c *checker) valid(t *testing.T, name string, body []byte) {
	t.Helper()
	s, err := c.compiler.Compile("openapi.json#/components/schemas/" + name)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("%v\n%.600s", err, body)
	}
}
