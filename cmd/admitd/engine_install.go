package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"admitd/internal/app"
	"admitd/internal/install"
)

func dataDirFlag() cli.Flag {
	return &cli.StringFlag{Name: "data-dir", EnvVars: []string{"ADMITD_DATA_DIR"}, Usage: dataDirUsage}
}

func (e *env) engineInstallCommand() *cli.Command {
	return &cli.Command{
		Name: "install", Usage: "install vllm or sglang into admitd's data folder, where serve finds it", ArgsUsage: "ENGINE",
		UsageText: "admitd engine install ENGINE [flags]",
		Description: "An install that was cut goes on where it was when the same command is given again. Where packages come from is pip's\n" +
			"own configuration. docs/engines.md tells what is fetched and what is checked.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "cpu", Usage: "the build for machines without a GPU, which is the default there; --cpu=false takes the other"},
			&cli.StringFlag{Name: "version", Usage: "`VERSION` to install (default: the one that admitd knows best)"},
			&cli.StringFlag{Name: "python", Usage: "`PATH` of the Python to build on (default: python3 on PATH)"},
			&cli.BoolFlag{Name: "test-model", Usage: "also unpack a small model (SmolLM2-135M) into the engine's folder, and start the engine with it once"},
			&cli.StringFlag{Name: "verify-model", Usage: "start the engine once with this `MODEL`: a folder or a hub name"},
			dataDirFlag(),
			&cli.StringFlag{Name: "folder", Usage: "install into this `FOLDER` itself, where only --engine-binary finds it"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress"},
			outputFlag(),
		},
		Action: e.engineInstall,
	}
}

// engineLast moves the engine of "engine install ENGINE --flags", which is how people write it, behind the flags, where the
// library reads it.
func engineLast(args []string) []string {
	if !engineFirst(args) {
		return args
	}
	return slices.Concat(args[:3], args[4:], args[3:4])
}

func engineFirst(args []string) bool {
	return len(args) > 4 && args[1] == "engine" && args[2] == "install" && !strings.HasPrefix(args[3], "-")
}

// asWritten gives arguments in the order in which they stand on the command line: engineLast may have changed it.
func (e *env) asWritten(args []string) []string {
	if last := len(args) - 1; engineFirst(e.args) && last > 0 {
		return slices.Concat(args[last:], args[:last])
	}
	return args
}

func (e *env) engineInstall(ctx *cli.Context) error {
	o := install.Options{
		Kind: ctx.Args().First(), Version: ctx.String("version"), Folder: ctx.String("folder"), Python: ctx.String("python"),
		TestModel: ctx.Bool("test-model"), VerifyModel: ctx.String("verify-model"), Start: install.TryStart, Root: "/", Now: time.Now,
	}
	if ctx.IsSet("cpu") {
		o.Build = install.GPU
		if ctx.Bool("cpu") {
			o.Build = install.CPU
		}
	}
	dir, err := install.DataDir(ctx.String("data-dir"))
	if err != nil {
		return usage("engine install: %w", err)
	}
	o.DataDir = dir
	if o, err = install.Resolve(o); err != nil {
		return usage("engine install: %w", err)
	}
	stop := newStopper()
	defer stop.release()
	screen := e.screen()
	if ctx.Bool("quiet") {
		screen = app.NewScreen(io.Discard, nil)
	}
	screen.Line(fmt.Sprintf("installing %s %s (%s build)", o.Kind, o.Version, o.Build))
	paint := newInstallProgress(stop.ctx, screen)
	o.Reporter = paint
	m, err := install.Install(stop.ctx, o)
	paint.close()
	if stop.ctx.Err() != nil {
		screen.Line("interrupted; the same command goes on where this was")
		return stop.exit()
	}
	if err != nil {
		return installFailure(fmt.Errorf("engine install: %w", err))
	}
	return e.output(ctx, m, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "engine\t%s\nfolder\t%s\nsize\t%s\nverified\t%s\n", m.Name, m.Folder, gib(m.Bytes), strings.Join(m.Verified, "\n\t"))
		if !m.Started {
			_, _ = fmt.Fprintf(w, "not started\t%s --verify-model MODEL tries a real start\n", strings.Join(append([]string{"admitd"}, e.args[1:]...), " "))
		}
		_, _ = fmt.Fprintf(w, "serve with\t%s\n", serveLine(m, o))
	})
}

// serveLine is the command that serves with an engine.
func serveLine(m install.Marker, o install.Options) string {
	line := "admitd serve --engine " + m.Kind
	switch {
	case o.Folder != "":
		line += " --engine-binary " + m.BinaryPath()
	case o.Version != "":
		if newest, err := install.Find(o.DataDir, m.Kind, "", install.HasGPU(o.Root)); err != nil || newest.Name != m.Name {
			line += " --engine-version " + m.Version
		}
	}
	if m.ModelPath() != "" && m.Build == install.CPU {
		return line + " --model " + m.ModelPath()
	}
	return line + " --model Qwen2.5-0.5B"
}

