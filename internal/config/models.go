package config

import (
	"sort"

	"admitd/configs"
	"admitd/internal/strict"
)

// Model is one entry of configs/models.yaml.
type Model struct {
	// Repo is what the engine is told to load.
	Repo string `yaml:"repo"`
	// VLLM, SGLang and Sim are the arguments for each kind of engine.
	VLLM   []string `yaml:"vllm"`
	SGLang []string `yaml:"sglang"`
	Sim    []string `yaml:"sim"`
}

// Models is the table of short names.
type Models struct {
	Models map[string]Model `yaml:"models"`
}

// LoadModels reads the table that ships with admitd.
func LoadModels() (Models, error) {
	var m Models
	err := strict.Decode("configs/models.yaml", configs.Models, &m)
	return m, err
}

// Names lists the short names, sorted.
func (m Models) Names() []string {
	names := make([]string, 0, len(m.Models))
	for n := range m.Models {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Resolve returns what the engine should load and with which arguments. A name that is not in the table is
// passed on as it is.
func (m Models) Resolve(name, kind string) (repo string, args []string) {
	e, ok := m.Models[name]
	if !ok {
		return name, nil
	}
	switch kind {
	case "vllm":
		args = e.VLLM
	case "sglang":
		args = e.SGLang
	case "sim":
		args = e.Sim
	}
	return e.Repo, append([]string(nil), args...)
}
