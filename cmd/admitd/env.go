package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"admitd/internal/app"
	"admitd/ui/client"
)

// env is what every command works with.
type env struct {
	stdout, stderr io.Writer
	// engineArgs is what stood after --; hasEngineArgs tells an empty list from none.
	engineArgs    []string
	hasEngineArgs bool
}

// strict makes every command refuse what cli would silently ignore: flags after an argument, arguments that nobody
// takes, and -- where there is no engine to pass arguments to.
func (e *env) strict(commands ...*cli.Command) []*cli.Command {
	for _, c := range commands {
		c.OnUsageError = func(_ *cli.Context, err error, _ bool) error { return usage("%w", err) }
		c.HideHelpCommand = true
		if len(c.Subcommands) > 0 {
			c.Subcommands = e.strict(c.Subcommands...)
			c.Action = e.noCommand
			continue
		}
		action, takes := c.Action, strings.Fields(c.ArgsUsage)
		c.Action = func(ctx *cli.Context) error {
			if err := e.checkArgs(ctx, takes); err != nil {
				return err
			}
			return action(ctx)
		}
	}
	return commands
}

func (e *env) checkArgs(ctx *cli.Context, takes []string) error {
	name := ctx.Command.Name
	for _, a := range ctx.Args().Slice() {
		if strings.HasPrefix(a, "-") && a != "-" {
			return usage("%s: %s stands after an argument, where flags are not read; put flags first", name, a)
		}
	}
	if n := ctx.NArg(); n > len(takes) {
		return usage("%s: unexpected argument %q%s", name, ctx.Args().Get(len(takes)), atMost(takes))
	}
	required := 0
	for _, t := range takes {
		if !strings.HasPrefix(t, "[") {
			required++
		}
	}
	if ctx.NArg() < required {
		return usage("%s: needs %s", name, strings.Join(takes[ctx.NArg():required], " "))
	}
	if e.hasEngineArgs && name != "serve" && name != "check" {
		return usage("%s: nothing takes arguments after --", name)
	}
	return nil
}

func atMost(takes []string) string {
	if len(takes) == 0 {
		return "; it takes none"
	}
	return "; it takes " + strings.Join(takes, " ")
}

// noCommand is what runs when no command was recognised.
func (e *env) noCommand(ctx *cli.Context) error {
	commands := ctx.App.Commands
	if ctx.Command != nil && len(ctx.Command.Subcommands) > 0 {
		commands = ctx.Command.Subcommands
	}
	if ctx.NArg() == 0 {
		if ctx.Command != nil && ctx.Command.Name != "" && ctx.Command.Name != ctx.App.Name {
			return usage("%s: which of %s?", ctx.Command.Name, strings.Join(names(commands), ", "))
		}
		return cli.ShowAppHelp(ctx)
	}
	word := ctx.Args().First()
	hint := ""
	if s := cli.SuggestCommand(commands, word); s != "" {
		hint = fmt.Sprintf("; did you mean %s?", s)
	}
	return usage("unknown command %q%s", word, hint)
}

func names(commands []*cli.Command) []string {
	out := make([]string, 0, len(commands))
	for _, c := range commands {
		out = append(out, c.Name)
	}
	return out
}

// outputFlag is -o table|json for commands that print something.
func outputFlag() cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "table", Usage: "table or json"}
}

// output prints v as JSON, or lets table print it.
func (e *env) output(ctx *cli.Context, v any, table func(w io.Writer)) error {
	switch mode := ctx.String("output"); mode {
	case "json":
		enc := json.NewEncoder(e.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	case "table":
		w := tabwriter.NewWriter(e.stdout, 0, 4, 2, ' ', 0)
		table(w)
		return w.Flush()
	default:
		return usage("-o %s: must be table or json", mode)
	}
}

// adminFlags say which admitd to talk to.
func adminFlags(more ...cli.Flag) []cli.Flag {
	return append(more,
		&cli.StringFlag{Name: "admin", Value: "127.0.0.1:8081", EnvVars: []string{"ADMITD_ADMIN"}, Usage: "`ADDRESS` of the admin listener"},
		&cli.StringFlag{Name: "token-file", EnvVars: []string{"ADMITD_TOKEN_FILE"}, Usage: "`FILE` with the admin token (default: the state folder's)"},
		&cli.StringFlag{Name: "state-dir", EnvVars: []string{"ADMITD_STATE_DIR"}, Usage: "state `FOLDER` of the admitd to talk to"},
		&cli.StringFlag{Name: "pool", Usage: "served `MODEL` to ask about (default: the first)"},
	)
}

// client connects to the admin API. A missing token file is no error: reading on loopback needs none.
func (e *env) client(ctx *cli.Context) (*client.Client, error) {
	token := os.Getenv("ADMITD_TOKEN")
	if token == "" {
		dir, err := app.StateDir(ctx.String("state-dir"))
		if err != nil {
			return nil, err
		}
		file := app.TokenFile(ctx.String("token-file"), dir)
		token, err = app.ReadToken(file)
		if err != nil && (ctx.IsSet("token-file") || !errors.Is(err, os.ErrNotExist)) {
			return nil, err
		}
	}
	return client.New(client.Options{Address: ctx.String("admin"), Token: token, Pool: ctx.String("pool")})
}
