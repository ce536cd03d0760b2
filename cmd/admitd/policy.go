package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"admitd/gate/policy"
	"admitd/internal/strict"
	"admitd/ui/client"
)

func (e *env) policyCommand() *cli.Command {
	return &cli.Command{
		Name: "policy", Usage: "look at and change the running policy",
		Subcommands: []*cli.Command{
			{Name: "show", Usage: "print the running policy", Flags: adminFlags(outputFlag()), Action: e.policyShow},
			{
				Name: "apply", Usage: "make a policy file the running policy", ArgsUsage: "FILE",
				Description: "FILE may be - for standard input.",
				Flags: adminFlags(outputFlag(),
					&cli.StringFlag{Name: "if-match", Usage: "only if the running revision is `REV`"},
					&cli.StringFlag{Name: "note", Usage: "a `NOTE` for the history"},
				),
				Action: e.policyApply,
			},
			{
				Name: "diff", Usage: "compare a policy file with the running policy", ArgsUsage: "FILE", Flags: adminFlags(outputFlag()),
				Description: "FILE may be - for standard input. Ends with 3 when they differ.", Action: e.policyDiff,
			},
			{
				Name: "revert", Usage: "go back to an earlier revision (default: the one before)", ArgsUsage: "[REV]",
				Flags: adminFlags(outputFlag()), Action: e.policyRevert,
			},
		},
	}
}

func (e *env) policyShow(ctx *cli.Context) error {
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	asking, done := asking(ctx)
	defer done()
	doc, err := c.Policy(asking)
	if err != nil {
		return err
	}
	if ctx.String("output") == "json" {
		return e.print("json", doc, nil)
	}
	// Not through the table: the text must come out as it went in, so that it can be edited and applied.
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s@%s, from %s, since %s\n", doc.Name, doc.Rev, doc.Source, doc.At.Local().Format("2006-01-02 15:04:05"))
	for _, n := range doc.Needs {
		fmt.Fprintf(&b, "# needs %s (%s): %s\n", n.Signal, n.State, n.Why)
	}
	fmt.Fprintln(&b, strings.TrimSuffix(doc.Text, "\n"))
	_, err = e.stdout.Write(b.Bytes())
	return err
}

func readFileOrStdin(name string) ([]byte, error) {
	if name != "-" {
		return strict.ReadFile("policy", name)
	}
	b, err := io.ReadAll(io.LimitReader(os.Stdin, 2<<20)) // more than any policy may have: cut ones are refused as too long
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, usage("policy: standard input is empty; it needs the text of a policy")
	}
	return b, nil
}

func (e *env) policyApply(ctx *cli.Context) error {
	text, err := readFileOrStdin(ctx.Args().First())
	if err != nil {
		return err
	}
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	asking, done := asking(ctx)
	defer done()
	res, err := c.PutPolicy(asking, text, ctx.String("if-match"), ctx.String("note"))
	if err != nil {
		return places(err, ctx.Args().First())
	}
	return e.printReload(ctx, res)
}

func (e *env) policyDiff(ctx *cli.Context) error {
	text, err := readFileOrStdin(ctx.Args().First())
	if err != nil {
		return err
	}
	draft, err := policy.Parse(ctx.Args().First(), text)
	if err != nil {
		return err
	}
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	asking, done := asking(ctx)
	defer done()
	doc, err := c.Policy(asking)
	if err != nil {
		return err
	}
	diff := policy.Diff(doc.Spec, *draft)
	if diff == nil {
		diff = []string{}
	}
	err = e.output(ctx, map[string]any{"running": doc.Rev, "diff": diff}, func(w io.Writer) {
		if len(diff) == 0 {
			fmt.Fprintf(w, "no difference to %s@%s\n", doc.Name, doc.Rev)
		}
		for _, line := range diff {
			fmt.Fprintln(w, line)
		}
	})
	if err == nil && len(diff) > 0 {
		return &exitError{code: exitFindings}
	}
	return err
}

func (e *env) policyRevert(ctx *cli.Context) error {
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	asking, done := asking(ctx)
	defer done()
	res, err := c.Revert(asking, ctx.Args().First())
	if errors.Is(err, client.ErrNotFound) {
		return fmt.Errorf("%w; the revisions that are kept are on the dashboard's policy page and in GET /api/v1/policy/history", err)
	}
	if err != nil {
		return places(err, "")
	}
	return e.printReload(ctx, res)
}
