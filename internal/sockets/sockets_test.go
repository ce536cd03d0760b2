package sockets

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		in, network, address, wrong string
		local                       bool
	}{
		{"127.0.0.1:80", "tcp", "127.0.0.1:80", "", true},
		{"localhost:0", "tcp", "localhost:0", "", true},
		{"[::1]:80", "tcp", "[::1]:80", "", true},
		{":80", "tcp", ":80", "", false},
		{"0.0.0.0:80", "tcp", "0.0.0.0:80", "", false},
		{"gpu.example:80", "tcp", "gpu.example:80", "", false},
		{"unix:/run/a.sock", "unix", "/run/a.sock", "", true},
		{"unix:run/a.sock", "", "", "begins with /", false},
		{"unix:/run/", "", "", "not the path of a file", false},
		{"unix:/" + strings.Repeat("a", 107), "", "", "the kernel takes 107", false},
		{"127.0.0.1", "", "", "not host:port", false},
		{"127.0.0.1:99999", "", "", "not a number from 0 to 65535", false},
	} {
		network, address, err := ParseAddress(c.in)
		if network != c.network || address != c.address || (err == nil) != (c.wrong == "") || Local(c.in) != c.local {
			t.Errorf("%s: %q %q %v, local %v", c.in, network, address, err, Local(c.in))
		}
		if c.wrong != "" && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", c.in, err, c.wrong)
		}
	}
}

func listen(t *testing.T, address string, mode os.FileMode) *Listener {
	t.Helper()
	l, err := Listen(t.Context(), address, mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestUnixSocketHasItsModeAndGoesWithItsListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gate.sock")
	for _, mode := range []os.FileMode{0o600, 0o660, 0o666} {
		l := listen(t, "unix:"+path, mode)
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != mode || Text(l.Addr()) != "unix:"+path {
			t.Errorf("%v: %v %v %s", mode, info.Mode(), err, Text(l.Addr()))
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: the file after the end: %v", mode, err)
		}
	}
}

func TestFileOfADeadSocketIsReplacedAndOfALivingOneKept(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gate.sock")
	dead := listen(t, "unix:"+path, 0o600)
	if err := dead.Leave(); err != nil { // the file stays, as after a crash
		t.Fatal(err)
	}
	alive := listen(t, "unix:"+path, 0o600)
	if _, err := Listen(t.Context(), "unix:"+path, 0o600); err == nil || !strings.Contains(err.Error(), "somebody answers") {
		t.Errorf("over a living one: %v", err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Errorf("the living one is gone: %v", err)
	} else {
		_ = c.Close()
	}
	_ = alive.Close()
	text := filepath.Join(dir, "notes")
	if err := os.WriteFile(text, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), "unix:"+text, 0o600); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("over a file: %v", err)
	}
	if b, err := os.ReadFile(text); err != nil || string(b) != "kept" {
		t.Errorf("the file: %q %v", b, err)
	}
}

// What an upgrade rests on: leaving a socket refuses nobody and cuts nobody.
func TestLeftListenerServesWhoItHasAndLeavesTheQueueToTheOther(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "s")} {
		one := listen(t, address, 0o600)
		var b Bequest
		if err := b.AddListener(Gate, one); err != nil {
			t.Fatal(err)
		}
		two, err := FromFile(os.NewFile(uintptr(b.fds[0]), Gate), one.Owned())
		if err != nil {
			t.Fatal(err)
		}
		dial := func() net.Conn {
			c, err := net.Dial(one.Addr().Network(), one.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		early := dial()
		served, err := one.Accept()
		if err != nil || one.Connections() != 1 {
			t.Fatal(err, one.Connections())
		}
		queued := dial()
		if err := one.Leave(); err != nil {
			t.Error(err)
		}
		if _, err := one.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accepting after leaving: %v", err)
		}
		late := dial()
		for range 2 {
			c, err := two.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
		}
		if _, err := served.Write([]byte("x")); err != nil {
			t.Errorf("the open connection: %v", err)
		}
		_ = served.Close()
		_ = served.Close()
		if one.Connections() != 0 || two.Connections() != 0 {
			t.Errorf("%d and %d connections are open", one.Connections(), two.Connections())
		}
		if got, err := io.ReadAll(early); err != nil || string(got) != "x" {
			t.Errorf("the caller got %q %v", got, err)
		}
		for _, c := range []net.Conn{early, queued, late} {
			_ = c.Close()
		}
		if err := two.Close(); err != nil {
			t.Error(err)
		}
		if path, ok := strings.CutPrefix(Text(one.Addr()), "unix:"); ok {
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("nobody removed the socket's file: %v", err)
			}
		}
	}
}

// Descriptors that are handed down share one open file: what makes it blocking for one makes the other hang in Accept.
func TestHandingDownDoesNotMakeAcceptHangInClose(t *testing.T) {
	l := listen(t, "127.0.0.1:0", 0)
	var b Bequest
	defer b.Close()
	if err := b.AddListener(Gate, l); err != nil {
		t.Fatal(err)
	}
	p, err := b.Start("/bin/true", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := p.Wait(); err != nil || !st.Success() {
		t.Error(st, err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	closed := make(chan struct{})
	go func() { _ = l.Close(); close(closed) }()
	select {
	case <-closed:
	case <-ctx.Done():
		t.Fatal("Close hangs")
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
