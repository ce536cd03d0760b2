package sockets

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// An address that is taken is one that package net takes, with the same meaning, and it is written back as it was read.
func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"127.0.0.1:8080", "[::1]:0", ":65535", "localhost:80", "unix:/run/admitd/gate.sock", "unix:rel", "unix:/", "a:b:1", "[fe80::1%eth0]:1", "1.2.3.4:+5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		network, address, err := ParseAddress(s)
		if err != nil {
			if network+address != "" || Local(s) {
				t.Fatalf("%q is refused and still means %s %s", s, network, address)
			}
			return
		}
		if network == "unix" {
			a, err := net.ResolveUnixAddr(network, address)
			if err != nil || Text(a) != s || len(address) > maxUnixPath || address[0] != '/' {
				t.Fatalf("%q is %q to package net: %v", s, a, err)
			}
			return
		}
		host, port, err := net.SplitHostPort(address)
		if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil {
			t.Fatalf("%q: %v, port %d: %v", s, err, n, e)
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			a, err := net.ResolveTCPAddr(network, address)
			if err != nil || a.IP.IsLoopback() != ip.Unmap().IsLoopback() || Local(s) && !ip.Unmap().IsLoopback() {
				t.Fatalf("%q is %v to package net (%v), local to us: %v", s, a, err, Local(s))
			}
		}
	})
}

func TestAPortWithASignIsNoPort(t *testing.T) {
	for _, s := range []string{"127.0.0.1:+80", "127.0.0.1:-0", "127.0.0.1: 80"} {
		if network, address, err := ParseAddress(s); err == nil {
			t.Errorf("%q was taken as %s %s", s, network, address)
		}
	}
}

// Only what was meant for this process counts, every socket has a name of ours, and there are as many as were said.
func FuzzSystemdNames(f *testing.F) {
	f.Add("2", "1", "gate:admin")
	f.Add("1", "1", "")
	f.Add("-1", "1", "gate")
	f.Add("3", "1", "gate:admin:gate")
	f.Fuzz(func(t *testing.T, fds, pid, names string) {
		lookup := func(name string) (string, bool) {
			v := map[string]string{"LISTEN_FDS": fds, "LISTEN_PID": pid, "LISTEN_FDNAMES": names}[name]
			return v, v != ""
		}
		got, err := systemdNames(lookup, 1)
		if err != nil || len(got) == 0 {
			if err != nil && (pid != "1" || got != nil) {
				t.Fatalf("LISTEN_PID=%s: %q, %v", pid, got, err)
			}
			return
		}
		if n, err := strconv.Atoi(fds); err != nil || n != len(got) || pid != "1" || names != "" && names != strings.Join(got, ":") {
			t.Fatalf("LISTEN_FDS=%s LISTEN_PID=%s LISTEN_FDNAMES=%s are %q", fds, pid, names, got)
		}
		if slices.ContainsFunc(got, func(s string) bool { return s != Gate && s != Admin }) {
			t.Fatalf("names %q", got)
		}
	})
}
