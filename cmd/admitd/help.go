package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// appHelp is what admitd says about itself; the commands come from the tree.
const appHelp = `admitd - {{.Usage}}

It launches an inference engine, decides about every request before GPU memory is committed to it, and shows why.

Usage: admitd COMMAND [flags] [arguments]

Commands:
{{range .VisibleCommands}}   {{printf "%-12s" .Name}}{{.Usage}}
{{end}}
To begin:
   admitd doctor                                     what this machine lacks, and what to do about it
   admitd serve --model Qwen2.5-0.5B                 with vLLM or SGLang, as found
   admitd serve --model Qwen2.5-0.5B --engine sim    without a GPU: answers are made up
   admitd tap                                        in another terminal: each decision as it is made

Flags:
   --help, -h   this text; admitd help COMMAND, or admitd COMMAND --help, for one command
   --version    print the version

Results go to standard output, progress and logs to standard error. Exit codes: 0 done, 1 failed while running,
2 command, configuration or policy wrong, 3 check, doctor or diff found something, 4 admin API unreachable or access
refused, 5 a precondition failed, 6 timed out, 7 the engine failed, 130 and 143 ended by SIGINT and SIGTERM.
`

// helpLast turns "admitd help COMMAND" into "admitd COMMAND --help", so that there is one way to ask for help.
func helpLast(args []string) []string {
	if len(args) < 2 || args[1] != "help" {
		return args
	}
	return append(append([]string{args[0]}, args[2:]...), "--help")
}

// dress makes the help of one command say how it is called, without defaults that say nothing.
func dress(path string, c *cli.Command) {
	for _, f := range c.Flags {
		if b, ok := f.(*cli.BoolFlag); ok {
			b.DisableDefaultText = true
		}
	}
	switch {
	case c.UsageText != "":
	case len(c.Subcommands) > 0:
		c.UsageText = path + " COMMAND [flags] [arguments]"
	default:
		c.UsageText = strings.TrimRight(path+" [flags] "+c.ArgsUsage, " ")
	}
}

// usageError makes the complaints of the flag parser readable.
func (e *env) usageError(ctx *cli.Context, err error, _ bool) error {
	words := strings.Fields(err.Error())
	for i, w := range words {
		// The parser names every flag with one dash.
		if bare := strings.TrimRight(w, ":"); len(bare) > 2 && bare[0] == '-' && bare[1] != '-' && i > 0 && (words[i-1] == "flag" || words[i-1] == "defined:" || words[i-1] == "argument:") {
			words[i] = "-" + w
		}
	}
	text := strings.Join(words, " ")
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: "); ok {
		text = "unknown flag " + name + didYouMean("--", strings.TrimLeft(name, "-"), flagNames(ctx))
	}
	return e.at(ctx, usage("%s", text))
}

// at lets a usage error point to the help of the command it is about.
func (e *env) at(ctx *cli.Context, err error) error {
	var ee *exitError
	if errors.As(err, &ee) && ee.usage && ctx.Command != nil && ctx.Command.HelpName != "" {
		ee.help = ctx.Command.HelpName
	}
	return err
}

func flagNames(ctx *cli.Context) []string {
	flags := ctx.App.Flags
	if ctx.Command != nil && ctx.Command.Name != "" {
		flags = ctx.Command.Flags
	}
	var out []string
	for _, f := range flags {
		out = append(out, f.Names()...)
	}
	return out
}

// didYouMean offers the known word that takes the fewest edits, when that is few enough to be a slip.
func didYouMean(prefix, word string, known []string) string {
	best, least := "", 1+max(1, len(word)/3)
	for _, k := range known {
		if d := edits(word, k); len(k) > 1 && d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s%s?", prefix, best)
}

// edits counts the letters to insert, delete, replace or swap with their neighbour to make one word of another
// (optimal string alignment distance).
func edits(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// names lists commands, for people.
func names(commands []*cli.Command) []string {
	out := make([]string, 0, len(commands))
	for _, c := range commands {
		out = append(out, c.Name)
	}
	return slices.Clip(out)
}
