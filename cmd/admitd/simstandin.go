package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

// standInFlags make `admitd sim` one of the helpers that its faults need. They are no interface for people.
func standInFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "hold-memory", Hidden: true, Usage: "hold the simulated GPU memory `NAME`"},
		&cli.BoolFlag{Name: "core", Hidden: true, Usage: "be a core that can be pinned"},
		&cli.BoolFlag{Name: "pin", Hidden: true, Usage: "keep the process from ending"},
		&cli.IntFlag{Name: "of", Hidden: true, Usage: "the process `PID` it is about"},
		&cli.DurationFlag{Name: "for", Hidden: true, Usage: "go on for `DURATION` after its end"},
	}
}

// standInAction plays a helper; false when none was asked for.
func standInAction(c *cli.Context) (played bool, err error) {
	switch {
	case c.String("hold-memory") != "":
		return true, holdMemory(c.String("hold-memory"), c.Int("of"), c.Duration("for"))
	case c.Bool("core"):
		return true, beCore()
	case c.Bool("pin"):
		return true, pin(c.Int("of"), c.Duration("for"))
	}
	return false, nil
}

// holdMemory has the memory until so long after the end of a process.
func holdMemory(name string, pid int, stay time.Duration) error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", name)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	pause(stay)
	return nil
}

// beCore is a process that can be pinned by another that is not its parent (prctl(2), PR_SET_PTRACER).
func beCore() error {
	if err := unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return err // EINVAL: a kernel without the restriction
	}
	pause(10 * time.Minute)
	return nil
}

// unkillable starts the engine's core and a helper that keeps it from ending. A kernel driver that never returns does the
// same to a real one: the process was killed, is there, and holds what it has.
func unkillable(stay time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	core := exec.CommandContext(context.Background(), self, "sim", "--core") // it must outlive us
	core.Stdout, core.Stderr = os.Stdout, os.Stderr
	if err := core.Start(); err != nil {
		return err
	}
	if err := standIn("--pin", "--of", strconv.Itoa(core.Process.Pid), "--for", stay.String()); err != nil {
		return err
	}
	return awaited("pinning the core (ptrace)", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", core.Process.Pid))
		return err == nil && strings.Contains(string(b), "\nTracerPid:") && !strings.Contains(string(b), "\nTracerPid:\t0\n")
	})
}

// pin traces a process so that it stops at its exit, where not even SIGKILL moves it on (ptrace(2), PTRACE_EVENT_EXIT),
// and lets it go so long after that.
func pin(pid int, stay time.Duration) error {
	runtime.LockOSThread() // the tracer is a thread, not a process
	if err := awaited("tracing the core", func() bool {
		_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, unix.PTRACE_O_TRACEEXIT, 0, 0)
		return e == 0
	}); err != nil {
		return err
	}
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(pid, &ws, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case ws.Exited() || ws.Signaled():
			return nil
		case ws.TrapCause() == unix.PTRACE_EVENT_EXIT:
			pause(stay)
			return unix.PtraceDetach(pid)
		}
		sig := 0
		if ws.Stopped() && ws.TrapCause() < 0 {
			sig = int(ws.StopSignal())
		}
		if err := unix.PtraceCont(pid, sig); err != nil {
			return err
		}
	}
}
