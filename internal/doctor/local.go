package doctor

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"admitd/internal/install"
	"admitd/nvml"
	"admitd/supervisor"
)

// answerWithin bounds a program that is asked for one line.
const answerWithin = 20 * time.Second

// Local is this machine. gpu says whether its GPUs may be read.
func Local(gpu bool) Machine {
	home, _ := os.UserHomeDir() // "" means that there is none
	m := Machine{
		Root: "/", Env: os.Getenv, Home: home, LookPath: exec.LookPath, Output: firstLine,
		Listen: tryListen, Holder: supervisor.PortHolder, Serving: supervisor.Serving, EngineMark: supervisor.EngineMark,
		Room: install.Room,
		OpenFiles: func() (uint64, error) {
			var l unix.Rlimit
			err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
			return l.Max, err
		},
		Now: time.Now,
		Synchronised: func() (bool, error) {
			state, err := unix.Adjtimex(&unix.Timex{}) // reads only
			const unsynchronised = 5                   // TIME_ERROR
			return state != unsynchronised, err
		},
	}
	if gpu {
		m.GPU = readGPU
	}
	return m
}

func firstLine(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	line, _ := bufio.NewReader(io.LimitReader(out, 4096)).ReadString('\n') // how it ended is what counts
	return line, cmd.Wait()
}

func tryListen(ctx context.Context, network, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, network, address)
	if err != nil {
		return err
	}
	return l.Close()
}

// readGPU polls the devices once.
func readGPU(ctx context.Context) *nvml.Reading {
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
	return m.Reading()
}
