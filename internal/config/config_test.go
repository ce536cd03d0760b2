package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"admitd/internal/sockets"
	"admitd/internal/strict"
	"admitd/test/seeds"
)

func TestAKeyInPlaceOfItsVariableIsNotRepeated(t *testing.T) {
	for _, key := range []string{"sk-abc", "0abc", "a b", "a=b", "abc/def+g==", "ключ"} {
		_, err := Parse("f", []byte("engine:\n  kind: external\n  url: http://127.0.0.1:1\n  key_env: \""+key+"\"\n"), nil)
		if err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%v", err)
		}
	}
}

func TestEmptyFileIsTheDefault(t *testing.T) {
	c, err := Parse("f", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Default(), c); d != "" {
		t.Error(d)
	}
}

func TestBadConfigurations(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"lisen: 127.0.0.1:1\n", "f:1:1: lisen: unknown key; did you mean listen?"},
		{"listen: nowhere\n", `f:1:1: listen: "nowhere" is not host:port`},
		{"listen: 0.0.0.0:8080\n", "f:1:1: listen: 0.0.0.0:8080 can be reached by others and no keys are configured"},
		{"listen: 127.0.0.1:99999\n", "port \"99999\" is not a number from 0 to 65535"},
		{"listen: 127.0.0.1:8081\n", "the admin listener needs another"},
		{"engine:\n  kind: trt\n", `f:2:3: engine.kind: "trt" is not one of auto, vllm, sglang, sim, external`},
		{"engine:\n  kind: external\n", "f:1:1: engine.url: an external engine needs a URL"},
		{"engine:\n  kind: sim\n  version: 0.32.0\n", "f:3:3: engine.version: only an installed vllm or sglang has a version to choose; engine.kind is sim"},
		{"engine:\n  kind: vllm\n  binary: /x\n  version: 0.32.0\n", "engine.version: engine.binary names the program already"},
		{"engine: {kind: external, url: 'http://u:p@127.0.0.1:1'}\n", "f:1:26: engine.url: a URL must not hold a user name or password"},
		{"engine: {kind: external, url: 'http://127.0.0.1:1', key_env: sk-abc}\n", "f:1:53: engine.key_env: needs the name of an environment variable, such as ENGINE_KEY"},
		{"aliases: [a, a]\n", `f:1:14: aliases.1: "a" is the model's name, or stands in the list twice`},
		{"model: m\naliases: [m]\n", `f:2:11: aliases.0: "m" is the model's name`},
		{"aliases: ['']\n", "f:1:11: aliases.0: an alias cannot be empty"},
		{"admin: {allowed_hosts: ['http://x']}\n", `f:1:25: admin.allowed_hosts.0: "http://x" is not a host name`},
		{"admin: {allowed_hosts: ['*.x']}\n", `"*.x" is not a host name`},
		{"relay: {open_paths: [{path: /nothing, class: helper}]}\n", `relay.open_paths.0.path: cannot open "/nothing": admitd knows no such engine path`},
		{"relay: {open_paths: [{path: /tokenize, class: helper}]}\n", "it is not blocked but helper already"},
		{"relay: {open_paths: [{path: /version, class: helper}, {path: /version, class: helper}]}\n", "/version stands in the list twice"},
		{"journal: {ring: 1000001}\n", "f:1:11: journal.ring: 1000001 is too many; the most is 1000000, which can take 4 GiB"},
		{"limits:\n  max_body: 32MB\n", `f:2:13: limits.max_body: "32MB" is not a size such as 32MiB`},
		{"keys: [{id: a b, sha256: x}]\n", "keys.0.id: needs 1 to 64 of letters"},
		{"keys:\n  - {id: a, sha256: " + strings.Repeat("ab", 32) + "}\n  - {id: b, sha256: " + strings.Repeat("AB", 32) + "}\n", "f:3:13: keys.1.sha256: the same key stands in the list twice"},
		{"engine:\n  url: http://127.0.0.1:1\n", "f:2:3: engine.url: only an external engine has a URL"},
		{"engine:\n  start_timeout: 5\n", "f:2:18: \"5\" is not a duration such as 1500ms"},
		{"engine:\n  start_timeout: 5ms\n", "f:2:3: engine.start_timeout: 5ms is too short; the least is 1s"},
		{"limits:\n  max_body: 32 megabytes\n", `"32 megabytes" is not a size such as 32MiB`},
		{"limits:\n  max_buffered: 1MiB\n", "f:2:3: limits.max_buffered: 1MiB is below max_body (32MiB)"},
		{"default_class: gold\n", `f:1:1: default_class: "gold" is not a class; the classes are batch, interactive`},
		{"keys:\n  - id: a\n    sha256: abc\n", "f:3:5: keys.0.sha256: needs the 64 hex digits"},
		{"keys:\n  - id: a\n    secret: abc\n", "f:3:5: secret: unknown key"},
		{"refuse_codes:\n  queue: 503\n", `f:2:3: refuse_codes.queue: "queue" is not a reason`},
		{"refuse_codes:\n  queue_depth: 200\n", "f:2:3: refuse_codes.queue_depth: 200 is not a status from 400 to 599"},
		{"signals:\n  stale_after: 1s\n", "f:2:3: signals.stale_after: 1s is not above max_interval (1s)"},
		{"relay:\n  open_paths:\n    - path: sleep\n      class: helper\n", `f:3:7: relay.open_paths.0.path: "sleep" does not begin with /`},
		{"listen: a\nadmin:\n  listen: b\n", "f:1:1: listen: "},
	} {
		_, err := Parse("f", []byte(c.src), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q\n gave %v\nwant %s", c.src, err, c.want)
		}
	}
}

