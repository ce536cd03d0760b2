package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"admitd/internal/strict"
	"admitd/ui/api"
	"admitd/ui/client"
)

func (e *env) reloadCommand() *cli.Command {
	return &cli.Command{
		Name: "reload", Usage: "read the configuration and policy files again",
		Flags: adminFlags(outputFlag()),
		Action: func(ctx *cli.Context) error {
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			asking, done := asking(ctx)
			defer done()
			res, err := c.Reload(asking)
			if err != nil {
				return places(err, "")
			}
			return e.printReload(ctx, res)
		},
	}
}

func (e *env) printReload(ctx *cli.Context, res api.ReloadResult) error {
	return e.output(ctx, res, func(w io.Writer) {
		fmt.Fprintln(w, res.Text)
		for _, line := range res.Diff {
			fmt.Fprintf(w, "  %s\n", line)
		}
	})
}

// places turns a refusal into one line per mistake, with the exit code of a mistake in a file. file is what was sent.
func places(err error, file string) error {
	var p *client.ProblemError
	switch {
	case !errors.As(err, &p):
		return err
	case len(p.Errors) > 0:
		lines := []string{"refused, nothing was changed:"}
		for _, at := range p.Errors {
			if at.File == "" {
				at.File = file
			}
			lines = append(lines, strict.Place{File: at.File, Line: at.Line, Column: at.Column, Field: at.Field, Text: at.Text}.String())
		}
		return &exitError{code: exitUsage, err: errors.New(strings.Join(lines, "\n"))}
	case len(p.Fields) > 0:
		text := "refused, nothing was changed; a reload cannot change:\n  " + strings.Join(p.Fields, "\n  ")
		return &exitError{code: exitPrecondition, err: errors.New(text)}
	}
	return err
}
