package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v2"

	"admitd/gate/policy"
	"admitd/internal/app"
	"admitd/internal/config"
	"admitd/internal/strict"
)

// finding is one thing that check has to say about valid files.
type finding struct {
	Level string `json:"level"`
	Text  string `json:"text"`
}

func (e *env) checkCommand() *cli.Command {
	return &cli.Command{
		Name: "check", Usage: "check configuration and policy without starting anything",
		UsageText: "admitd check [flags] [-- engine arguments]",
		Flags: append(configFlags(), outputFlag(),
			&cli.BoolFlag{Name: "effective", Usage: "print the configuration that is in force, defaults included, as YAML, or JSON with -o json"},
			&cli.BoolFlag{Name: "strict", Usage: "exit 3 when there are findings"},
		),
		Action: e.check,
	}
}

func (e *env) check(ctx *cli.Context) error {
	c, err := e.loadConfig(ctx)
	if err != nil {
		return err
	}
	text, name := policy.Default(), "the built-in default"
	if c.PolicyFile != "" {
		name = c.PolicyFile
		if text, err = strict.ReadFile("policy", c.PolicyFile); err != nil {
			return err
		}
	}
	compiled, err := policy.Compile(c.PolicyFile, text)
	if err != nil {
		return err
	}
	if _, err := app.EngineKey(c.Engine); err != nil {
		return err
	}
	if err := app.CheckCertificates(c.TLS); err != nil {
		return err
	}
	if ctx.Bool("effective") {
		return e.printEffective(c, ctx.String("output") == "json")
	}
	file := ctx.String("config")
	if file == "" {
		file = "no file: defaults, environment and flags"
	}
	found := []finding{}
	if c.Model == "" {
		found = append(found, finding{"warning", "no model is set; serve needs --model"})
	}
	if len(c.Keys) == 0 {
		found = append(found, finding{"note", "no keys are configured: whoever reaches " + c.Listen + " may call"})
	}
	if len(compiled.Policy.Needs()) == 0 && compiled.Policy.Name() == "admit-all" {
		found = append(found, finding{"warning", "the policy is admit-all: nothing is ever refused"})
	}
	result := map[string]any{"policy": compiled.Policy.Name(), "policy_rev": compiled.Rev, "findings": found}
	err = e.output(ctx, result, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "configuration\tok (%s)\npolicy\tok (%s): %s@%s\n", file, name, compiled.Policy.Name(), compiled.Rev)
		for _, f := range found {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", f.Level, f.Text)
		}
	})
	if err == nil && ctx.Bool("strict") && len(found) > 0 {
		return &exitError{code: exitFindings}
	}
	return err
}

// printEffective prints a configuration as a file would say it, or the same as JSON.
func (e *env) printEffective(c config.Config, asJSON bool) error {
	out, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if asJSON {
		var v any
		if out, err = yaml.YAMLToJSON(out); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
		if err := json.Unmarshal(out, &v); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
		return e.print("json", v, nil)
	}
	_, err = e.stdout.Write(out)
	return err
}
