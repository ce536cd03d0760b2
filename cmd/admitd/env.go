package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"admitd/internal/app"
	"admitd/ui/client"
)

// env is what every command works with.
type env struct {
	stdout, stderr io.Writer
	// args is what stood before --.
	args []string
	// engineArgs is what stood after --; hasEngineArgs tells an empty list from none.
	engineArgs    []string
	hasEngineArgs bool
}

// strict makes every command refuse what cli would silently ignore: flags after an argument, arguments that nobody
// takes, and -- where there is no engine to pass arguments to. parent is how the commands are reached.
func (e *env) strict(parent string, commands ...*cli.Command) []*cli.Command {
	for _, c := range commands {
		path := parent + " " + c.Name
		c.OnUsageError = e.usageError
		c.HideHelpCommand = true
		dress(path, c)
		if len(c.Subcommands) > 0 {
			c.Subcommands = e.strict(path, c.Subcommands...)
			c.Action = e.noCommand
			continue
		}
		action, takes := c.Action, strings.Fields(c.ArgsUsage)
		c.Action = func(ctx *cli.Context) error {
			if err := e.checkArgs(ctx, takes); err != nil {
				return e.at(ctx, err)
			}
			return e.at(ctx, action(ctx))
		}
	}
	return commands
}

// checkArgs finds mistakes in the call before anything is done.
func (e *env) checkArgs(ctx *cli.Context, takes []string) error {
	name := strings.TrimPrefix(ctx.Command.HelpName, "admitd ")
	for _, a := range ctx.Args().Slice() {
		if strings.HasPrefix(a, "-") && a != "-" {
			return usage("%s: %s stands after an argument, where flags are not read; put flags first", name, a)
		}
	}
	if n := ctx.NArg(); n > len(takes) {
		return usage("%s: unexpected argument %q%s", name, e.asWritten(ctx.Args().Slice())[len(takes)], atMost(takes))
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
	if e.hasEngineArgs && name != "serve" && name != "check" && name != "doctor" {
		return usage("%s: nothing takes arguments after --", name)
	}
	if m := ctx.String("output"); m != "" && m != "table" && m != "json" {
		return usage("%s: -o %s: must be table or json", name, m)
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
	commands, where, inner := ctx.App.Commands, "", false
	if ctx.Command != nil && ctx.Command.Name != "" && ctx.Command.Name != ctx.App.Name {
		commands, where, inner = ctx.Command.Subcommands, ctx.Command.Name+": ", true
	}
	word := ctx.Args().First()
	switch {
	case ctx.Bool("version"):
		return e.printVersion("table")
	case e.hasEngineArgs:
		return e.at(ctx, usage("%snothing takes arguments after --", where))
	case word == "help" && inner:
		return cli.ShowSubcommandHelp(ctx)
	case word != "":
		return e.at(ctx, usage("%sunknown command %q%s", where, word, didYouMean("", word, names(commands))))
	case inner:
		return e.at(ctx, usage("%swhich of %s?", where, strings.Join(names(commands), ", ")))
	}
	return cli.ShowAppHelp(ctx)
}

// outputFlag is -o table|json for commands that print something.
func outputFlag() cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "table", Usage: "`FORM` of what is printed: table or json"}
}

// output prints v as JSON, or lets table print it.
func (e *env) output(ctx *cli.Context, v any, table func(w io.Writer)) error {
	return e.print(ctx.String("output"), v, table)
}

func (e *env) print(mode string, v any, table func(w io.Writer)) error {
	if mode == "json" {
		enc := json.NewEncoder(e.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	w := tabwriter.NewWriter(e.stdout, 0, 4, 2, ' ', 0)
	table(w)
	return w.Flush()
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

// client connects to the admin API. A missing token file is no error: reading on loopback needs none. --token-file is the
// more deliberate choice, so it wins over ADMITD_TOKEN.
func (e *env) client(ctx *cli.Context) (*client.Client, error) {
	token := strings.TrimSpace(os.Getenv("ADMITD_TOKEN"))
	if token == "" || ctx.String("token-file") != "" {
		dir, err := app.StateDir(ctx.String("state-dir"))
		if err != nil {
			return nil, err
		}
		file := app.TokenFile(ctx.String("token-file"), dir)
		token, err = app.ReadToken(file)
		if err != nil && (ctx.String("token-file") != "" || !errors.Is(err, os.ErrNotExist)) {
			return nil, err
		}
	}
	c, err := client.New(client.Options{Address: ctx.String("admin"), Token: token, Pool: ctx.String("pool")})
	if err != nil {
		return nil, usage("%w", err)
	}
	return c, nil
}

// answerWithin bounds a question that the admin API answers from memory.
const answerWithin = 30 * time.Second

// asking is the context of one such question: whoever holds the port without answering must not hold us for ever.
func asking(ctx *cli.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx.Context, answerWithin)
}