func TestSeveralMistakesAreAllTold(t *testing.T) {
	_, err := Parse("f", []byte("listen: a\nadmin:\n  listen: b\nlog:\n  level: loud\n"), nil)
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three lines, got %v", err)
	}
}

func TestEverySettingIsClassedAndDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Settings() {
		if s.Reload != "hot" && s.Reload != "process" {
			t.Errorf("%s: reload class %q", s.Path, s.Reload)
		}
		if s.Doc == "" || !strings.HasSuffix(s.Doc, ".") {
			t.Errorf("%s: doc %q is not a sentence", s.Path, s.Doc)
		}
		if seen[s.Path] {
			t.Errorf("%s twice", s.Path)
		}
		seen[s.Path] = true
	}
}

func TestDiffNamesWhatAReloadCannotChange(t *testing.T) {
	a, b := Default(), Default()
	b.Log.Level = "debug"
	b.Engine.Args = []string{"--max-num-seqs", "4"}
	b.Listen = "127.0.0.1:9090"
	hot, process := Diff(a, b)
	want := [2][]string{{"log.level info -> debug"}, {"listen 127.0.0.1:8080 -> 127.0.0.1:9090", "engine.args"}}
	if d := cmp.Diff(want, [2][]string{hot, process}); d != "" {
		t.Error(d)
	}
	if h, p := Diff(a, a); len(h)+len(p) != 0 {
		t.Error("a configuration differs from itself")
	}
}

func TestUnreadableExpiryIsNeverNever(t *testing.T) {
	for _, v := range []string{"2020-06-31T00:00:00Z", "tomorrow", "2020-01-01 00:00", "0001-01-01T00:00:00Z", "~", "", "!!str soon", "*x"} {
		src := "model: &x soon\nkeys:\n  - id: a\n    sha256: " + strings.Repeat("ab", 32) + "\n    expires: " + v + "\n"
		_, err := Parse("f", []byte(src), nil)
		if err == nil || !strings.Contains(err.Error(), "f:5:") || !strings.Contains(err.Error(), "is not a time such as 2026-12-31T00:00:00Z") {
			t.Errorf("expires: %s gave %v", v, err)
		}
	}
	c, err := Parse("f", []byte("keys:\n  - {id: a, sha256: "+strings.Repeat("ab", 32)+", expires: 2027-06-30}\n  - {id: b, sha256: "+strings.Repeat("cd", 32)+"}\n"), nil)
	if err != nil || c.Keys[0].Expires.Format("2006-01-02") != "2027-06-30" || !c.Keys[1].Expires.IsZero() {
		t.Errorf("%+v %v", c.Keys, err)
	}
}

