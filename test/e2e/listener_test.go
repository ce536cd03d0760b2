package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"admitd/test/harness"
)

// shell makes a program that runs admitd after some lines of shell.
func shell(t *testing.T, lines string) string {
	t.Helper()
	path := harness.WriteFile(t, "admitd", "#!/bin/sh\n"+lines+"\nexec "+binary+" \"$@\"\n")
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// manager hears what a service manager would.
type manager struct {
	mu    sync.Mutex
	heard []string
}

func newManager(t *testing.T) (m *manager, path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "admitd-notify-") // the test's own folder may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "n")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	m = &manager{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.heard = append(m.heard, strings.Split(string(b[:n]), "\n")...)
			m.mu.Unlock()
		}
	}()
	t.Cleanup(func() { _ = c.Close(); <-done; _ = os.RemoveAll(dir) })
	return m, path
}

// after returns what was heard after the first n lines, without the words for people and the signs of life.
func (m *manager) after(n int) (lines []string, all int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.heard[n:] {
		if !strings.HasPrefix(l, "STATUS=") && !strings.HasPrefix(l, "MONOTONIC_USEC=") && l != "WATCHDOG=1" {
			lines = append(lines, l)
		}
	}
	return lines, len(m.heard)
}

func TestSystemdSocketNoticesReloadAndUpgradeBySignal(t *testing.T) {
	t.Parallel()
	m, notify := newManager(t)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	gate := "http://" + l.Addr().String()
	a := harness.Start(t, harness.Options{
		Binary: shell(t, "LISTEN_PID=$$; export LISTEN_PID"), Files: []*os.File{file},
		Env:  []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=gate", "NOTIFY_SOCKET=" + notify, "WATCHDOG_USEC=2000000"},
		Args: []string{"--engine", "sim", "--model", model}, EngineArgs: []string{"--load-time", "200ms"},
	})
	_ = file.Close()
	_ = l.Close() // the manager keeps its own; what matters is that admitd has one
	a.WaitReady(readyWithin)
	ask := func() {
		t.Helper()
		if ans := harness.Post(harness.Timeout(t, time.Minute), gate+"/v1/chat/completions", harness.Chat(model, "Hello", 4, false)); ans.Status != http.StatusOK {
			t.Errorf("%d %v %s", ans.Status, ans.Err, ans.Body)
		}
	}
	ask()
	seen := 0
	hears := func(what string, want ...string) {
		t.Helper()
		harness.Eventually(t, what+" told to the service manager", func() bool {
			lines, all := m.after(seen)
			ok := strings.Join(lines, " ") == strings.Join(want, " ")
			if ok {
				seen = all
			}
			return ok
		})
	}
	hears("ready", "READY=1")
	a.Signal(syscall.SIGHUP)
	hears("a reload", "RELOADING=1", "READY=1")
	a.Signal(syscall.SIGUSR2)
	harness.Eventually(t, "ended: the first admitd", a.Exited)
	pid := 0
	if b, err := os.ReadFile(filepath.Join(a.State, "engine.lock")); err == nil {
		_, _ = fmt.Sscan(string(b), &pid)
	}
	if pid == 0 || pid == a.PID() || !harness.Alive(pid) {
		t.Fatalf("who serves? pid %d", pid)
	}
	harness.EndLater(t, pid)
	harness.Eventually(t, "told of the new main process", func() bool {
		lines, _ := m.after(seen)
		text := strings.Join(lines, " ")
		return strings.Contains(text, fmt.Sprintf("MAINPID=%d", pid)) && strings.Contains(text, "READY=1")
	})
	_, seen = m.after(seen)
	ask()
	harness.End(t, pid)
	hears("the stop", "STOPPING=1")
	m.mu.Lock()
	defer m.mu.Unlock()
	alives := 0
	for _, line := range m.heard {
		if line == "WATCHDOG=1" {
			alives++
		}
	}
	if alives == 0 {
		t.Error("no sign of life for the watchdog")
	}
}

// certify writes a certificate for localhost that signs itself, and returns what trusts it.
func certify(t *testing.T, dir, name string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

// tlsCall makes one stream on a connection of its own and says whose certificate it saw.
func tlsCall(t *testing.T, url string, roots *x509.CertPool) (name string, err error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12,
			VerifyConnection: func(s tls.ConnectionState) error { name = s.PeerCertificates[0].Subject.CommonName; return nil }}}}
	_, err = harness.Call(client, url, model, 1, true)
	return name, err
}

func TestTLSCertificateIsRenewedWhileServingAndOverAnUpgrade(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	roots := certify(t, dir, "first")
	a := harness.Start(t, harness.Options{Binary: binary, EngineArgs: []string{"--load-time", "200ms"},
		Args: []string{"--engine", "sim", "--model", model, "--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "key.pem")}})
	a.WaitReady(readyWithin)
	url := "https" + strings.TrimPrefix(a.Gate, "http")
	want := func(name string) {
		t.Helper()
		if got, err := tlsCall(t, url, roots); got != name || err != nil {
			t.Errorf("certificate %q, want %q: %v", got, name, err)
		}
	}
	want("first")
	if ans := harness.Post(harness.Timeout(t, time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "plain", 4, false)); ans.Status == http.StatusOK {
		t.Error("plain HTTP was served on a TLS listener")
	}
	roots = certify(t, dir, "second")
	a.Signal(syscall.SIGHUP)
	harness.Eventually(t, "shown: the second certificate", func() bool { name, _ := tlsCall(t, url, roots); return name == "second" })
	if err := os.WriteFile(filepath.Join(dir, "key.pem"), []byte("half a"), 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "complaining about the broken pair", func() bool { return strings.Contains(a.Output(), "the one in use stays") })
	want("second")
	roots = certify(t, dir, "third")
	if text, code, _ := harness.Upgrade(t, binary, a); code != 0 {
		t.Fatalf("exit code %d\n%s", code, text)
	}
	want("third")
}

func TestUnixSocketsServeGateAndAdminOverAnUpgrade(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "admitd-sock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	sock := filepath.Join(dir, "gate.sock")
	a := harness.Start(t, harness.Options{Binary: binary, EngineArgs: []string{"--load-time", "200ms"},
		Args: []string{"--engine", "sim", "--model", model, "--listen", "unix:" + sock}})
	a.WaitReady(readyWithin)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", sock)
		}}}
	info, err := os.Stat(sock)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v %v", info, err)
	}
	for n := range 2 {
		for _, stream := range []bool{true, false} {
			if _, err := harness.Call(client, "http://localhost", model, n, stream); err != nil {
				t.Error(err)
			}
		}
		if n > 0 {
			break
		}
		text, code, pid := harness.Upgrade(t, binary, a)
		if code != 0 {
			t.Fatalf("exit code %d\n%s", code, text)
		}
		defer func() {
			harness.End(t, pid)
			if _, err := os.Stat(sock); !os.IsNotExist(err) {
				t.Errorf("the socket's file after the last one's end: %v", err)
			}
		}()
		harness.Eventually(t, "ended: the first admitd", a.Exited)
	}
}
