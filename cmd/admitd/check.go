package main

import (
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v2"

	"admitd/gate/policy"
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
			&cli.BoolFlag{Name: "effective", Usage: "print the configuration that is in force, defaults included, as YAML"},
			&cli.BoolFlag{Name: "strict", Usage: "exit 3 when there are findings"},
		),
		Action: e.check,
	}
}

func (e *env) check(ctx *cli.Context) error {
	if ctx.Bool("effective") && ctx.String("output") == "json" {
		return usage("check: --effective prints YAML; leave -o json away")
	}
	c, err := e.loadConfig(ctx)
	if err != nil {
		return err
	}
	text, name := policy.Default(), "the built-in default"
	if c.PolicyFile != "" {
		name = c.PolicyFile
		if text, err = os.ReadFile(c.PolicyFile); err != nil {
			return fmt.Errorf("read policy: %w", err)
		}
	}
	compiled, err := policy.Compile(c.PolicyFile, text)
	if err != nil {
		return err
	}
	if ctx.Bool("effective") {
		out, err := yaml.Marshal(c)
		if err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
		_, err = e.stdout.Write(out)
		return err
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
