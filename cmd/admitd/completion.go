package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

func (e *env) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a completion script for bash, zsh or fish", ArgsUsage: "SHELL",
		Description: "bash: source <(admitd completion bash)\nzsh:  source <(admitd completion zsh)\nfish: admitd completion fish | source",
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

func bashCompletion(commands []*cli.Command) string {
	var b strings.Builder
	b.WriteString("_admitd() {\n  local cur=${COMP_WORDS[COMP_CWORD]} words\n  case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n")
	for _, c := range commands {
		for _, s := range c.Subcommands {
			fmt.Fprintf(&b, "    \"%s %s\") words=\"%s\" ;;\n", c.Name, s.Name, strings.Join(flagWords(s), " "))
		}
		words := append(names(c.Subcommands), flagWords(c)...)
		fmt.Fprintf(&b, "    \"%s \"*) words=\"%s\" ;;\n", c.Name, strings.Join(words, " "))
	}
	fmt.Fprintf(&b, "    *) words=\"%s\" ;;\n  esac\n", strings.Join(names(commands), " "))
	b.WriteString("  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _admitd admitd\n")
	return b.String()
}

func fishCompletion(commands []*cli.Command) string {
	var b strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&b, "complete -c admitd -n __fish_use_subcommand -a %s -d %q\n", c.Name, c.Usage)
		for _, s := range c.Subcommands {
			fmt.Fprintf(&b, "complete -c admitd -n '__fish_seen_subcommand_from %s' -a %s -d %q\n", c.Name, s.Name, s.Usage)
		}
		for _, f := range flagWords(c) {
			fmt.Fprintf(&b, "complete -c admitd -n '__fish_seen_subcommand_from %s' -l %s\n", c.Name, strings.TrimLeft(f, "-"))
		}
	}
	return b.String()
}

func flagWords(c *cli.Command) []string {
	var out []string
	for _, f := range c.Flags {
		for _, n := range f.Names() {
			if len(n) > 1 {
				out = append(out, "--"+n)
			}
		}
	}
	return out
}
