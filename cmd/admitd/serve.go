package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"admitd/internal/app"
	"admitd/internal/config"
	"admitd/internal/sockets"
)

// dataDirUsage describes --data-dir, which serve and the commands about installed engines have.
const dataDirUsage = "`FOLDER` with the engines that admitd installs (default: $XDG_DATA_HOME/admitd or ~/.local/share/admitd)"

// configFlags are shared by serve and check: what can be set without a file.
func configFlags() []cli.Flag {
	str := func(name, usage string) cli.Flag {
		return &cli.StringFlag{Name: name, Usage: usage, EnvVars: []string{envName(name)}}
	}
	return []cli.Flag{
		str("config", "configuration `FILE` (docs/configuration.md)"),
		str("model", "`MODEL` to serve: a short name, a hub name or a folder; for an external engine the name it serves"),
		str("model-name", "`NAME` that callers use for the model (default: MODEL)"),
		str("engine", "`KIND` of engine: auto (vLLM, then SGLang, as found), vllm, sglang, sim or external (default: auto)"),
		str("engine-url", "base `URL` of an engine that somebody else runs, for instance http://127.0.0.1:8000"),
		str("engine-binary", "`PATH` of the engine's program; for SGLang its Python (default: an installed one, then as found on PATH)"),
		str("engine-version", "run the installed engine of this `VERSION` (default: the newest)"),
		&cli.IntFlag{Name: "engine-port", Usage: "let vLLM listen on this loopback `PORT`", DefaultText: "a unix socket", EnvVars: []string{"ADMITD_ENGINE_PORT"}},
		str("policy", "policy `FILE` (docs/policies.md; default: the built-in policy)"),
		str("listen", "`ADDRESS` of the model API, host:port or unix:/path (default: 127.0.0.1:8080)"),
		str("admin", "`ADDRESS` of dashboard and admin API, host:port or unix:/path (default: 127.0.0.1:8081)"),
		str("tls-cert", "serve the model API over TLS with the certificate in this PEM `FILE` (with --tls-key)"),
		str("tls-key", "PEM `FILE` with the certificate's key"),
		str("tls-client-ca", "PEM `FILE` with CAs: callers need a certificate that one of them signed"),
		&cli.BoolFlag{Name: "allow-anonymous", Usage: "serve callers without a key on an address that others can reach", EnvVars: []string{"ADMITD_ALLOW_ANONYMOUS"}},
		str("state-dir", "`FOLDER` for what admitd remembers (default: $XDG_STATE_HOME/admitd or ~/.local/state/admitd)"),
		str("data-dir", dataDirUsage),
		str("journal-dir", "`FOLDER` for the decision record on disk; one that does not begin with / is inside the state folder (default: journal)"),
		str("log-level", "`LEVEL` of the log: debug, info, warn or error (default: info)"),
		str("log-format", "`FORM` of the log: text or json (default: text)"),
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

// settingOf says which setting a flag is.
func settingOf() map[string]string {
	return map[string]string{
		"model": "model", "model-name": "model_name", "engine": "engine.kind", "engine-url": "engine.url", "engine-binary": "engine.binary", "engine-version": "engine.version", "data-dir": "data_dir",
		"engine-port": "engine.port", "policy": "policy_file", "listen": "listen", "admin": "admin.listen",
		"tls-cert": "tls.cert", "tls-key": "tls.key", "tls-client-ca": "tls.client_ca", "allow-anonymous": "allow_anonymous",
		"state-dir": "state_dir", "journal-dir": "journal.dir", "log-level": "log.level", "log-format": "log.format",
	}
}

// loadConfig reads the file and lays environment and flags over it.
func (e *env) loadConfig(ctx *cli.Context) (config.Config, error) {
	return config.LoadOver(ctx.String("config"), config.Over{
		Apply:  func(c *config.Config) { e.overlay(ctx, c) },
		Origin: func(key string) string { return e.origin(ctx, key) },
	})
}

// origin names the flag or variable that a setting came from, so that a mistake is looked for where it is.
func (e *env) origin(ctx *cli.Context, key string) string {
	if key == "engine.args" && e.hasEngineArgs {
		return "the arguments after --"
	}
	for flag, setting := range settingOf() {
		switch {
		case setting != key || !ctx.IsSet(flag) || e.emptyEnv(ctx, flag):
		case e.written(flag):
			return "--" + flag
		default:
			return envName(flag)
		}
	}
	return ""
}

// written reports whether a flag stands on the command line: the library does not tell that from its variable.
func (e *env) written(flag string) bool {
	return slices.ContainsFunc(e.args, func(arg string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		return strings.HasPrefix(arg, "-") && name == flag
	})
}

func (e *env) overlay(ctx *cli.Context, c *config.Config) {
	for name, target := range map[string]*string{
		"model": &c.Model, "model-name": &c.ModelName, "engine": &c.Engine.Kind, "engine-url": &c.Engine.URL,
		"engine-binary": &c.Engine.Binary, "engine-version": &c.Engine.Version, "data-dir": &c.DataDir, "policy": &c.PolicyFile, "listen": &c.Listen, "admin": &c.Admin.Listen,
		"tls-cert": &c.TLS.Cert, "tls-key": &c.TLS.Key, "tls-client-ca": &c.TLS.ClientCA,
		"state-dir": &c.StateDir, "journal-dir": &c.Journal.Dir, "log-level": &c.Log.Level, "log-format": &c.Log.Format,
	} {
		if ctx.IsSet(name) && !e.emptyEnv(ctx, name) {
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
}

// emptyEnv reports whether all that sets a flag is an empty environment variable, which is how much that starts programs
// writes "not set".
func (e *env) emptyEnv(ctx *cli.Context, name string) bool {
	v, ok := os.LookupEnv(envName(name))
	return ok && v == "" && ctx.String(name) == "" && !e.written(name)
}

func (e *env) serveCommand() *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "launch the engine and open the gate",
		UsageText: "admitd serve [flags] [-- engine arguments]",
		Description: "Arguments after -- go to the engine and win over admitd's own:\n" +
			"   admitd serve --model Qwen2.5-0.5B -- --max-num-seqs 8\n" +
			"Flags win over environment variables, those over the file. The first Ctrl-C or SIGTERM lets open requests finish\n" +
			"(engine.drain_timeout), a second one does not wait. SIGHUP reads configuration, policy and certificates again; SIGUSR2 does\n" +
			"what `admitd upgrade` does.",
		Flags: append(configFlags(),
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no loading progress"},
			&cli.StringFlag{Name: "ui-dir", Usage: "serve the dashboard from this `FOLDER` (for its developers)", EnvVars: []string{"ADMITD_UI_DIR"}},
		),
		Action: e.serve,
	}
}

func (e *env) serve(ctx *cli.Context) error {
	outliveReader()
	// Before all else: nothing that is started from here on may find the descriptors or the variables.
	notifier, notifyEnv := sockets.NewNotifier()
	inherited, err := sockets.Inherit()
	if err != nil {
		return &app.SetupError{Err: err} // trying again would find the same
	}
	c, err := e.loadConfig(ctx)
	if err != nil {
		app.Decline(inherited, err)
		return err
	}
	if c.Model == "" {
		return usage("serve: %s", noModel(c))
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	level := new(slog.LevelVar)
	screen := e.screen()
	logger := newLogger(screen, c.Log, level)
	stop := newStopper()
	defer stop.release()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	usr2 := make(chan os.Signal, 1)
	signal.Notify(usr2, syscall.SIGUSR2)
	defer signal.Stop(usr2)
	err = app.Run(stop.ctx, app.Options{
		Config: c, ConfigFile: ctx.String("config"), Version: version, Self: self, UIDir: ctx.String("ui-dir"),
		Load:   func() (config.Config, error) { return e.loadConfig(ctx) },
		Logger: logger, Level: level, Progress: progress(ctx, screen), Hangup: hangup, Usr2: usr2, Force: stop.force,
		Args: e.own(), Inherited: inherited, Notifier: notifier, NotifyEnv: notifyEnv,
	})
	if err == nil || errors.Is(err, context.Canceled) {
		return stop.exit()
	}
	return err
}

// outliveReader makes a write to an output whose reader has gone an error, which nobody minds, instead of the end of admitd,
// which would leave the engine without one. In `serve 2>&1 | tee log` Ctrl-C ends the reader first. The signal is caught and not
// ignored: programs inherit what is ignored.
func outliveReader() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// own are this program's arguments, for one that takes over.
func (e *env) own() []string {
	args := slices.Clone(e.args[1:])
	if e.hasEngineArgs {
		args = append(append(args, "--"), e.engineArgs...)
	}
	return args
}

// noModel says how to name the model.
func noModel(c config.Config) string {
	if c.Engine.Kind == "external" {
		return "which model does that engine serve? --model NAME, as its /v1/models lists it"
	}
	return "which model? --model NAME, for instance --model Qwen2.5-0.5B"
}

func progress(ctx *cli.Context, s *app.Screen) *app.Screen {
	if ctx.Bool("quiet") {
		return nil
	}
	return s
}

// screen is standard error, which may be a terminal that can repaint a line.
func (e *env) screen() *app.Screen {
	f, ok := e.stderr.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return app.NewScreen(e.stderr, nil)
	}
	return app.NewScreen(e.stderr, func() int {
		cols, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0
		}
		return cols
	})
}

func newLogger(w io.Writer, l config.Log, level *slog.LevelVar) *slog.Logger {
	_ = level.UnmarshalText([]byte(l.Level)) // checked with the configuration
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
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
						s.got.Store(int32(num))
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
