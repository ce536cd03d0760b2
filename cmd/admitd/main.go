// Command admitd is the front door of a self-hosted LLM: it launches the engine, decides about every request before
// GPU memory is committed, and shows each decision.
//
// Goal: one file per command, wiring only.
//
// Non-goals: behaviour; the packages have that.
//
// Invariants: results go to standard output, everything else to standard error; exit codes are those of exit.go.
package main

import (
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/urfave/cli/v2"
)

// version is set by the linker.
var version = "dev"

func main() {
	// Libraries that use the standard logger say things that must not be said: net/http quotes what an engine sends beyond
	// its answer, which is answer text.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

// run is main without the process: the same for tests.
func run(args []string, stdout, stderr io.Writer) int {
	own, rest, split := args, []string(nil), slices.Index(args, "--")
	if split >= 0 {
		own, rest = args[:split], args[split+1:]
	}
	e := &env{stdout: stdout, stderr: stderr, args: own, engineArgs: rest, hasEngineArgs: split >= 0}
	return e.report(e.app().Run(engineLast(helpLast(own))))
}

// app is the command tree. cli's own ways of ending the process and of printing errors are switched off.
func (e *env) app() *cli.App {
	return &cli.App{
		Name: "admitd", Usage: "the front door of a self-hosted LLM", Version: version,
		Writer: e.stdout, ErrWriter: e.stderr,
		HideVersion: true, HideHelpCommand: true, DisableSliceFlagSeparator: true,
		CustomAppHelpTemplate: appHelp,
		ExitErrHandler:        func(*cli.Context, error) {},
		OnUsageError:          e.usageError,
		Flags:                 []cli.Flag{&cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true}},
		Action:                e.noCommand,
		Commands: e.strict("admitd",
			e.serveCommand(), e.checkCommand(), e.doctorCommand(),
			e.statusCommand(), e.tapCommand(), e.explainCommand(), e.reloadCommand(), e.upgradeCommand(), e.policyCommand(), e.engineCommand(),
			simCommand(), e.completionCommand(), e.versionCommand(),
		),
	}
}
