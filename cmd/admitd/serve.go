package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"admitd/internal/app"
	"admitd/internal/config"
)

// configFlags are shared by serve and check: what can be set without a file.
func configFlags() []cli.Flag {
	str := func(name, usage string) cli.Flag {
		return &cli.StringFlag{Name: name, Usage: usage, EnvVars: []string{envName(name)}}
	}
	return []cli.Flag{
		str("config", "configuration `FILE` (docs/configuration.md)"),
		str("model", "`MODEL` to serve: a short name, a hub name or a folder"),
		str("model-name", "`NAME` that callers use for the model"),
		str("engine", "`KIND`: auto, vllm, sglang, sim or external"),
		str("engine-url", "base `URL` of an external engine"),
		str("engine-binary", "`PATH` of the engine's program"),
		&cli.IntFlag{Name: "engine-port", Usage: "let vLLM listen on this loopback `PORT` instead of a unix socket", EnvVars: []string{"ADMITD_ENGINE_PORT"}},
		str("policy", "policy `FILE` (docs/policies.md)"),
		str("listen", "`ADDRESS` of the model API (default 127.0.0.1:8080)"),
		str("admin", "`ADDRESS` of dashboard and admin API (default 127.0.0.1:8081)"),
		&cli.BoolFlag{Name: "allow-anonymous", Usage: "serve callers without a key on an address that others can reach", EnvVars: []string{"ADMITD_ALLOW_ANONYMOUS"}},
		str("state-dir", "`FOLDER` for what admitd remembers"),
		str("journal-dir", "`FOLDER` for the decision record on disk"),
		str("log-level", "debug, info, warn or error"),
		str("log-format", "text or json"),
	}
}

func envName(flag string) string {
	b := []byte("ADMITD_" + flag)
	for i, c := range b {
		switch {
		case c == '-':
			b[i] = '_'
		case c >= 'a' && c <= 'z':
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

// loadConfig reads the file and lays environment and flags over it.
func (e *env) loadConfig(ctx *cli.Context) (config.Config, error) {
	return config.Load(ctx.String("config"), func(c *config.Config) {
		for name, target := range map[string]*string{
			"model": &c.Model, "model-name": &c.ModelName, "engine": &c.Engine.Kind, "engine-url": &c.Engine.URL,
			"engine-binary": &c.Engine.Binary, "policy": &c.PolicyFile, "listen": &c.Listen, "admin": &c.Admin.Listen,
			"state-dir": &c.StateDir, "journal-dir": &c.Journal.Dir, "log-level": &c.Log.Level, "log-format": &c.Log.Format,
		} {
			if ctx.IsSet(name) {
				*target = ctx.String(name)
			}
		}
		if ctx.IsSet("engine-port") {
			c.Engine.Port = ctx.Int("engine-port")
		}
		if ctx.IsSet("allow-anonymous") {
			c.AllowAnonymous = ctx.Bool("allow-anonymous")
		}
		if e.hasEngineArgs {
			c.Engine.Args = e.engineArgs
		}
		if c.Engine.URL != "" && c.Engine.Kind == "auto" {
			c.Engine.Kind = "external"
		}
	})
}

func (e *env) serveCommand() *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "launch the engine and open the gate",
		Description: "Arguments after -- go to the engine and win over admitd's own:\n" +
			"admitd serve --model Qwen2.5-0.5B -- --max-num-seqs 8",
		Flags: append(configFlags(),
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no loading progress"},
			&cli.StringFlag{Name: "ui-dir", Usage: "serve the dashboard from this `FOLDER` (for its developers)", EnvVars: []string{"ADMITD_UI_DIR"}},
		),
		Action: e.serve,
	}
}

func (e *env) serve(ctx *cli.Context) error {
	c, err := e.loadConfig(ctx)
	if err != nil {
		return err
	}
	if c.Model == "" && c.Engine.Kind != "external" {
		return usage("serve: which model? --model NAME, for instance --model Qwen2.5-0.5B")
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	level := new(slog.LevelVar)
	logger := e.logger(c.Log, level)
	stop := newStopper()
	defer stop.release()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	err = app.Run(stop.ctx, app.Options{
		Config: c, ConfigFile: ctx.String("config"), Version: version, Self: self, UIDir: ctx.String("ui-dir"),
		Load:   func() (config.Config, error) { return e.loadConfig(ctx) },
		Logger: logger, Level: level, Progress: e.progress(ctx), Terminal: isTerminal(e.stderr),
		Hangup: hangup, Force: stop.force,
	})
	if err == nil || errors.Is(err, context.Canceled) {
		return stop.exit()
	}
	return err
}

func (e *env) progress(ctx *cli.Context) io.Writer {
	if ctx.Bool("quiet") {
		return nil
	}
	return e.stderr
}

func (e *env) logger(l config.Log, level *slog.LevelVar) *slog.Logger {
	_ = level.UnmarshalText([]byte(l.Level)) // checked with the configuration
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(e.stderr, o))
	}
	return slog.New(slog.NewTextHandler(e.stderr, o))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// stopper turns signals into a stop: the first asks nicely, the second ends every wait.
type stopper struct {
	ctx     context.Context
	force   chan struct{}
	release func()
	got     atomic.Int32
}

func newStopper() *stopper {
	ctx, cancel := context.WithCancel(context.Background())
	s := &stopper{ctx: ctx, force: make(chan struct{})}
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer cancel()
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case sig := <-ch:
				if n == 0 {
					if num, ok := sig.(syscall.Signal); ok {
						s.got.Store(int32(num)) //nolint:gosec // signal numbers are small
					}
					cancel()
				}
				if n == 1 {
					close(s.force)
				}
			}
		}
	}()
	s.release = func() { signal.Stop(ch); close(done) }
	return s
}

// exit is the end that the signal asked for: 130 and 143 tell a shell that it was one.
func (s *stopper) exit() error {
	switch syscall.Signal(s.got.Load()) {
	case syscall.SIGINT:
		return &exitError{code: exitInterrupted}
	case syscall.SIGTERM:
		return &exitError{code: exitTerminated}
	default:
		return nil
	}
}
