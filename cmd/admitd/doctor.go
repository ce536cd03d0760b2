package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"admitd/gate/policy"
	"admitd/internal/app"
	"admitd/internal/config"
	"admitd/nvml"
)

// checkup is one line of what doctor found.
type checkup struct {
	Name string `json:"name"`
	// Level is ok, note or problem.
	Level string `json:"level"`
	Text  string `json:"text"`
	// Fix is what to do, "" when nothing.
	Fix string `json:"fix,omitempty"`
}

func (e *env) doctorCommand() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "say what this machine lacks for serving, and what to do about it",
		Flags: append(configFlags(), outputFlag(), &cli.BoolFlag{Name: "strict", Usage: "exit 3 when there are problems"}),
		Action: func(ctx *cli.Context) error {
			found := e.examine(ctx)
			problems := false
			err := e.output(ctx, found, func(w io.Writer) {
				for _, c := range found {
					fmt.Fprintf(w, "%s\t%s\t%s\n", c.Level, c.Name, strings.ReplaceAll(c.Text, "\n", "\n\t\t"))
					if c.Fix != "" {
						fmt.Fprintf(w, "\t\t-> %s\n", strings.ReplaceAll(c.Fix, "\n", "\n\t\t   "))
					}
				}
			})
			for _, c := range found {
				problems = problems || c.Level == "problem"
			}
			if err == nil && problems && ctx.Bool("strict") {
				return &exitError{code: exitFindings}
			}
			return err
		},
	}
}

func (e *env) examine(ctx *cli.Context) []checkup {
	c, err := e.loadConfig(ctx)
	if err != nil {
		return []checkup{{"configuration", "problem", err.Error(), "mend the file or the flag"}}
	}
	return []checkup{
		{"configuration", "ok", "valid", ""},
		policyCheckup(c.PolicyFile),
		engineCheckup(ctx.Context, c),
		gpuCheckup(ctx.Context),
		portCheckup(ctx.Context, "listen", c.Listen),
		portCheckup(ctx.Context, "admin.listen", c.Admin.Listen),
		stateCheckup(c.StateDir),
	}
}

func policyCheckup(file string) checkup {
	if file == "" {
		return checkup{"policy", "ok", "the built-in default", ""}
	}
	text, err := os.ReadFile(file)
	if err == nil {
		_, err = policy.Compile(file, text)
	}
	if err != nil {
		return checkup{"policy", "problem", err.Error(), "docs/policies.md describes the file"}
	}
	return checkup{"policy", "ok", file, ""}
}

func engineCheckup(ctx context.Context, c config.Config) checkup {
	kind, binary, err := app.FindEngine(ctx, c)
	if err != nil {
		// The first line says what is missing, the others what to do.
		what, fix, _ := strings.Cut(err.Error(), "\n")
		return checkup{"engine", "problem", what, strings.ReplaceAll(strings.TrimSpace(fix), "\n  ", "\n")}
	}
	if binary == "" {
		return checkup{"engine", "ok", string(kind), ""}
	}
	return checkup{"engine", "ok", fmt.Sprintf("%s at %s", kind, binary), ""}
}

func gpuCheckup(ctx context.Context) checkup {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	m := nvml.NewMonitor(nvml.MonitorOptions{Interval: 200 * time.Millisecond})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.Run(ctx)
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for m.Reading().At.IsZero() && ctx.Err() == nil {
		<-tick.C
	}
	cancel()
	<-done
	r := m.Reading()
	if r.State != nvml.OK {
		fix := ""
		if _, err := exec.LookPath("nvidia-smi"); err == nil {
			fix = "nvidia-smi is here: compare what it says; after a driver update the machine wants a reboot"
		}
		return checkup{"GPU", "note", fmt.Sprintf("%s: %s (admitd works without; the engine may not)", r.State, r.Why), fix}
	}
	return checkup{"GPU", "ok", fmt.Sprintf("%d devices, driver %s", len(r.Devices), r.Driver), ""}
}

func portCheckup(ctx context.Context, key, addr string) checkup {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return checkup{key, "problem", err.Error(), "an admitd that already runs holds it, or: ss -ltnp"}
	}
	_ = l.Close()
	return checkup{key, "ok", addr + " is free", ""}
}

func stateCheckup(configured string) checkup {
	dir, err := app.StateDir(configured)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	var f *os.File
	if err == nil {
		f, err = os.CreateTemp(dir, ".doctor-*")
	}
	if err != nil {
		return checkup{"state folder", "problem", err.Error(), "set state_dir to a folder that this user can write"}
	}
	_ = f.Close()
	_ = os.Remove(f.Name())
	return checkup{"state folder", "ok", filepath.Clean(dir), ""}
}
