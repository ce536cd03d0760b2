package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"admitd/internal/config"
	"admitd/supervisor"
)

// Scripts that stand for programs: they need nothing from PATH themselves.
const (
	anything      = "#!/bin/sh\nexit 0\n"
	pythonWith    = "#!/bin/sh\n[ \"$1\" = -c ] || exit 9\ncase \"$2\" in *find_spec*sglang*) exit 0;; esac\nexit 9\n"
	pythonWithout = "#!/bin/sh\nexit 1\n"
)

// onPath makes a folder with these programs the whole PATH.
func onPath(t *testing.T, programs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	return dir
}

func TestFindEngine(t *testing.T) {
	for _, c := range []struct {
		name     string
		programs map[string]string
		engine   config.Engine
		kind     supervisor.Kind
		binary   string // relative to the folder on PATH
		err      string
	}{
		{"sim needs nothing", nil, config.Engine{Kind: "sim"}, supervisor.Sim, "", ""},
		{"external needs nothing", nil, config.Engine{Kind: "external"}, supervisor.External, "", ""},
		{"auto takes vLLM first", map[string]string{"vllm": anything, "python3": pythonWith}, config.Engine{Kind: "auto"}, supervisor.VLLM, "vllm", ""},
		{"auto takes SGLang then", map[string]string{"python3": pythonWith}, config.Engine{Kind: "auto"}, supervisor.SGLang, "python3", ""},
		{"the second Python has it", map[string]string{"python3": pythonWithout, "python": pythonWith}, config.Engine{Kind: "auto"}, supervisor.SGLang, "python", ""},
		{"auto finds none", map[string]string{"python3": pythonWithout}, config.Engine{Kind: "auto"}, "", "", "no inference engine found"},
		{"auto with a binary is ambiguous", map[string]string{"vllm": anything}, config.Engine{Kind: "auto", Binary: "/x"}, "", "", "say --engine vllm or --engine sglang"},
		{"vLLM missing", nil, config.Engine{Kind: "vllm"}, supervisor.VLLM, "", "install it with `admitd engine install vllm`, or name it with --engine-binary"},
		{"vLLM named and missing", nil, config.Engine{Kind: "vllm", Binary: "/no/vllm"}, supervisor.VLLM, "", "/no/vllm"},
		{"vLLM under another name", map[string]string{"my-vllm": anything}, config.Engine{Kind: "vllm", Binary: "my-vllm"}, supervisor.VLLM, "my-vllm", ""},
		{"SGLang's Python named", map[string]string{"py": pythonWith, "python3": pythonWithout}, config.Engine{Kind: "sglang", Binary: "py"}, supervisor.SGLang, "py", ""},
		{"a Python without it named", map[string]string{"py": pythonWithout, "python3": pythonWith}, config.Engine{Kind: "sglang", Binary: "py"}, supervisor.SGLang, "", "py is not a Python that has the sglang package"},
		{"SGLang's own command named", map[string]string{"sglang": anything}, config.Engine{Kind: "sglang", Binary: "sglang"}, supervisor.SGLang, "sglang", ""},
		{"SGLang missing", map[string]string{"vllm": anything}, config.Engine{Kind: "sglang"}, supervisor.SGLang, "", "no Python with the sglang package is on PATH"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := onPath(t, c.programs)
			kind, binary, err := FindEngine(t.Context(), config.Config{Engine: c.engine, DataDir: t.TempDir()})
			if c.err != "" {
				var setup *SetupError
				if !errors.As(err, &setup) || !strings.Contains(err.Error(), c.err) || binary != "" {
					t.Errorf("%q %v, want an error with %q", binary, err, c.err)
				}
				return
			}
			want := c.binary
			if want != "" {
				want = filepath.Join(dir, want)
			}
			if err != nil || kind != c.kind || binary != want {
				t.Errorf("%s %q %v, want %s %q", kind, binary, err, c.kind, want)
			}
		})
	}
}

