package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// specOf builds a launch with the key KEY for a test.
func specOf(t *testing.T, o Options) (*spec, error) {
	t.Helper()
	if o.Binary == "" {
		o.Binary = "/bin/sh"
	}
	s, err := o.defaults().buildSpec(1, "KEY-0123456789")
	if err == nil {
		t.Cleanup(func() { os.RemoveAll(s.dir) })
	}
	return s, err
}

func TestLaunchCommands(t *testing.T) {
	tests := []struct {
		name    string
		o       Options
		command string // $DIR is the launch folder, $PORT a port
		network string
		slots   int
	}{
		{"vllm", Options{Kind: VLLM, Model: "org/m", ServedNames: []string{"a", "b"}, Args: []string{"--max-num-seqs", "8"}},
			"/bin/sh serve org/m --served-model-name a b --enable-prompt-tokens-details --shutdown-timeout 20 --disable-uvicorn-access-log --uds $DIR/engine.sock --max-num-seqs 8", "unix", 8},
		{"vllm, the operator's own", Options{Kind: VLLM, Model: "m", Args: []string{"--uds", "/run/x.sock", "--api-key", "theirs-0123", "--shutdown-timeout=3", "--no-enable-prompt-tokens-details", "--served_model_name", "z"}},
			"/bin/sh serve m --disable-uvicorn-access-log --uds /run/x.sock --api-key [secret] --shutdown-timeout=3 --no-enable-prompt-tokens-details --served_model_name z", "unix", 0},
		{"sglang", Options{Kind: SGLang, Model: "org/m", ServedNames: []string{"a", "b"}, Args: []string{"--max-running-requests=4"}},
			"/bin/sh -m sglang.launch_server --model-path org/m --host 127.0.0.1 --port $PORT --served-model-name a --api-key [secret] --enable-metrics --enable-cache-report --decode-log-interval 5 --max-running-requests=4", "tcp", 4},
		{"sim", Options{Kind: Sim, Model: "m", ServedNames: []string{"a", "b"}, Args: []string{"--speed", "10"}},
			"/bin/sh sim --model m --served-model-name a --served-model-name b --enable-prompt-tokens-details --disable-uvicorn-access-log --shutdown-timeout 20 --uds $DIR/engine.sock --speed 10", "unix", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := specOf(t, tt.o)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(strings.Join(s.shown, " "), s.dir, "$DIR")
			if s.target.network == "tcp" {
				_, port, _ := strings.Cut(s.target.address, ":")
				got = strings.Replace(got, "--port "+port, "--port $PORT", 1)
			}
			if got != tt.command {
				t.Errorf("command\n%s; want\n%s", got, tt.command)
			}
			if s.target.network != tt.network || s.slots != tt.slots {
				t.Errorf("network %s, slots %d; want %s, %d", s.target.network, s.slots, tt.network, tt.slots)
			}
			if lookEnv(s.env, "TMPDIR") != filepath.Join(s.dir, "tmp") {
				t.Errorf("TMPDIR is %q; want one of this launch", lookEnv(s.env, "TMPDIR"))
			}
			if !slices.Contains(s.secrets, s.target.key) {
				t.Error("the engine's key is not among the secrets")
			}
		})
	}
}

func TestOperatorsKeyIsTheTransports(t *testing.T) {
	s, err := specOf(t, Options{Kind: VLLM, Model: "m", Args: []string{"--api-key", "theirs-0123", "second-0123"}})
	if err != nil || s.target.key != "theirs-0123" || !slices.Contains(s.secrets, "second-0123") {
		t.Errorf("key %q, secrets %q, %v; want the operator's first, all secret", s.target.key, s.secrets, err)
	}
	if got := strings.Join(s.names, " "); got != "m" {
		t.Errorf("names %q; want the model's", got)
	}
}

func TestLaunchRefusals(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 80))
	tests := []struct {
		name string
		o    Options
		want string
	}{
		{"a run directory with too long a path", Options{Kind: VLLM, Model: "m", RunDir: long}, "bytes too long for the engine's sockets"},
		{"a socket with too long a path", Options{Kind: VLLM, Model: "m", Args: []string{"--uds", "/" + strings.Repeat("s", 107)}}, "must have 1 to 107 bytes"},
		{"a port that is none", Options{Kind: VLLM, Model: "m", Args: []string{"--port", "70000"}}, "must be 1 to 65535"},
		{"no such program", Options{Kind: VLLM, Model: "m", Binary: "/no/such/vllm"}, "find the engine's command"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := specOf(t, tt.o)
			var le *LaunchError
			if !errors.As(err, &le) || !le.Permanent || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v; want a lasting one that says %q", err, tt.want)
			}
		})
	}
}

func TestLongTemporaryDirectoryIsNotUsed(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), strings.Repeat("d", 60)))
	s, err := specOf(t, Options{Kind: VLLM, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(s.dir) != "/tmp" || len(s.target.address) > maxSocketPath {
		t.Errorf("launch folder %s; want one under /tmp", s.dir)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	tests := []struct {
		o    Options
		want string
	}{
		{Options{}, `engine kind ""`},
		{Options{Kind: "triton"}, `engine kind "triton"`},
		{Options{Kind: VLLM}, "no model given"},
		{Options{Kind: VLLM, Model: "m", EnginePort: 70000}, "engine port 70000"},
		{Options{Kind: External}, "http://host:port"},
		{Options{Kind: External, URL: "unix:/x"}, "http://host:port"},
		{Options{Kind: External, URL: "http://user:pass@h"}, "not inside the url"},
	}
	for _, tt := range tests {
		if _, err := New(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New(%+v) = %v; want %q", tt.o, err, tt.want)
		}
	}
	if s := fmt.Sprint(Options{Kind: SGLang}.defaults().HealthInterval); s != "15s" {
		t.Errorf("SGLang's health probe comes every %s; it is a real request and must not come within 10 s", s)
	}
}

func TestSimulatorPlaysADialect(t *testing.T) {
	for args, want := range map[string]Kind{"": VLLM, "--dialect vllm": VLLM, "--dialect sglang": SGLang, "--dialect=sglang": SGLang} {
		if got := (Options{Kind: Sim, Args: strings.Fields(args)}).dialect(); got != want {
			t.Errorf("arguments %q: dialect %s; want %s", args, got, want)
		}
	}
}
