package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"admitd/sim"
)

// How long the faults of processes last where nothing was said.
const (
	unkillableFor = 60 * time.Second
	memoryHeldFor = 20 * time.Second
	// childLife is how long a child lives that nobody ends.
	childLife = "600"
)

// simProcesses starts the processes that the asked faults need beside the engine's own.
func simProcesses(ctx context.Context, srv *sim.Server, faults []string) error {
	if err := simOrphan(faults); err != nil {
		return err
	}
	for name, play := range map[sim.Fault]func(given time.Duration) error{
		sim.FaultDeadScheduler: func(time.Duration) error { return deadScheduler(ctx, srv) },
		sim.FaultEscapedWorker: func(time.Duration) error {
			_, err := simChild("sglang::scheduler_TP1", true)
			return err
		},
		sim.FaultLeaderKilled: func(time.Duration) error {
			return killedLeader(ctx, srv, sim.FaultLeaderKilled, "VLLM::EngineCore", false)
		},
		sim.FaultOOMKill: func(time.Duration) error { return killedLeader(ctx, srv, sim.FaultOOMKill, "VLLM::Worker_TP0", true) },
		sim.FaultHungStart: func(time.Duration) error {
			_, err := simChild("VLLM::Worker_TP0", false)
			return err
		},
		sim.FaultUnkillable: func(given time.Duration) error { return unkillable(orElse(given, unkillableFor)) },
		sim.FaultMemoryHeld: func(given time.Duration) error { return memoryHeld(srv, orElse(given, memoryHeldFor)) },
	} {
		given, asked := srv.Asked(name)
		if !asked {
			continue
		}
		if err := play(given); err != nil {
			return fmt.Errorf("play the fault %s: %w", name, err)
		}
	}
	return nil
}

func orElse(given, def time.Duration) time.Duration {
	if given > 0 {
		return given
	}
	return def
}

// simChild starts a process that shows itself under a name, holds stdout and stderr, and sleeps. It belongs to the
// engine's process group, or to a session of its own.
func simChild(name string, escaped bool) (*exec.Cmd, error) {
	child := exec.CommandContext(context.Background(), "sleep", childLife) // it must outlive us
	child.Args[0] = name
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: escaped}
	return child, child.Start()
}

// killedLeader starts a process that outlives us and kills us when the fault's time has come.
func killedLeader(ctx context.Context, srv *sim.Server, name sim.Fault, child string, escaped bool) error {
	if _, err := simChild(child, escaped); err != nil {
		return err
	}
	go func() {
		if srv.FaultBegins(ctx, name) == nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // nothing can come after it
		}
	}()
	return nil
}

// deadScheduler starts a scheduler and ends it when its time has come, or lets somebody else do so.
func deadScheduler(ctx context.Context, srv *sim.Server) error {
	child, err := simChild("sglang::scheduler_TP0", false)
	if err != nil {
		return err
	}
	go func() {
		if srv.FaultBegins(ctx, sim.FaultDeadScheduler) == nil {
			_ = child.Process.Kill() // it may have been ended from outside
		}
	}()
	go func() {
		_ = child.Wait() // killed, by whomever
		// A closed engine stands still already.
		_ = srv.SetFault(sim.FaultDeadScheduler, true)
	}()
	return nil
}

// simSignals returns a context that ends with SIGTERM or SIGINT, unless a fault has made the engine deaf to them.
func simSignals(parent context.Context, srv *sim.Server) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, os.Interrupt)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-asked:
			}
			if _, hung := srv.Asked(sim.FaultHungStart); !hung && !srv.FaultOn(sim.FaultDeafHang) {
				cancel()
			}
		}
	}()
	return ctx, func() { signal.Stop(asked); cancel() }
}

// sharePort lets other servers listen on the same port, as vLLM before July 2026 did.
func sharePort(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	return errors.Join(err, failed)
}

// standIn starts a helper that is nobody's: another session, no mark of the engine's in its environment, and its parent
// gone at once. So whoever ends the engine does not end it.
func standIn(args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	sh := exec.CommandContext(context.Background(), "/bin/sh", append([]string{"-c", `"$0" sim "$@" </dev/null >/dev/null 2>&1 &`, self}, args...)...)
	sh.Env = []string{"PATH=" + os.Getenv("PATH")}
	sh.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return sh.Run()
}

// awaited polls for what a helper brings about.
func awaited(what string, come func() bool) error {
	deadline := time.Now().Add(20 * time.Second)
	for !come() {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s did not happen within 20 s", what)
		}
		pause(10 * time.Millisecond)
	}
	return nil
}

func pause(d time.Duration) { <-time.After(d) }

// memoryHeld begins to hold the simulated GPU's memory beyond the engine's life, or notes that an earlier engine's is
// still held. The memory is an abstract unix socket that one can have at a time.
func memoryHeld(srv *sim.Server, stay time.Duration) error {
	h := fnv.New64a()
	_, _ = h.Write([]byte(os.Getenv("ADMITD_ENGINE_MARK"))) // never fails
	name := fmt.Sprintf("@admitd-sim-memory-%d-%x", os.Getuid(), h.Sum64())
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", name)
	if errors.Is(err, syscall.EADDRINUSE) {
		srv.Trip(sim.FaultMemoryHeld)
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	if err := standIn("--hold-memory", name, "--of", strconv.Itoa(os.Getpid()), "--for", stay.String()); err != nil {
		return err
	}
	return awaited("holding the memory", func() bool {
		c, err := new(net.Dialer).DialContext(context.Background(), "unix", name)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}
