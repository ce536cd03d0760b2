package supervisor

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PortBusyError says that a port which the engine needs is taken, and by whom when that can be seen.
type PortBusyError struct {
	// Port is the TCP port; Holder names the process, "" when it belongs to somebody whose processes we may not look at.
	Port   int
	Holder string
}

// Error implements error.
func (e *PortBusyError) Error() string {
	by := e.Holder
	if by == "" {
		by = "a process of another user"
	}
	return fmt.Sprintf("port %d is held by %s: end it or choose another port", e.Port, by)
}

// freePort returns a loopback port nobody listens on: want when it is not 0, else any. Two vLLM servers can share a port
// without an error, so the engine's own bind proves nothing.
func freePort(want int) (int, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(want)))
	if err != nil {
		if want == 0 {
			return 0, fmt.Errorf("find a free loopback port: %w", err)
		}
		return 0, &PortBusyError{Port: want, Holder: holder("/proc", want)}
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// holder names the process that listens on a port, "" when it cannot be seen.
func holder(root string, port int) string {
	inodes := map[string]bool{}
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		f, err := os.Open(filepath.Join(root, table))
		if err != nil {
			continue
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			if inode, ok := listening(sc.Text(), port); ok {
				inodes["socket:["+inode+"]"] = true
			}
		}
		f.Close()
	}
	if len(inodes) == 0 {
		return ""
	}
	procs, err := scanProcs(root)
	if err != nil {
		return ""
	}
	for _, p := range procs {
		fds := filepath.Join(root, strconv.Itoa(p.pid), "fd")
		entries, err := os.ReadDir(fds)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if link, err := os.Readlink(filepath.Join(fds, e.Name())); err == nil && inodes[link] {
				return fmt.Sprintf("pid %d (%s)", p.pid, p.comm)
			}
		}
	}
	return ""
}

// listening reads one row of /proc/net/tcp and returns the inode when it is a listener on port.
func listening(row string, port int) (inode string, ok bool) {
	f := strings.Fields(row)
	if len(f) < 10 || f[3] != "0A" {
		return "", false
	}
	_, hex, found := strings.Cut(f[1], ":")
	if !found {
		return "", false
	}
	n, err := strconv.ParseUint(hex, 16, 16)
	if err != nil || int(n) != port {
		return "", false
	}
	return f[9], true
}