func TestDiffAndErrorsPrintNoSecretOfAnySetting(t *testing.T) {
	const canary = "canary-3f9a"
	a, b := Default(), Default()
	b.Engine.Args = []string{"--api-key", canary}
	b.Engine.URL, b.Engine.KeyEnv, b.Admin.TokenFile = "http://u:"+canary+"@h", canary, canary
	b.Aliases, b.Admin.AllowedHosts, b.Keys = []string{canary}, []string{canary}, []Key{{ID: canary, SHA256: canary}}
	b.Classes = map[string]SLO{canary: {}}
	hot, process := Diff(a, b)
	if text := strings.Join(append(hot, process...), "\n"); strings.Contains(text, canary) || !strings.Contains(text, "engine.args") {
		t.Error(text)
	}
	for _, url := range []string{"http://u:" + canary + "@h", "ftp://u:" + canary + "@h", "u:" + canary + "@h"} {
		if _, err := Parse("f", []byte("engine: {kind: external, url: '"+url+"'}\n"), nil); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestMistakeOfAFlagNamesTheFlagNotTheFile(t *testing.T) {
	over := Over{Apply: func(c *Config) { c.Listen = "nowhere" }, Origin: func(key string) string {
		if key == "listen" {
			return "--listen"
		}
		return ""
	}}
	_, err := parse("f", []byte("listen: 127.0.0.1:1\nlog: {level: loud}\n"), over)
	if err == nil || !strings.Contains(err.Error(), `--listen: listen: "nowhere" is not host:port`) || !strings.Contains(err.Error(), "f:2:7: log.level:") || strings.Contains(err.Error(), "f:1:") {
		t.Errorf("%v", err)
	}
}

func TestDiffNeverPrintsKeyHashes(t *testing.T) {
	a, b := Default(), Default()
	b.Keys = []Key{{ID: "k", SHA256: strings.Repeat("ab", 32)}}
	if _, p := Diff(a, b); len(p) != 1 || p[0] != "keys" {
		t.Errorf("got %q", p)
	}
}

func TestFlagsAreCheckedTogetherWithTheFile(t *testing.T) {
	open := func(c *Config) { c.AllowAnonymous = true }
	if _, err := Parse("f", []byte("listen: 0.0.0.0:8080\n"), open); err != nil {
		t.Errorf("--allow-anonymous over a file that listens to others: %v", err)
	}
	if _, err := Parse("f", nil, func(c *Config) { c.Engine.Kind = "trt" }); err == nil {
		t.Error("a bad flag over an empty file passed")
	}
}

func TestMissingFile(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "absent.yaml"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "1024": 1024, "64KiB": 64 << 10, `"32MiB"`: 32 << 20, "2 GiB": 2 << 30} {
		var b Bytes
		if err := b.UnmarshalYAML([]byte(text)); err != nil || b != want {
			t.Errorf("%s: %d, %v", text, b, err)
		}
	}
	for _, text := range []string{"-1", "1.5MiB", "99999999GiB", "MiB", ""} {
		var b Bytes
		if err := b.UnmarshalYAML([]byte(text)); err == nil {
			t.Errorf("%q was read as %d", text, b)
		}
	}
}

// What is refused has a place, what is taken means the same when it is written again, and its bounds hold.
func FuzzParse(f *testing.F) {
	f.Add("listen: 127.0.0.1:1\nkeys: [{id: a, sha256: b}]\n")
	f.Add("classes: {a: {ttft: 1s}}\nrefuse_codes: {kv_pressure: 503}\n")
	f.Add("listen_mode: \"0660\"\ntls: {cert: a, key: b}\ncors: {origins: [\"https://a.b\"]}\n")
	for _, b := range seeds.Files(f, "../../configs/admitd.example.yaml") {
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, src string) {
		c, err := Parse("f", []byte(src), nil)
		if err != nil {
			var se *strict.Error
			if !errors.As(err, &se) || len(se.Places) == 0 {
				t.Fatalf("%q: an error without a place: %v", src, err)
			}
			return
		}
		if hot, process := Diff(c, c); len(hot)+len(process) > 0 {
			t.Errorf("%q differs from itself", src)
		}
		if network, _, err := sockets.ParseAddress(c.Listen); err != nil || network == "" {
			t.Errorf("%q: listen %q: %v", src, c.Listen, err)
		}
		if m := Mode(c.ListenMode); m > 0o777 || c.Upgrade.Timeout < time.Second || c.Engine.DrainTimeout < 0 {
			t.Errorf("%q: mode %o, upgrade %v, drain %v", src, m, c.Upgrade.Timeout, c.Engine.DrainTimeout)
		}
	})
}

