package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startWithin is how long a relay may take to listen.
const startWithin = 60 * time.Second

// process is a program that we started, with its children.
type process struct {
	cmd *exec.Cmd
	log bytes.Buffer
}

// start runs a program in a process group of its own.
func start(ctx context.Context, program string, args ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, program, args...)} //nolint:gosec // the programs are those that the caller wants measured
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 10 * time.Second
	return p, p.cmd.Start()
}

// stop ends it and what it left.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() { defer close(done); _ = p.cmd.Wait() }()
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-done
	}
}

// tree lists the process and all that descend from it.
func (p *process) tree() []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		if f, err := statFields(path); err == nil {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			parent, _ := strconv.Atoi(f[1])
			children[parent] = append(children[parent], pid)
		}
	}
	all := []int{p.cmd.Process.Pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// statFields are the fields of a stat file from the state on.
func statFields(path string) ([]string, error) {
	b, err := os.ReadFile(path) //nolint:gosec // a path below /proc
	if err != nil {
		return nil, err
	}
	i := bytes.LastIndexByte(b, ')')
	f := strings.Fields(string(b[i+1:]))
	if i < 0 || len(f) < 15 {
		return nil, fmt.Errorf("%s: unreadable", path)
	}
	return f, nil
}

// cpu is the CPU time, user and system, that the processes have used. The kernel tells it in steps of 10 ms.
func (p *process) cpu() (time.Duration, error) {
	total := 0
	for _, pid := range p.tree() {
		f, err := statFields(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return 0, err
		}
		for _, field := range f[11:13] {
			n, _ := strconv.Atoi(field)
			total += n
		}
	}
	return time.Duration(total) * 10 * time.Millisecond, nil
}

// resident is the memory in use, in bytes, shared pages of several processes counted once each.
func (p *process) resident() int64 {
	var total int64
	for _, pid := range p.tree() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)) //nolint:gosec // a path below /proc
		if f := strings.Fields(string(b)); err == nil && len(f) > 1 {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			total += n * int64(os.Getpagesize())
		}
	}
	return total
}

// freeAddress is a loopback address that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// serves waits until a chat is answered with 200.
func serves(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		c := caller{address: address}
		_, err := c.call(ctx, callOf(false, "hello there"), false)
		c.close()
		if err == nil {
			return nil
		}
		if pause(ctx, 5*time.Millisecond) != nil {
			return fmt.Errorf("%s does not answer within %s: %w", address, startWithin, err)
		}
	}
}
