package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

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
			res, err := c.Reload(ctx.Context)
			if err != nil {
				return places(err)
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

// places turns a refusal into one line per mistake, with the exit code of a mistake in a file.
func places(err error) error {
	var p *client.ProblemError
	if !errors.As(err, &p) || (len(p.Errors) == 0 && len(p.Fields) == 0) {
		return err
	}
	text := ""
	for _, pl := range p.Errors {
		file := pl.File
		if file == "" {
			file = "policy"
		}
		field := pl.Field
		if field != "" {
			field += ": "
		}
		text += fmt.Sprintf("\n  %s:%d:%d: %s%s", file, pl.Line, pl.Column, field, pl.Text)
	}
	for _, f := range p.Fields {
		text += "\n  " + f
	}
	code := exitUsage
	if len(p.Errors) == 0 {
		code = exitPrecondition
	}
	return &exitError{code: code, err: fmt.Errorf("%w; nothing was changed:%s", err, text)}
}