// What admitd installed goes before what happens to be on PATH; engine.binary before both.
func TestInstalledEngineGoesBeforePath(t *testing.T) {
	path := onPath(t, map[string]string{"vllm": anything, "python3": pythonWith})
	data := t.TempDir()
	installed := filepath.Join(data, "engines", "vllm-0.32.0-cpu")
	if err := os.MkdirAll(filepath.Join(installed, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	marker := `{"format":1,"name":"vllm-0.32.0-cpu","kind":"vllm","build":"cpu","version":"0.32.0","binary":"bin/vllm","folder":"` + installed + `"}`
	for name, text := range map[string]string{"bin/vllm": anything, "installed.json": marker} {
		if err := os.WriteFile(filepath.Join(installed, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ours := filepath.Join(installed, "bin", "vllm")
	for _, c := range []struct {
		name   string
		engine config.Engine
		want   string // a path, or what the error says
	}{
		{"auto", config.Engine{Kind: "auto"}, ours},
		{"by kind", config.Engine{Kind: "vllm"}, ours},
		{"by version", config.Engine{Kind: "auto", Version: "0.32.0"}, ours},
		{"named", config.Engine{Kind: "vllm", Binary: "vllm"}, filepath.Join(path, "vllm")},
		{"the other kind is on PATH", config.Engine{Kind: "sglang"}, filepath.Join(path, "python3")},
		{"a version that is not there", config.Engine{Kind: "vllm", Version: "0.31.0"}, "no such engine is installed: vllm 0.31.0"},
		{"auto with such a version", config.Engine{Kind: "auto", Version: "0.31.0"}, "no vllm or sglang of that version is installed"},
	} {
		_, got, err := FindEngine(t.Context(), config.Config{Engine: c.engine, DataDir: data})
		if got != c.want && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %q %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestNoEngineNamesEveryWayOut(t *testing.T) {
	onPath(t, nil)
	_, _, err := FindEngine(t.Context(), config.Config{Engine: config.Engine{Kind: "auto"}, DataDir: t.TempDir()})
	if !errors.Is(err, ErrNoEngine) {
		t.Fatal(err)
	}
	for _, want := range []string{"admitd engine install vllm", "--engine-binary", "--engine external --engine-url", "--engine sim"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in\n%v", want, err)
		}
	}
}

// A probe that was cut short by the caller's end proves nothing about what is installed.
func TestProbeCutShort(t *testing.T) {
	onPath(t, map[string]string{"python3": "#!/bin/sh\nread forever </dev/zero\n"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, kind := range []string{"auto", "sglang"} {
		var setup *SetupError
		if _, _, err := FindEngine(ctx, config.Config{Engine: config.Engine{Kind: kind}, DataDir: t.TempDir()}); !errors.Is(err, context.Canceled) || errors.As(err, &setup) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestEngineOptions(t *testing.T) {
	c := testConfig(t)
	c.Model, c.Aliases, c.Engine.Kind = "Qwen2.5-0.5B", []string{"small"}, "sim"
	c.Engine.Args = []string{"--max-num-seqs", "4"}
	c.Engine.DrainTimeout, c.Engine.StopGrace, c.Engine.MaxRestarts = 0, 0, 0
	o, err := engineOptions(t.Context(), c, "/s")
	if err != nil {
		t.Fatal(err)
	}
	if o.Model != "Qwen/Qwen2.5-0.5B-Instruct" || !slices.Equal(o.ServedNames, []string{"Qwen2.5-0.5B", "small"}) {
		t.Errorf("loads %s, serves %q", o.Model, o.ServedNames)
	}
	if n := len(o.Args); n < 2 || !slices.Equal(o.Args[n-2:], c.Engine.Args) {
		t.Errorf("the operator's arguments are not the last ones, which win: %q", o.Args)
	}
	// 0 in the file means no waiting and no restarts; in the supervisor's options it would mean the defaults.
	if o.DrainTimeout <= 0 || o.DrainTimeout > time.Second || o.StopGrace <= 0 || o.StopGrace > time.Second || o.Restart.Budget >= 0 {
		t.Errorf("drain %s, grace %s, budget %d", o.DrainTimeout, o.StopGrace, o.Restart.Budget)
	}
	c.Engine.MaxRestarts, c.Engine.DrainTimeout = 5, time.Minute
	if o, err = engineOptions(t.Context(), c, "/s"); err != nil || o.Restart.Budget != 5 || o.DrainTimeout != time.Minute {
		t.Errorf("%+v %v", o.Restart, err)
	}
}

// A key that is a variable's name by its letters, as those of some services are, is not repeated either.
func TestAKeyThatLooksLikeItsVariableIsNotRepeated(t *testing.T) {
	for _, key := range []string{"hf_AbCdEf", "sk_live_1", strings.Repeat("A0", 21)} {
		_, err := EngineKey(config.Engine{KeyEnv: key})
		if err == nil || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "the environment variable that it names is empty") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestExternalEngineOptions(t *testing.T) {
	c := testConfig(t)
	c.Model, c.ModelName, c.Aliases = "org/model", "short", []string{"alias"}
	c.Engine.Kind, c.Engine.URL, c.Engine.KeyEnv = "external", "http://127.0.0.1:1", "APP_TEST_ENGINE_KEY"
	var setup *SetupError
	if _, err := engineOptions(t.Context(), c, "/s"); !errors.As(err, &setup) || !strings.Contains(err.Error(), "APP_TEST_ENGINE_KEY is empty") {
		t.Errorf("%v", err)
	}
	t.Setenv("APP_TEST_ENGINE_KEY", "secret")
	o, err := engineOptions(t.Context(), c, "/s")
	if err != nil || o.APIKey != "secret" || !slices.Equal(o.ServedNames, []string{"org/model"}) {
		t.Errorf("%q %v", o.ServedNames, err)
	}
}
