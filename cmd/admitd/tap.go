package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"admitd/ui/api"
	"admitd/ui/client"
)

// tapEvery is how often new decisions are asked for.
const tapEvery = 250 * time.Millisecond

func (e *env) tapCommand() *cli.Command {
	return &cli.Command{
		Name: "tap", Usage: "print decisions as they are made",
		Description: "Filters as on the dashboard, for instance: admitd tap --filter 'decision:defer tenant:acme est>4000'",
		Flags: adminFlags(outputFlag(),
			&cli.StringFlag{Name: "filter", Aliases: []string{"f"}, Usage: "only decisions that match this `FILTER`"},
			&cli.IntFlag{Name: "last", Aliases: []string{"n"}, Value: 10, Usage: "begin with the last `N` decisions, 0 to 1000"},
			&cli.BoolFlag{Name: "once", Usage: "print the last decisions and end"},
		),
		Action: e.tap,
	}
}

func (e *env) tap(ctx *cli.Context) error {
	if n := ctx.Int("last"); n < 0 || n > 1000 {
		return usage("tap: --last %d: must be 0 to 1000", n)
	}
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	stop := newStopper()
	defer stop.release()
	err = e.follow(stop.ctx, c, ctx)
	if stop.ctx.Err() != nil {
		return stop.exit()
	}
	return err
}

func (e *env) follow(ctx context.Context, c *client.Client, flags *cli.Context) error {
	filter, asJSON := flags.String("filter"), flags.String("output") == "json"
	page, err := c.Decisions(ctx, client.DecisionQuery{Limit: max(flags.Int("last"), 1), Filter: filter})
	if err != nil {
		return err
	}
	newestFirst := page.Items[:min(len(page.Items), flags.Int("last"))]
	if err := e.printDecisions(newestFirst, asJSON); err != nil {
		return err
	}
	tick := time.NewTicker(tapEvery)
	defer tick.Stop()
	for after := page.Next; !flags.Bool("once"); after = page.Next {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if page, err = c.Decisions(ctx, client.DecisionQuery{After: &after, Limit: 1000, Filter: filter}); err != nil {
			return err
		}
		if err := e.printDecisions(page.Items, asJSON); err != nil {
			return err
		}
	}
	return nil
}

// printDecisions prints oldest first what came newest first.
func (e *env) printDecisions(items []api.DecisionItem, asJSON bool) error {
	enc := json.NewEncoder(e.stdout)
	for _, it := range slices.Backward(items) {
		if asJSON {
			if err := enc.Encode(it); err != nil {
				return fmt.Errorf("print decision: %w", err)
			}
			continue
		}
		if _, err := fmt.Fprintln(e.stdout, decisionLine(it)); err != nil {
			return fmt.Errorf("print decision: %w", err)
		}
	}
	return nil
}

func decisionLine(it api.DecisionItem) string {
	d := it.Decision
	line := fmt.Sprintf("%s %-6s %-16s %s %s/%s ~%d+%d tokens", it.At.Local().Format("15:04:05.000"), d.Verdict, d.Reason, d.ID,
		d.Tenant, d.Class, d.PromptTokens, d.OutputTokens)
	if d.RetryAfterMS > 0 {
		line += fmt.Sprintf(" retry in %s", (time.Duration(d.RetryAfterMS) * time.Millisecond).Round(100*time.Millisecond))
	}
	if d.HeldMS > 0 {
		line += fmt.Sprintf(" held %d ms", d.HeldMS)
	}
	if d.Message != "" {
		line += ": " + d.Message
	}
	return line
}
