package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"admitd/gate/policy"
	"admitd/internal/app"
	"admitd/internal/config"
	"admitd/internal/doctor"
	"admitd/internal/install"
)

func (e *env) doctorCommand() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "say what this machine lacks for serving, and what to do about it",
		UsageText: "admitd doctor [flags] [-- engine arguments]",
		Flags:     append(configFlags(), outputFlag(), &cli.BoolFlag{Name: "strict", Usage: "exit 3 when something fails; warnings are not counted"}),
		Action: func(ctx *cli.Context) error {
			found, err := e.examine(ctx)
			if err != nil {
				return err
			}
			failed := false
			err = e.output(ctx, found, func(w io.Writer) {
				for _, f := range found {
					_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.Name, strings.ReplaceAll(f.Text, "\n", "\n\t\t"))
					if f.Fix != "" {
						_, _ = fmt.Fprintf(w, "\t\t-> %s\n", f.Fix)
					}
				}
			})
			for _, f := range found {
				failed = failed || f.Level == doctor.Fail
			}
			if err == nil && failed && ctx.Bool("strict") {
				return &exitError{code: exitFindings}
			}
			return err
		},
	}
}

func (e *env) examine(ctx *cli.Context) ([]doctor.Finding, error) {
	c, err := e.loadConfig(ctx)
	if err != nil {
		broken := doctor.Finding{Name: "configuration", Level: doctor.Fail, Text: err.Error(), Fix: "mend the file or the flag; admitd check looks at it again"}
		return []doctor.Finding{broken}, nil //nolint:nilerr // a broken file is what doctor is for
	}
	s := doctor.Subject{Config: c}
	if s.StateDir, err = app.StateDir(c.StateDir); err != nil {
		return nil, err
	}
	if s.DataDir, err = install.DataDir(c.DataDir); err != nil {
		return nil, err
	}
	s.Kind, s.Binary, s.FindErr = app.FindEngine(ctx.Context, c)
	models, err := config.LoadModels()
	if err != nil {
		return nil, err
	}
	s.Repo, _ = models.Resolve(c.Model, string(s.Kind))
	found, err := doctor.Examine(ctx.Context, doctor.Local(!c.GPU.Disabled), s)
	return append([]doctor.Finding{{Name: "configuration", Level: doctor.OK, Text: "valid"}, policyFinding(c.PolicyFile)}, found...), err
}

func policyFinding(file string) doctor.Finding {
	if file == "" {
		return doctor.Finding{Name: "policy", Level: doctor.OK, Text: "the built-in default"}
	}
	text, err := os.ReadFile(file)
	if err == nil {
		_, err = policy.Compile(file, text)
	}
	if err != nil {
		return doctor.Finding{Name: "policy", Level: doctor.Fail, Text: err.Error(), Fix: "mend the file (docs/policies.md); admitd check looks at it again"}
	}
	return doctor.Finding{Name: "policy", Level: doctor.OK, Text: file}
}
