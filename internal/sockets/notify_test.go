package sockets

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// manager is a service manager's notify socket.
func manager(t *testing.T, path string) func() string {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return func() string {
		b := make([]byte, 4096)
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

func TestServiceManagerHears(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "n"), "@admitd-test-" + strconv.Itoa(os.Getpid())} {
		heard := manager(t, path)
		t.Setenv("NOTIFY_SOCKET", path)
		t.Setenv("WATCHDOG_USEC", "20000000")
		t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
		n, keep := NewNotifier()
		if diff := cmp.Diff([]string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=20000000"}, keep); diff != "" {
			t.Error(diff)
		}
		if os.Getenv("NOTIFY_SOCKET")+os.Getenv("WATCHDOG_USEC")+os.Getenv("WATCHDOG_PID") != "" {
			t.Error("the engine would speak for us")
		}
		for _, lines := range [][]string{{"READY=1", Status("the gate\nis open")}, {MainPID(42)}, {"STOPPING=1"}} {
			if err := n.Notify(lines...); err != nil {
				t.Error(err)
			}
			if got := heard(); got != strings.ReplaceAll(strings.Join(lines, "\n"), "gate\nis", "gate is") {
				t.Errorf("heard %q", got)
			}
		}
		if err := n.Notify(Reloading()...); err != nil {
			t.Error(err)
		}
		if got, ok := strings.CutPrefix(heard(), "RELOADING=1\nMONOTONIC_USEC="); !ok {
			t.Errorf("heard %q", got)
		} else if us, err := strconv.ParseInt(got, 10, 64); err != nil || us <= 0 {
			t.Errorf("monotonic time %q", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Watch(ctx, func() bool { return true }) }()
		if got := heard(); got != "WATCHDOG=1" {
			t.Errorf("heard %q", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestNobodyIsToldWhereNobodyListens(t *testing.T) {
	for _, path := range []string{"", "relative", "/"} {
		t.Setenv("NOTIFY_SOCKET", path)
		if n, keep := NewNotifier(); n != nil || keep != nil {
			t.Errorf("%q: %v %v", path, n, keep)
		}
	}
	var none *Notifier
	if err := none.Notify("READY=1"); err != nil {
		t.Error(err)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	n, _ := NewNotifier()
	if err := n.Notify("READY=1"); err == nil {
		t.Error("a manager that is gone was told")
	}
}

func TestWatchdogOfAnotherProcessIsNotOurs(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "n"))
	t.Setenv("WATCHDOG_USEC", "1000")
	t.Setenv("WATCHDOG_PID", "1")
	n, _ := NewNotifier()
	if err := n.Watch(t.Context(), func() bool { return true }); err != nil || n.watchdog != 0 {
		t.Errorf("%v %v", n.watchdog, err)
	}
}

func TestStuckProgramGivesNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Notifier{addr: &net.UnixAddr{Net: "unixgram", Name: "/no/such/socket"}, watchdog: 10 * time.Second}
		ctx, cancel := context.WithTimeout(t.Context(), 22*time.Second)
		defer cancel()
		asked := 0
		if err := n.Watch(ctx, func() bool { asked++; return false }); err != nil || asked != 5 {
			t.Errorf("asked %d times in 22 s of a watchdog of 10 s, %v", asked, err)
		}
	})
}
