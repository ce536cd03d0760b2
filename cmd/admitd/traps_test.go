package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"admitd/gate/policy"
	"admitd/internal/app"
	"admitd/internal/strict"
	"admitd/ui/api"
	"admitd/ui/client"
)

// find returns one command of the tree, nil when there is none.
func find(commands []*cli.Command, path ...string) *cli.Command {
	for _, c := range commands {
		if c.Name == path[0] {
			if len(path) == 1 {
				return c
			}
			return find(c.Subcommands, path[1:]...)
		}
	}
	return nil
}

// The library splits the values of slice flags at commas unless told not to.
func TestTrapCommasInRepeatableFlags(t *testing.T) {
	e := &env{stdout: io.Discard, stderr: io.Discard}
	tree := e.app()
	var got []string
	find(tree.Commands, "sim").Action = func(c *cli.Context) error {
		got = c.StringSlice("served-model-name")
		return nil
	}
	err := tree.Run([]string{"admitd", "sim", "--served-model-name", "a,b", "--served-model-name", "c"})
	if d := cmp.Diff([]string{"a,b", "c"}, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
}

// The library ends the process inside Run when an action returns cli.Exit. Were it still so, this test would not end.
func TestTrapExitInsideRun(t *testing.T) {
	var out, errs bytes.Buffer
	e := &env{stdout: &out, stderr: &errs}
	tree := e.app()
	find(tree.Commands, "version").Action = func(*cli.Context) error { return cli.Exit("said by an action", 9) }
	if code := e.report(tree.Run([]string{"admitd", "version"})); code != exitRuntime || errs.String() != "admitd: said by an action\n" {
		t.Errorf("exit code %d, %q", code, &errs)
	}
}

// The library prints mistakes in flags, with the whole help, to standard output; unknown commands exit 3 there.
func TestTrapMistakesOnStandardOutput(t *testing.T) {
	for _, args := range [][]string{
		{"--no-such"}, {"no-such"}, {"status", "--no-such"}, {"policy", "no-such"}, {"policy", "show", "--no-such"}, {"policy", "--no-such"},
		{"serve", "--engine-port", "x"}, {"serve", "--config"},
	} {
		var out, errs bytes.Buffer
		if code := run(append([]string{"admitd"}, args...), &out, &errs); code != exitUsage || out.Len() > 0 || strings.Count(errs.String(), "\n") != 2 {
			t.Errorf("%q: exit code %d, on standard output %q, on standard error %q", args, code, &out, &errs)
		}
	}
}

func TestExitCodes(t *testing.T) {
	problem := func(status int) error { return &client.ProblemError{Problem: api.Problem{Status: status}} }
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{errors.New("disk full"), exitRuntime},
		{usage("which?"), exitUsage},
		{fmt.Errorf("c: %w", &strict.Error{}), exitUsage},
		{&app.SetupError{Err: app.ErrNoEngine}, exitUsage},
		{&app.SetupError{Err: fmt.Errorf("engine vllm: %w", exec.ErrNotFound)}, exitUsage},
		{fmt.Errorf("read policy: %w", fs.ErrNotExist), exitUsage},
		{&exitError{code: exitFindings}, exitFindings},
		{fmt.Errorf("%w at x", client.ErrUnreachable), exitUnreachable},
		{problem(http.StatusUnauthorized), exitUnreachable},
		{problem(http.StatusForbidden), exitUnreachable},
		{problem(http.StatusBadRequest), exitUsage},
		{problem(http.StatusNotFound), exitRuntime},
		{problem(http.StatusInternalServerError), exitRuntime},
		{problem(http.StatusPreconditionFailed), exitPrecondition},
		{problem(http.StatusConflict), exitPrecondition},
		{problem(http.StatusUnprocessableEntity), exitPrecondition},
		{fmt.Errorf("pool: %w", &policy.NeedsError{}), exitPrecondition},
		{fmt.Errorf("not ready: %w", context.DeadlineExceeded), exitTimeout},
		{fmt.Errorf("%w: gone", app.ErrEngineFailed), exitEngine},
	} {
		e := &env{stderr: io.Discard}
		if got := e.report(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

func TestPlaces(t *testing.T) {
	bad := &client.ProblemError{Problem: api.Problem{Status: 400, Detail: "x", Errors: []api.Place{
		{Line: 2, Column: 3, Field: "params.max_waiting", Text: "too low"}, {File: "other.yaml", Line: 1, Column: 1, Text: "no"},
	}}}
	want := "refused, nothing was changed:\nmine.yaml:2:3: params.max_waiting: too low\nother.yaml:1:1: no"
	if err := places(bad, "mine.yaml"); err.Error() != want || codeOf(err) != exitUsage {
		t.Errorf("%d %v", codeOf(err), err)
	}
	cold := &client.ProblemError{Problem: api.Problem{Status: 409, Fields: []string{"listen a -> b (needs a restart of admitd)"}}}
	if err := places(cold, ""); codeOf(err) != exitPrecondition || !strings.Contains(err.Error(), "\n  listen a -> b") {
		t.Errorf("%d %v", codeOf(err), err)
	}
	other := errors.New("else")
	if err := places(other, ""); !errors.Is(err, other) {
		t.Errorf("%v", err)
	}
}

// Who holds the port and never answers must not hold the command: it says so instead of a bare "deadline exceeded".
func TestSilentServerHasARemedy(t *testing.T) {
	if got := remedy(context.DeadlineExceeded); !strings.Contains(got, "nothing answered within 30s") {
		t.Error(got)
	}
	if got := remedy(errors.New("x")) + remedy(fmt.Errorf("the engine is not ready: %w", context.DeadlineExceeded)); got != "" {
		t.Error(got)
	}
}

func TestDidYouMean(t *testing.T) {
	known := []string{"serve", "show", "status", "sim", "n", "engine-port"}
	for word, want := range map[string]string{
		"serv": "serve", "sevre": "serve", "shwo": "show", "stats": "status", "engineport": "engine-port", "sum": "sim",
		"x": "", "frobnicate": "", "": "", "nn": "",
	} {
		got := didYouMean("--", word, known)
		if want != "" {
			want = "; did you mean --" + want + "?"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// The scripts are written from the command tree; this holds that nothing is left out of them.
func TestCompletionOffersEverything(t *testing.T) {
	tree := (&env{}).app()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := completion(shell, tree.Commands)
		if err != nil {
			t.Fatal(err)
		}
		flag := map[string]string{"bash": "--%s", "zsh": "--%s", "fish": " -l %s"}[shell]
		var look func(commands []*cli.Command)
		look = func(commands []*cli.Command) {
			for _, c := range commands {
				if !strings.Contains(script, c.Name) {
					t.Errorf("%s: no %s", shell, c.Name)
				}
				for _, f := range c.Flags {
					if n := f.Names()[0]; !strings.Contains(script, fmt.Sprintf(flag, n)) {
						t.Errorf("%s: %s has no %s", shell, c.Name, n)
					}
				}
				look(c.Subcommands)
			}
		}
		look(tree.Commands)
	}
}

func TestFishQuotesWhatItWouldExpand(t *testing.T) {
	if got := fishQuote(`vLLM's $x \`); got != `'vLLM\'s $x \\'` {
		t.Error(got)
	}
}

// Every command can be asked for help, and every flag that takes a value says what.
func TestHelpOfEveryCommand(t *testing.T) {
	var all func(path []string, commands []*cli.Command)
	all = func(path []string, commands []*cli.Command) {
		for _, c := range commands {
			here := append(append([]string{}, path...), c.Name)
			var out, errs bytes.Buffer
			if code := run(append(append([]string{"admitd"}, here...), "--help"), &out, &errs); code != exitOK || errs.Len() > 0 {
				t.Errorf("%q: exit code %d, %q", here, code, &errs)
			}
			if text := out.String(); !strings.Contains(text, "admitd "+strings.Join(here, " ")) || strings.Contains(text, " value ") || strings.Contains(text, "(default: false)") {
				t.Errorf("%q:\n%s", here, text)
			}
			all(here, c.Subcommands)
		}
	}
	all(nil, (&env{}).app().Commands)
}
