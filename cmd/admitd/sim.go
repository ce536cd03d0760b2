package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"admitd/sim"
	"admitd/sim/model"
)

// simCommand is `admitd sim`: a simulated engine in a process of its own.
func simCommand() *cli.Command {
	return &cli.Command{
		Name:  "sim",
		Usage: "run a simulated engine that speaks vLLM's or SGLang's dialect",
		Description: "The engine is simulated: no model is loaded and every token is made up. `admitd serve --engine sim` runs it\n" +
			"behind the gate; alone it is an engine to test against.",
		Flags:  append(simFlags(), standInFlags()...),
		Action: simAction,
	}
}

func simFlags() []cli.Flag {
	var profiles []string
	for _, p := range model.Profiles() {
		profiles = append(profiles, p.Name)
	}
	return []cli.Flag{
		&cli.StringFlag{Name: "listen", Value: "127.0.0.1:8000", Usage: "listen on `ADDRESS`"},
		&cli.StringFlag{Name: "uds", Usage: "listen on the unix socket `PATH` instead"},
		&cli.StringFlag{Name: "model", Value: "sim-model", Usage: "`NAME` or path of the model"},
		&cli.StringSliceFlag{Name: "served-model-name", Usage: "answer to `NAME` (repeatable); the model's name by default"},
		&cli.StringFlag{Name: "api-key", EnvVars: []string{"VLLM_API_KEY"}, Usage: "ask for this `KEY`"},
		&cli.StringFlag{Name: "dialect", Value: sim.VLLM, Usage: "`NAME` of the dialect: vllm or sglang"},
		&cli.StringFlag{Name: "profile", Value: sim.DefaultProfile, Usage: "model and device to imitate, `NAME` is one of: " + strings.Join(profiles, ", ")},
		&cli.Float64Flag{Name: "speed", Value: 1, Usage: "run `N` times faster than real time"},
		&cli.IntFlag{Name: "max-num-seqs", Usage: "most requests running at once, `N`", DefaultText: "256"},
		&cli.IntFlag{Name: "max-num-batched-tokens", Usage: "most tokens in one step, `N`", DefaultText: "2048"},
		&cli.IntFlag{Name: "kv-blocks", Aliases: []string{"num-gpu-blocks-override"}, Usage: "`N` blocks of KV cache", DefaultText: "from the profile"},
		&cli.IntFlag{Name: "block-size", Usage: "`N` tokens in a block", DefaultText: "16"},
		&cli.IntFlag{Name: "max-model-len", Usage: "most tokens of prompt and answer, `N`", DefaultText: "32768 or the KV cache"},
		&cli.IntFlag{Name: "max-num-queued-reqs", Aliases: []string{"max-queued-requests"}, Usage: "the engine's own queue limit, `N` requests", DefaultText: "none"},
		&cli.IntFlag{Name: "max-num-queued-tokens", Usage: "the engine's own limit on prompt tokens in prefill, `N`", DefaultText: "none"},
		&cli.BoolFlag{Name: "no-enable-prefix-caching", Usage: "switch the prefix cache off"},
		&cli.IntFlag{Name: "median-output", Usage: "median `N` of tokens after which an answer ends by itself", DefaultText: "160"},
		&cli.Uint64Flag{Name: "seed", Usage: "`N` changes every answer's text and length"},
		&cli.DurationFlag{Name: "load-time", Usage: "take `DURATION` to load"},
		&cli.IntFlag{Name: "shutdown-timeout", Usage: "on SIGTERM let running requests go on for `SECONDS`"},
		&cli.BoolFlag{Name: "enable-prompt-tokens-details", Usage: "report cached tokens in usage"},
		&cli.BoolFlag{Name: "enable-force-include-usage", Usage: "report usage on every stream"},
		&cli.BoolFlag{Name: "enable-server-load-tracking", Usage: "make /load count"},
		&cli.BoolFlag{Name: "enable-request-id-headers", Usage: "send X-Request-Id"},
		&cli.BoolFlag{Name: "enable-auto-tool-choice", Usage: "accept (and ignore) tools"},
		&cli.BoolFlag{Name: "embeddings", Usage: "serve /v1/embeddings"},
		&cli.BoolFlag{Name: "disable-uvicorn-access-log", Usage: "print no line per request"},
		&cli.StringSliceFlag{Name: "fault", Usage: "misbehave: `NAME[:WHEN]` (repeatable), WHEN is 5s after ready or req=10, +20s how long it lasts"},
		&cli.BoolFlag{Name: "faults", Usage: "list the faults and exit"},
	}
}

