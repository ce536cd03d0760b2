package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"admitd/ui/api"
)

func (e *env) upgradeCommand() *cli.Command {
	return &cli.Command{
		Name: "upgrade", Usage: "replace the running admitd by the binary that is on disk now",
		Description: "The new admitd takes over listeners, engine and record; the old one finishes its open requests and ends. The\n" +
			"engine goes on. When the new one is not ready in time (upgrade.timeout), the old one goes on as if nothing had happened.",
		Flags: adminFlags(outputFlag(),
			&cli.StringFlag{Name: "binary", Usage: "start this `FILE` instead of the running admitd's own path"},
		),
		Action: e.upgrade,
	}
}

func (e *env) upgrade(ctx *cli.Context) error {
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	binary := ctx.String("binary")
	if binary != "" {
		if binary, err = filepath.Abs(binary); err != nil {
			return fmt.Errorf("--binary: %w", err)
		}
	}
	// The serving admitd bounds the upgrade itself.
	step, err := c.Upgrade(ctx.Context, binary, func(s api.UpgradeStep) {
		fmt.Fprintln(e.stderr, s.Text)
	})
	if err != nil {
		return err
	}
	if !step.OK {
		return errors.New("upgrade failed: " + step.Text)
	}
	return e.output(ctx, step, func(w io.Writer) {
		fmt.Fprintf(w, "upgraded: pid %d serves\n", step.PID)
	})
}
