// Command gen writes the files that are made from others: the configuration reference, the catalogue of reasons, the API page
// and the JSON Schema of the configuration. With -check it compares instead, and exits 1 when one is out of date.
//
// Goal: documents that cannot disagree with the code. Non-goals: prose.
// Invariant: the same code gives the same bytes.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"

	"github.com/invopop/jsonschema"

	"admitd/gate/reason"
	"admitd/internal/config"
)

func main() {
	check := flag.Bool("check", false, "compare with what is there instead of writing")
	flag.Parse()
	stale := false
	for _, f := range []struct {
		path string
		make func() ([]byte, error)
	}{
		{"docs/configuration.md", configuration},
		{"docs/reasons.md", reasons},
		{"configs/admitd.schema.json", schema},
		{"docs/api.md", apiPage},
	} {
		want, err := f.make()
		if err == nil && *check {
			got, rerr := os.ReadFile(f.path)
			if rerr != nil || !bytes.Equal(got, want) {
				fmt.Fprintf(os.Stderr, "%s is out of date: run make generate\n", f.path)
				stale = true
			}
			continue
		}
		if err == nil {
			err = os.WriteFile(f.path, want, 0o644) //nolint:gosec // a document for everybody to read
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "gen: %s: %v\n", f.path, err)
			os.Exit(1)
		}
	}
	if stale {
		os.Exit(1)
	}
}

func configuration() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`# Configuration

<!-- Made by internal/gen from internal/config; do not edit. -->

One YAML file, given with ` + "`--config`" + `. Every key is optional, unknown keys are errors with line and column.
Flags win over ` + "`ADMITD_*`" + ` environment variables, which win over the file. ` + "`admitd check --effective`" + ` prints
what is in force. [configs/admitd.example.yaml](../configs/admitd.example.yaml) is a commented example;
[configs/admitd.schema.json](../configs/admitd.schema.json) is the JSON Schema for editors.

The last column says what a change takes: *hot* settings change on reload; *process* settings need a restart of admitd. A
reload that touches those is refused by name and changes nothing.
The policy has its own file and is always hot: see [policies](policies.md).

| key | kind | default | meaning | change |
|---|---|---|---|---|
`)
	for _, s := range config.Settings() {
		def := s.Default
		if s.Path == "classes" {
			def = "interactive: ttft 2s, tpot 100ms; batch: ttft 1m, tpot 1s"
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s | %s |\n", s.Path, s.Type, def, cell(s.Doc), s.Reload)
	}
	b.WriteString(`
Each entry of ` + "`keys`" + ` has:

| key | meaning |
|---|---|
`)
	for _, s := range config.Fields(config.Key{}) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", s.Path, cell(s.Doc))
	}
	b.WriteString(`
Each entry of ` + "`classes`" + ` has:

| key | meaning |
|---|---|
`)
	for _, s := range config.Fields(config.SLO{}) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", s.Path, cell(s.Doc))
	}
	return b.Bytes(), nil
}

func reasons() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`# Reasons

<!-- Made by internal/gen from gate/reason; do not edit. -->

Every refusal carries one of these words in ` + "`X-Admitd-Reason`" + `, in the journal, in ` + "`admitd_decisions_total{reason}`" + ` and on the
dashboard. The status of a word can be changed with ` + "`refuse_codes`" + ` (see [configuration](configuration.md)) or a policy's
` + "`codes`" + `; the word cannot.

*after* means that the answer has ` + "`Retry-After`" + `; *never* means that it has ` + "`x-should-retry: false`" + `.

| reason | verdict | status | retry | what it means and what to do |
|---|---|---|---|---|
`)
	for _, e := range reason.All() {
		status := "the engine's"
		if e.Status != 0 {
			status = strconv.Itoa(e.Status)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", e.Code, e.Verdict, status, e.Retry, cell(e.Doc))
	}
	return b.Bytes(), nil
}

func schema() ([]byte, error) {
	b, err := json.MarshalIndent(config.Schema(jsonschema.Version), "", "  ")
	return append(b, '\n'), err
}
