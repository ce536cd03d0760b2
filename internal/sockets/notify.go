package sockets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Notifier tells the service manager how admitd is (sd_notify(3)). A nil one tells nobody. It is safe for concurrent use.
type Notifier struct {
	addr *net.UnixAddr
	// watchdog is how often the manager wants a sign of life; 0 for never.
	watchdog time.Duration
}

// NewNotifier reads NOTIFY_SOCKET and WATCHDOG_USEC and takes them out of the environment, so that the engine does not speak
// for us. It returns nil when nobody listens. keep returns what a later admitd needs of them.
func NewNotifier() (n *Notifier, keep []string) {
	path := os.Getenv("NOTIFY_SOCKET")
	usec, pid := os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, v := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(v)
	}
	if len(path) < 2 || path[0] != '/' && path[0] != '@' {
		return nil, nil
	}
	keep = append(keep, "NOTIFY_SOCKET="+path)
	n = &Notifier{addr: &net.UnixAddr{Net: "unixgram", Name: path}}
	if us, err := strconv.ParseInt(usec, 10, 64); err == nil && us > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.watchdog = time.Duration(us) * time.Microsecond
		keep = append(keep, "WATCHDOG_USEC="+usec)
	}
	return n, keep
}

// Notify sends lines such as READY=1. A manager that does not listen is no reason to stop: the error is for the log.
func (n *Notifier) Notify(lines ...string) error {
	if n == nil {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, n.addr)
	if err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	_, err = c.Write([]byte(strings.Join(lines, "\n")))
	return errors.Join(err, c.Close())
}

// Status is the line that says in words how admitd is; line breaks become spaces.
func Status(text string) string { return "STATUS=" + strings.ReplaceAll(text, "\n", " ") }

// Reloading is the pair of lines that begins a reload; READY=1 ends it.
func Reloading() []string {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return []string{"RELOADING=1"}
	}
	return []string{"RELOADING=1", "MONOTONIC_USEC=" + strconv.FormatInt(ts.Nano()/1000, 10)}
}

// MainPID says which process the service is from now on.
func MainPID(pid int) string { return "MAINPID=" + strconv.Itoa(pid) }

// Watch sends a sign of life twice in each interval of the watchdog while alive says so, until ctx ends. It returns nil.
func (n *Notifier) Watch(ctx context.Context, alive func() bool) error {
	if n == nil || n.watchdog == 0 {
		return nil
	}
	tick := time.NewTicker(n.watchdog / 2)
	defer tick.Stop()
	for {
		if alive() {
			// The manager restarts what it does not hear from; more cannot be done here.
			_ = n.Notify("WATCHDOG=1")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
