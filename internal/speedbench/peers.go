package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// peer is a relay under measurement.
type peer struct {
	name    string
	address string
	// process is nil for the engine itself, without any relay.
	*process
}

// kind says how a relay is started before the engine; a program that is not there makes it absent.
type kind struct {
	name string
	// program is what must be on PATH; "" for what is always there.
	program string
	start   func(ctx context.Context, place, address, engine string) (*process, error)
}

func kinds(s settings) ([]kind, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	all := []kind{
		{"nginx", "nginx", configured(nginxConfig, "nginx.conf", "nginx", "-e", "stderr", "-c")},
		{"haproxy", "haproxy", configured(haproxyConfig, "haproxy.cfg", "haproxy", "-f")},
		{"envoy", "envoy", configured(envoyConfig, "envoy.yaml", "envoy", "--concurrency", "2", "--disable-hot-restart", "-l", "error", "-c")},
		{"Go httputil.ReverseProxy", "", own(self, "reverse-proxy")},
		{"bare raw Go relay", "", own(self, "raw")},
		{"admitd", "", func(ctx context.Context, place, address, engine string) (*process, error) {
			return startAdmitd(ctx, s.admitd, place, address, engine)
		}},
	}
	router := s.router
	if router == "" {
		router = "vllm-router"
	}
	all = append(all, kind{"vllm-router", router, func(ctx context.Context, _, address, engine string) (*process, error) {
		metrics, err := freeAddress(ctx)
		if err != nil {
			return nil, err
		}
		host, port, _ := net.SplitHostPort(address)
		_, metricsPort, _ := net.SplitHostPort(metrics)
		return start(ctx, router, "--worker-urls", "http://"+engine, "--host", host, "--port", port, "--log-level", "error",
			"--policy", "round_robin", "--prometheus-port", metricsPort)
	}})
	if s.only != "" {
		wanted := append(strings.Split(s.only, ","), "admitd")
		all = slices.DeleteFunc(all, func(k kind) bool { return !slices.Contains(wanted, k.name) })
	}
	return all, nil
}

// own starts a relay of this program.
func own(self, what string) func(context.Context, string, string, string) (*process, error) {
	return func(ctx context.Context, _, address, engine string) (*process, error) {
		return start(ctx, self, "relay", what, address, engine)
	}
}

// configured starts a program on a file that is written for it; PLACE, PORT and ENGINEPORT in it are filled in.
func configured(text, file string, program ...string) func(context.Context, string, string, string) (*process, error) {
	return func(ctx context.Context, place, address, engine string) (*process, error) {
		_, port, _ := net.SplitHostPort(address)
		_, enginePort, _ := net.SplitHostPort(engine)
		path := filepath.Join(place, file)
		filled := strings.NewReplacer("PLACE", place, "ENGINEPORT", enginePort, "PORT", port).Replace(text)
		if err := os.WriteFile(path, []byte(filled), 0o600); err != nil {
			return nil, err
		}
		return start(ctx, program[0], append(program[1:], path)...)
	}
}

// wide is the default policy with limits that refuse nothing here: it looks at the same signals and decides as often.
const wide = "policy: dual-gate\nparams:\n  max_waiting: 1000000\n  max_kv_used: 1.0\n"

// startAdmitd starts admitd as one would before an engine that somebody else runs.
func startAdmitd(ctx context.Context, bin, place, address, engine string) (*process, error) {
	admin, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	return startAdmitdAt(ctx, bin, place, address, admin, engine)
}

// startAdmitdAt is startAdmitd with its admin API at a known address.
func startAdmitdAt(ctx context.Context, bin, place, address, admin, engine string) (*process, error) {
	policy := filepath.Join(place, "policy.yaml")
	if err := os.WriteFile(policy, []byte(wide), 0o600); err != nil {
		return nil, err
	}
	state, err := os.MkdirTemp(place, "state-")
	if err != nil {
		return nil, err
	}
	return start(ctx, bin, "serve", "--engine", "external", "--engine-url", "http://"+engine, "--model", "m", "--listen", address,
		"--admin", admin, "--state-dir", state, "--policy", policy, "--log-level", "error", "--quiet")
}

// startPeers starts every relay that is there before one engine; absent names the others.
func startPeers(ctx context.Context, s settings, place, engine string) (peers []*peer, absent []string, err error) {
	all, err := kinds(s)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range all {
		if k.program != "" {
			if _, err := exec.LookPath(k.program); err != nil {
				absent = append(absent, k.name)
				continue
			}
		}
		p, err := startPeer(ctx, k, place, engine)
		if p != nil {
			peers = append(peers, p)
		}
		if err != nil {
			return peers, absent, fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return peers, absent, nil
}

func startPeer(ctx context.Context, k kind, place, engine string) (*peer, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	proc, err := k.start(ctx, place, address, engine)
	if err != nil {
		return nil, err
	}
	p := &peer{name: k.name, address: address, process: proc}
	if err := serves(ctx, address); err != nil {
		return p, errors.Join(err, errors.New(p.log.String()))
	}
	return p, nil
}
