package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"admitd/supervisor"
	"admitd/ui/api"
	"admitd/ui/client"
)

func (e *env) engineCommand() *cli.Command {
	return &cli.Command{
		Name: "engine", Usage: "install engines; look at and restart the one that runs",
		Subcommands: []*cli.Command{
			e.engineInstallCommand(), e.engineListCommand(), e.engineRemoveCommand(),
			{
				Name: "logs", Usage: "print the engine's last output",
				Flags: adminFlags(outputFlag(),
					&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on with new lines"},
					&cli.IntFlag{Name: "last", Aliases: []string{"n"}, Value: 200, Usage: "the last `N` lines, 1 to 1000"},
				),
				Action: e.engineLogs,
			},
			{
				Name: "restart", Usage: "let requests in flight finish, stop the engine and start it again",
				Flags: adminFlags(outputFlag(),
					&cli.BoolFlag{Name: "wait", Usage: "wait until the engine is ready again"},
					&cli.DurationFlag{Name: "timeout", Value: 30 * time.Minute, Usage: "longest `TIME` to wait"},
				),
				Action: e.engineRestart,
			},
		},
	}
}

func (e *env) engineLogs(ctx *cli.Context) error {
	n := ctx.Int("last")
	if n < 1 || n > 1000 {
		return usage("engine logs: --last %d: must be 1 to 1000", n)
	}
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	stop := newStopper() // before the first line: whoever reads one may send a signal
	defer stop.release()
	logs, err := e.lastLogs(stop.ctx, c, n)
	if stop.ctx.Err() != nil {
		return stop.exit()
	}
	if err != nil {
		return err
	}
	asJSON := ctx.String("output") == "json"
	for _, l := range logs.Lines {
		if err := e.printLine(l.Seq, l.At, l.Text, asJSON); err != nil {
			return err
		}
	}
	if !ctx.Bool("follow") {
		return nil
	}
	err = c.FollowLogs(stop.ctx, logs.Next, func(l api.LogEvent) error {
		if l.Lost {
			_, err := fmt.Fprintln(e.stderr, "(older lines were lost)")
			return err
		}
		return e.printLine(l.Seq, l.At, l.Text, asJSON)
	})
	if stop.ctx.Err() != nil {
		return stop.exit()
	}
	return err
}

func (e *env) lastLogs(ctx context.Context, c *client.Client, n int) (api.EngineLogs, error) {
	asking, done := context.WithTimeout(ctx, answerWithin)
	defer done()
	return c.Logs(asking, 0, n)
}

func (e *env) printLine(seq uint64, at time.Time, text string, asJSON bool) error {
	var err error
	if asJSON {
		err = json.NewEncoder(e.stdout).Encode(supervisor.Line{Seq: seq, At: at, Text: text})
	} else {
		_, err = fmt.Fprintln(e.stdout, text)
	}
	if err != nil {
		return fmt.Errorf("print the engine's output: %w", err)
	}
	return nil
}

func (e *env) engineRestart(ctx *cli.Context) error {
	if ctx.Duration("timeout") <= 0 {
		return usage("engine restart: --timeout %s: must be above 0", ctx.Duration("timeout"))
	}
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	asking, done := asking(ctx)
	defer done()
	before, err := c.Engine(asking)
	if err != nil {
		return err
	}
	// Not bounded: it answers when the requests in flight have ended.
	res, err := c.RestartEngine(ctx.Context)
	if err != nil {
		return err
	}
	if ctx.Bool("wait") {
		if err := waitRestarted(ctx.Context, c, before, ctx.Duration("timeout")); err != nil {
			return err
		}
		res.Text = "the engine is ready again"
	}
	return e.output(ctx, res, func(w io.Writer) { fmt.Fprintln(w, res.Text) })
}

// waitRestarted waits for a ready engine that is not the one from before.
func waitRestarted(ctx context.Context, c *client.Client, before supervisor.Status, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := c.Engine(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the engine is not ready after %s: %w", limit, ctx.Err())
		case err != nil:
			return err
		case now.State == supervisor.Ready && !now.ReadyAt.Equal(before.ReadyAt):
			return nil
		case now.GaveUp:
			return &exitError{code: exitEngine, err: errors.New("the engine did not come back: " + now.Text)}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
