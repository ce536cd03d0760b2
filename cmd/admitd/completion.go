package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

func (e *env) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a completion script for bash, zsh or fish", ArgsUsage: "SHELL",
		Description: "For this shell, and for later ones in its start-up file:\n" +
			"   bash: source <(admitd completion bash)\n   zsh:  source <(admitd completion zsh)\n   fish: admitd completion fish | source",
		Action: func(ctx *cli.Context) error {
			script, err := completion(ctx.Args().First(), ctx.App.Commands)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(e.stdout, script)
			return err
		},
	}
}

// completion writes a script from the command tree itself, so that it cannot miss a flag.
func completion(shell string, commands []*cli.Command) (string, error) {
	switch shell {
	case "bash":
		return bashCompletion(commands), nil
	case "zsh":
		return "autoload -U +X bashcompinit && bashcompinit\n" + bashCompletion(commands), nil
	case "fish":
		return fishCompletion(commands), nil
	}
	return "", usage("completion: %q is not bash, zsh or fish", shell)
}

// choices are the words that a flag takes, nil where it takes anything.
func choices(flag string) []string {
	return map[string][]string{
		"engine": {"auto", "vllm", "sglang", "sim", "external"}, "output": {"table", "json"}, "o": {"table", "json"},
		"log-level": {"debug", "info", "warn", "error"}, "log-format": {"text", "json"}, "dialect": {"vllm", "sglang"},
	}[flag]
}

// operands are the words that a command takes as arguments.
func operands(c *cli.Command) []string {
	if c.Name == "completion" {
		return []string{"bash", "zsh", "fish"}
	}
	return names(c.Subcommands)
}

func bashCompletion(commands []*cli.Command) string {
	var b strings.Builder
	b.WriteString("_admitd() {\n  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words\n")
	b.WriteString("  case \"$prev\" in\n")
	for _, f := range valued(commands) {
		fmt.Fprintf(&b, "    %s) COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); return ;;\n", dashed(f), strings.Join(choices(f), " "))
	}
	b.WriteString("  esac\n  case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n")
	for _, c := range commands {
		for _, s := range c.Subcommands {
			fmt.Fprintf(&b, "    \"%s %s\") words=\"%s\" ;;\n", c.Name, s.Name, strings.Join(flagWords(s), " "))
		}
		words := append(operands(c), flagWords(c)...)
		fmt.Fprintf(&b, "    \"%s \"*) words=\"%s\" ;;\n", c.Name, strings.Join(words, " "))
	}
	fmt.Fprintf(&b, "    *) words=\"%s help --help --version\" ;;\n  esac\n", strings.Join(names(commands), " "))
	b.WriteString("  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _admitd admitd\n")
	return b.String()
}

func fishCompletion(commands []*cli.Command) string {
	var b strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&b, "complete -c admitd -n __fish_use_subcommand -a %s -d %s\n", c.Name, fishQuote(c.Usage))
		inside := "__fish_seen_subcommand_from " + c.Name
		for _, s := range c.Subcommands {
			fmt.Fprintf(&b, "complete -c admitd -n '%s' -a %s -d %s\n", inside, s.Name, fishQuote(s.Usage))
			fishFlags(&b, inside+"; and __fish_seen_subcommand_from "+s.Name, s)
		}
		if len(c.Subcommands) == 0 && len(operands(c)) > 0 {
			fmt.Fprintf(&b, "complete -c admitd -n '%s' -a '%s'\n", inside, strings.Join(operands(c), " "))
		}
		fishFlags(&b, inside, c)
	}
	return b.String()
}

func fishFlags(b *strings.Builder, when string, c *cli.Command) {
	for _, f := range c.Flags {
		fmt.Fprintf(b, "complete -c admitd -n '%s'", when)
		var takes []string
		for _, n := range f.Names() {
			if len(n) == 1 {
				fmt.Fprintf(b, " -s %s", n)
			} else {
				fmt.Fprintf(b, " -l %s", n)
			}
			takes = append(takes, choices(n)...)
		}
		if v, ok := f.(cli.DocGenerationFlag); ok && v.TakesValue() {
			b.WriteString(" -r")
			if len(takes) > 0 {
				fmt.Fprintf(b, " -f -a '%s'", strings.Join(choices(f.Names()[0]), " "))
			}
		}
		b.WriteByte('\n')
	}
}

// fishQuote makes one word of a text, in which fish then expands nothing.
func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// valued lists the flags of all commands that take one of a few words, each once.
func valued(commands []*cli.Command) []string {
	var out []string
	seen := map[string]bool{}
	for _, c := range commands {
		for _, f := range c.Flags {
			for _, n := range f.Names() {
				if choices(n) != nil && !seen[n] {
					seen[n] = true
					out = append(out, n)
				}
			}
		}
		for _, n := range valued(c.Subcommands) {
			if !seen[n] {
				seen[n] = true
				out = append(out, n)
			}
		}
	}
	return out
}

func dashed(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

// flagWords are the long flags of a command, --help with them.
func flagWords(c *cli.Command) []string {
	var out []string
	for _, f := range c.Flags {
		for _, n := range f.Names() {
			if len(n) > 1 && n != "help" {
				out = append(out, dashed(n))
			}
		}
	}
	return append(out, "--help")
}
