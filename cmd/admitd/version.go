package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/urfave/cli/v2"
)

func (e *env) versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version", Flags: []cli.Flag{outputFlag()},
		Action: func(ctx *cli.Context) error { return e.printVersion(ctx.String("output")) },
	}
}

func (e *env) printVersion(mode string) error {
	v := map[string]string{"version": version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
	return e.print(mode, v, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "admitd %s (%s, %s)\n", version, v["go"], v["platform"])
	})
}