func simOptions(c *cli.Context) sim.Options {
	return sim.Options{
		Dialect: c.String("dialect"), Model: c.String("model"), ServedNames: c.StringSlice("served-model-name"), APIKey: c.String("api-key"),
		Profile: c.String("profile"), Speed: c.Float64("speed"), MaxNumSeqs: c.Int("max-num-seqs"),
		MaxBatchedTokens: c.Int("max-num-batched-tokens"), KVBlocks: c.Int("kv-blocks"), BlockSize: c.Int("block-size"),
		MaxModelLen: c.Int("max-model-len"), MaxQueuedReqs: c.Int("max-num-queued-reqs"), MaxQueuedTokens: c.Int("max-num-queued-tokens"),
		NoPrefixCache: c.Bool("no-enable-prefix-caching"), MedianOutput: c.Int("median-output"), Seed: c.Uint64("seed"),
		PromptTokensDetails: c.Bool("enable-prompt-tokens-details"), ForceIncludeUsage: c.Bool("enable-force-include-usage"),
		ServerLoadTracking: c.Bool("enable-server-load-tracking"), RequestIDHeaders: c.Bool("enable-request-id-headers"),
		AutoToolChoice: c.Bool("enable-auto-tool-choice"), Embeddings: c.Bool("embeddings"),
		LoadTime: c.Duration("load-time"), ShutdownTimeout: time.Duration(c.Int("shutdown-timeout")) * time.Second,
		Faults: c.StringSlice("fault"), Output: os.Stdout, NoAccessLog: c.Bool("disable-uvicorn-access-log"),
	}
}

func simAction(c *cli.Context) error {
	if c.Bool("faults") {
		return listFaults(c.App.Writer)
	}
	if played, err := standInAction(c); played {
		return err
	}
	if c.Args().Present() {
		return usage("sim takes no argument %q: use options only", c.Args().First())
	}
	srv, err := sim.New(simOptions(c))
	if err != nil {
		return usage("%w", err)
	}
	ctx, stop := simSignals(c.Context, srv)
	defer stop()
	if err := simProcesses(ctx, srv, c.StringSlice("fault")); err != nil {
		return errors.Join(err, srv.Close())
	}
	address, listen := simListen(c.String("uds"), c.String("listen"), srv.FaultOn(sim.FaultSharedPort))
	err = srv.Run(ctx, address, listen)
	switch {
	case errors.Is(err, sim.ErrCrashed):
		// As on the real engine, the exit status does not tell.
		return nil
	case err == nil && (c.String("dialect") == sim.SGLang || srv.FaultOn(sim.FaultSigkillStop)):
		// SGLang's clean stop ends with a SIGKILL to its own process tree.
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return err
}

// listFaults prints each fault with the engine face that can have it and the bugs of docs/engine-bugs.md that it plays.
func listFaults(w io.Writer) error {
	for _, f := range sim.Faults() {
		face, bugs := f.Face, make([]string, len(f.Bugs))
		if face == "" {
			face = "both"
		}
		for i, n := range f.Bugs {
			bugs[i] = "#" + strconv.Itoa(n)
		}
		if _, err := fmt.Fprintf(w, "%-22s %-7s %-8s %s\n", f.Name, face, strings.Join(bugs, " "), f.Text); err != nil {
			return fmt.Errorf("write the list: %w", err)
		}
	}
	return nil
}

// simListen says where the engine listens, and how; the socket file is left behind at the end, as vLLM leaves it.
func simListen(uds, tcp string, shared bool) (string, func() (net.Listener, error)) {
	if uds == "" {
		return "http://" + tcp, func() (net.Listener, error) {
			var lc net.ListenConfig
			if shared {
				lc.Control = sharePort
			}
			return lc.Listen(context.Background(), "tcp", tcp)
		}
	}
	return "unix:" + uds, func() (net.Listener, error) {
		if err := os.Remove(uds); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", uds)
		if err != nil {
			return nil, err
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		return l, os.Chmod(uds, 0o755) //nolint:gosec // as vLLM leaves it: connecting takes write permission, which only the owner has
	}
}

// simOrphan starts the child of the orphan fault: it shares the process group, holds stdout and stderr and does not
// care whether the leader lives. It ends by itself after ten minutes.
func simOrphan(faults []string) error {
	for _, f := range faults {
		if name, err := sim.ParseFault(f); err != nil || name != sim.FaultOrphan {
			continue
		}
		child := exec.CommandContext(context.Background(), "sleep", "600") // it must outlive us
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			return fmt.Errorf("start the orphan's process: %w", err)
		}
		return nil
	}
	return nil
}