// A size that is read is written as one that is read as the same, and is never below zero.
func FuzzBytes(f *testing.F) {
	for _, s := range []string{"0", "32MiB", "'2 GiB'", "-1", "+5KiB", "9223372036854775807GiB", "1e3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var b, again Bytes
		if b.UnmarshalYAML([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalYAML([]byte(b.String())); err != nil || again != b || b < 0 || b > 1<<50 {
			t.Fatalf("%q is %d, written %s, read again %d (%v)", text, b, b, again, err)
		}
	})
}

func TestShippedModelsResolve(t *testing.T) {
	m, err := LoadModels()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range m.Names() {
		if m.Models[name].Repo == "" {
			t.Errorf("%s has no repo", name)
		}
	}
	repo, args := m.Resolve("Qwen2.5-0.5B", "vllm")
	if repo != "Qwen/Qwen2.5-0.5B-Instruct" || len(args) == 0 {
		t.Errorf("got %q %q", repo, args)
	}
	if repo, args := m.Resolve("/models/own", "vllm"); repo != "/models/own" || args != nil {
		t.Errorf("an unknown name must pass as it is, got %q %q", repo, args)
	}
}

// It is installed as the first configuration of a server: whatever it enabled would be enabled there.
func TestShippedExampleEnablesNothingOfItsOwn(t *testing.T) {
	const file = "../../configs/admitd.example.yaml"
	c, err := Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Model = c.Model
	if d := cmp.Diff(want, c); d != "" || c.Model == "" {
		t.Errorf("model %q; beyond it: %s", c.Model, d)
	}
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// What it offers is right but for the keys' hashes, which it does not have.
	offered := regexp.MustCompile(`(?m)^#(\S|  )`).ReplaceAllString(string(src), "$1")
	_, err = Parse("f", []byte(offered), nil)
	if n := strings.Count(fmt.Sprint(err), "sha256: needs the 64 hex digits"); n != 2 || strings.Count(fmt.Sprint(err), "\n") != 1 {
		t.Errorf("with all that is offered: %v", err)
	}
	for _, hash := range []string{strings.Repeat("ab", 32), strings.Repeat("cd", 32)} {
		offered = strings.Replace(offered, "HASH", hash, 1)
	}
	if c, err = Parse("f", []byte(offered), nil); err != nil || len(c.Keys) != 2 || len(c.Aliases) != 1 || len(c.Engine.Args) != 2 || c.PolicyFile == "" {
		t.Errorf("with all that is offered, and hashes: %+v %v", c, err)
	}
}

func TestShippedExampleIsValidAndFitsItsSchema(t *testing.T) {
	const file = "../../configs/admitd.example.yaml"
	if _, err := Load(file, nil); err != nil {
		t.Fatal(err)
	}
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := yaml.Unmarshal(src, &doc); err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	schemaFile, err := os.Open("../../configs/admitd.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = schemaFile.Close() }()
	raw, err := jsonschema.UnmarshalJSON(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.AddResource("admitd.json", raw); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("admitd.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(doc); err != nil {
		t.Error(err)
	}
	doc.(map[string]any)["lisen"] = "x"
	if schema.Validate(doc) == nil {
		t.Error("the schema lets an unknown key pass")
	}
}
