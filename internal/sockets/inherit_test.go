package sockets

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// childVar makes this test binary play the program that sockets are handed to.
const childVar = "SOCKETS_TEST_CHILD"

// child says what it was handed down, serves one connection on the gate, and what its own children would get.
func child() {
	if os.Getenv(childVar) == "exec" {
		// systemd sets LISTEN_PID between fork and exec; a shell cannot.
		_ = os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	}
	in, err := Inherit()
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	for _, v := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", upgradeVar} {
		if _, set := os.LookupEnv(v); set {
			fmt.Println("still set:", v)
		}
	}
	l, err := in.Listener(Gate)
	if err != nil || l == nil {
		fmt.Println("no gate:", err)
		return
	}
	raw, _ := l.inner.SyscallConn()
	_ = raw.Control(func(fd uintptr) {
		if flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			fmt.Println("the engine would get the descriptor")
		}
	})
	fmt.Println("gate", in.FromAdmitd(), l.Owned(), in.Close())
	c, err := l.Accept()
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = c.Write([]byte("hello"))
	_ = c.Close()
	_ = l.Close()
}

func runChild(t *testing.T, files []*os.File, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	cmd.ExtraFiles = files
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	return strings.TrimSpace(out.String())
}

func TestSystemdActivation(t *testing.T) {
	l := listen(t, "127.0.0.1:0", 0)
	file := func() *os.File {
		f, err := l.inner.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	for _, c := range []struct {
		name, child string
		files       int
		env         []string
		want        string
	}{
		{"one socket without a name is the gate", "exec", 1, []string{"LISTEN_FDS=1"}, "gate false false []"},
		{"named", "exec", 2, []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=admin:gate"}, "gate false false [admin]"},
		{"meant for another process", "as is", 1, []string{"LISTEN_FDS=1", "LISTEN_PID=1"}, "no gate: <nil>"},
		{"a name that means nothing here", "exec", 1, []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=admitd.socket"}, `refused: a socket named "admitd.socket" was handed down; the socket unit needs FileDescriptorName=gate or admin`},
		{"two with one name", "exec", 2, []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=gate:gate"}, `refused: two sockets named "gate" were handed down; a listener is one socket`},
		{"names that do not add up", "exec", 2, []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=gate"}, "refused: LISTEN_FDS says 2 sockets, LISTEN_FDNAMES names 1"},
		{"three without names", "exec", 3, []string{"LISTEN_FDS=3"}, "refused: 3 sockets were handed down without names; give the socket units FileDescriptorName=gate and admin"},
		{"no number", "exec", 1, []string{"LISTEN_FDS=many"}, "refused: LISTEN_FDS=many is not a number of sockets"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var files []*os.File
			for range c.files {
				files = append(files, file())
			}
			if strings.HasPrefix(c.want, "gate ") {
				conn, err := net.Dial("tcp", l.Addr().String()) // waits in the queue until the child serves it
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					b := make([]byte, 5)
					if _, err := conn.Read(b); err != nil || string(b) != "hello" {
						t.Errorf("the caller got %q %v", b, err)
					}
					_ = conn.Close()
				}()
			}
			got := runChild(t, files, append(c.env, childVar+"="+c.child)...)
			if !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestSocketThatIsNoListenerIsRefused(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close(); _ = w.Close() }()
	if got := runChild(t, []*os.File{r}, "LISTEN_FDS=1", childVar+"=exec"); !strings.Contains(got, `no gate: descriptor "gate" is no listening socket`) {
		t.Error(got)
	}
}

func TestEnvironmentOfAnotherProcessIsNotHandedOn(t *testing.T) {
	b := Bequest{names: []string{"control", "gate+own"}}
	got := strings.Join(b.env([]string{"A=1", "LISTEN_PID=1", "LISTEN_FDS=1", "LISTEN_FDNAMES=x", "WATCHDOG_PID=1", upgradeVar + "=old", "B=2"}), " ")
	if got != "A=1 B=2 "+upgradeVar+"=control:gate+own" {
		t.Error(got)
	}
}
