package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ident names a process for good: a pid alone may be given to another process later.
type ident struct {
	PID int `json:"pid"`
	// Start is the kernel's start time in clock ticks since boot.
	Start uint64 `json:"start_ticks"`
}

// procInfo is one row of the process table.
type procInfo struct {
	ident
	pid, ppid, pgrp, session, threads int
	state                             byte
	comm                              string
}

// zombie reports whether the process has ended and only waits to be reaped. One whose first thread has ended while others
// have not is still dying: it holds its memory and cannot be reaped.
func (p procInfo) zombie() bool { return (p.state == 'Z' || p.state == 'X') && p.threads <= 1 }

// parseStat reads the content of /proc/PID/stat (proc_pid_stat(5)). The command may itself contain spaces and brackets.
func parseStat(b []byte) (procInfo, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return procInfo{}, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:open])))
	if err != nil || pid <= 0 {
		return procInfo{}, false
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 20 || len(f[0]) != 1 {
		return procInfo{}, false
	}
	p := procInfo{pid: pid, state: f[0][0], comm: string(b[open+1 : end])}
	for i, into := range []*int{&p.ppid, &p.pgrp, &p.session} {
		if *into, err = strconv.Atoi(f[1+i]); err != nil {
			return procInfo{}, false
		}
	}
	if p.threads, err = strconv.Atoi(f[17]); err != nil {
		return procInfo{}, false
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return procInfo{}, false
	}
	p.ident = ident{PID: pid, Start: start}
	return p, true
}

// readProc reads one process; ok is false when it is gone.
func readProc(root string, pid int) (procInfo, bool) {
	b, err := os.ReadFile(filepath.Join(root, strconv.Itoa(pid), "stat")) //nolint:gosec // root is /proc, or a test's copy of it
	if err != nil {
		return procInfo{}, false
	}
	return parseStat(b)
}

// scanProcs reads the process table.
func scanProcs(root string) ([]procInfo, error) {
	d, err := os.Open(root)
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	var out []procInfo
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if p, ok := readProc(root, pid); ok {
			out = append(out, p)
		}
	}
	return out, nil
}

// family is what is needed to tell the engine's processes from others.
type family struct {
	leader ident
	// self is our own pid: orphans of the engine are given to us.
	self int
	// foster is who else orphans of the engine are given to, 0 for nobody.
	foster int
	// known are processes that belong for another reason: they were seen to belong before, or a leftover's record or mark says so.
	known map[ident]bool
	// marked tells whether a process carries our mark in its environment.
	marked func(pid int) bool
}

// members picks the engine's processes, zombies included, out of the process table: the leader, those known, those in
// its session or process group, orphans with our mark, and all their descendants. A process older than the leader is one only
// if it is known, and neither is one whose number was given away: the leader's session counts only while no stranger bears its pid.
func (f family) members(all []procInfo) []procInfo {
	stranger := false
	for _, p := range all {
		stranger = stranger || p.pid == f.leader.PID && p.ident != f.leader
	}
	in := map[int]bool{}
	var out []procInfo
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if in[p.pid] || p.pid == f.self || p.Start < f.leader.Start && !f.known[p.ident] {
				continue
			}
			if in[p.ppid] || f.belongs(p, stranger) {
				in[p.pid], grown = true, true
				out = append(out, p)
			}
		}
	}
	return out
}

func (f family) belongs(p procInfo, stranger bool) bool {
	if p.ident == f.leader || f.known[p.ident] {
		return true
	}
	orphan := p.ppid == f.self || p.ppid == 1 || f.foster > 0 && p.ppid == f.foster
	if !orphan {
		return false
	}
	if !stranger && f.leader.PID > 0 && (p.session == f.leader.PID || p.pgrp == f.leader.PID) {
		return true
	}
	return !p.zombie() && f.marked != nil && f.marked(p.pid)
}

// hasMark reports whether the environment of a process contains an entry, as far as we may read it.
func hasMark(root, entry string, pid int) bool {
	env, err := processEnv(root, pid)
	return err == nil && slices.Contains(env, entry)
}

// tidies reports whether a process is Python's resource tracker, which removes the shared memory that killed processes
// leave behind and ends by itself when they are gone.
func tidies(root string, pid int) bool {
	b, err := os.ReadFile(filepath.Join(root, strconv.Itoa(pid), "cmdline"))
	return err == nil && bytes.Contains(b, []byte("multiprocessing.resource_tracker"))
}

// signal sends a signal to exactly this process, never to one that was given its pid later.
func (id ident) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		if errors.Is(err, unix.ENOSYS) {
			return id.signalByPID(sig)
		}
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		return fmt.Errorf("open process %d: %w", id.PID, err)
	}
	defer unix.Close(fd)
	// The descriptor holds on to whoever has the pid now; if that is our process, it cannot become another.
	if p, ok := readProc("/proc", id.PID); !ok || p.ident != id {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	return nil
}

// signalByPID is for kernels before 5.3, which have no process descriptors: between the look and the signal the pid could,
// in theory, be given away.
func (id ident) signalByPID(sig unix.Signal) error {
	if p, ok := readProc("/proc", id.PID); !ok || p.ident != id {
		return nil
	}
	if err := unix.Kill(id.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	return nil
}

// bootID names this boot of the machine, "" when it cannot be read; start ticks mean something only within one.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