// installFailure gives a failed install or removal its exit code.
func installFailure(err error) error {
	var busy *install.BusyError
	var used *install.InUseError
	var step *install.Error
	switch {
	case errors.As(err, &busy), errors.As(err, &used), errors.As(err, &step) && step.Precondition:
		return &exitError{code: exitPrecondition, err: err}
	case errors.Is(err, install.ErrNotInstalled):
		return &exitError{code: exitUsage, err: err}
	}
	return err
}

func gib(bytes uint64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

func (e *env) engineListCommand() *cli.Command {
	return &cli.Command{
		Name: "list", Usage: "list the engines that admitd has installed", Flags: []cli.Flag{dataDirFlag(), outputFlag()},
		Action: func(ctx *cli.Context) error {
			dir, err := install.DataDir(ctx.String("data-dir"))
			if err != nil {
				return usage("engine list: %w", err)
			}
			all, err := install.List(dir)
			if err != nil {
				return fmt.Errorf("engine list: %w", err)
			}
			rows := make([]installedRow, len(all))
			for i, in := range all {
				rows[i] = installedRow{in, install.Users("/proc", in.Folder)}
			}
			return e.output(ctx, rows, func(w io.Writer) { printInstalled(w, dir, rows) })
		},
	}
}

// installedRow is one line of engine list.
type installedRow struct {
	install.Installed
	InUseBy []install.User `json:"in_use_by"`
}

func printInstalled(w io.Writer, dir string, rows []installedRow) {
	if len(rows) == 0 {
		_, _ = fmt.Fprintf(w, "no engine is installed in %s; to install one: admitd engine install vllm\n", dir)
		return
	}
	_, _ = fmt.Fprintln(w, "NAME\tENGINE\tVERSION\tBUILD\tSIZE\tVERIFIED\tIN USE BY")
	for _, r := range rows {
		used := make([]string, len(r.InUseBy))
		for i, u := range r.InUseBy {
			used[i] = u.String()
		}
		if r.Marker == nil || r.Problem != "" {
			_, _ = fmt.Fprintf(w, "%s\tcannot be used: %s\n", r.Name, r.Problem)
			continue
		}
		m := r.Marker
		who := strings.Join(used, ", ")
		if who == "" {
			who = "nobody"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Kind, m.Version, m.Build, gib(m.Bytes), m.VerifiedAt.Local().Format(time.DateTime), who)
	}
}

func (e *env) engineRemoveCommand() *cli.Command {
	return &cli.Command{
		Name: "remove", Usage: "remove an installed engine that nobody uses", ArgsUsage: "NAME", Flags: []cli.Flag{dataDirFlag()},
		Action: func(ctx *cli.Context) error {
			dir, err := install.DataDir(ctx.String("data-dir"))
			if err != nil {
				return usage("engine remove: %w", err)
			}
			name := ctx.Args().First()
			if err := install.Remove(dir, name, "/proc"); err != nil {
				return installFailure(fmt.Errorf("engine remove: %w", err))
			}
			_, err = fmt.Fprintf(e.stdout, "removed %s\n", name)
			return err
		},
	}
}

// installProgress shows an install: one repainting line on a terminal, one line for each thing that stays elsewhere.
type installProgress struct {
	screen *app.Screen
	began  time.Time
	now    chan string
	ended  chan struct{}
	cancel context.CancelFunc
}

func newInstallProgress(ctx context.Context, s *app.Screen) *installProgress {
	ctx, cancel := context.WithCancel(ctx)
	p := &installProgress{screen: s, began: time.Now(), now: make(chan string), ended: make(chan struct{}), cancel: cancel}
	go p.paint(ctx)
	return p
}

// paint repaints with the time that has passed, so that a silent minute does not look like a hang.
func (p *installProgress) paint(ctx context.Context) {
	defer close(p.ended)
	defer p.screen.Clear()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	doing := ""
	for {
		select {
		case <-ctx.Done():
			return
		case doing = <-p.now:
		case <-tick.C:
		}
		if doing != "" && p.screen.Terminal() {
			p.screen.Paint(fmt.Sprintf("%s · %s in all", doing, time.Since(p.began).Round(time.Second)))
		}
	}
}

func (p *installProgress) close() {
	p.cancel()
	<-p.ended
}

// Step implements install.Reporter.
func (p *installProgress) Step(n, of int, name string) {
	p.screen.Line(fmt.Sprintf("[%d/%d] %s", n, of, name))
	p.Doing(name)
}

// Note implements install.Reporter.
func (p *installProgress) Note(text string) { p.screen.Line("      " + text) }

// Doing implements install.Reporter.
func (p *installProgress) Doing(text string) {
	select {
	case p.now <- text:
	case <-p.ended:
	}
}
