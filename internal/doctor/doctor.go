// Package doctor says what a machine lacks for one configuration of admitd, and which command mends it.
//
// Goal: one finding a line, each with its level, what was seen, and what to do; on any machine, offline, without a GPU and
// without an engine. Nothing is downloaded, started or changed, but for a file that is made and removed to see whether a
// folder can be written, and a program of the engine's Python that prints a version.
//
// Non-goals: mending; judging the configuration file and the policy, which have their own checks.
//
// Invariants: the machine is seen through a Machine only, so that each finding can be tested; a fact that cannot be read is
// told as such and is never a failure by itself. Not looked at, because admitd does not use or need them: inotify (files are
// compared every 2 s), transparent huge pages.
package doctor

import (
	"context"
	"fmt"
	"time"

	"admitd/internal/config"
	"admitd/internal/install"
	"admitd/nvml"
	"admitd/supervisor"
)

// Level says how bad a finding is.
type Level string

// Levels. Fail keeps serve from working, Warn can make it worse than it need be.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Finding is one line of what was found.
type Finding struct {
	Name  string `json:"name"`
	Level Level  `json:"level"`
	Text  string `json:"text"`
	// Fix is the command or the words that mend it, "" when nothing is to be done.
	Fix string `json:"fix,omitempty"`
}

// Machine is what is looked at. Local is the real one.
type Machine struct {
	// Root is where /proc, /sys, /etc and /dev are: "/" on a real machine.
	Root string
	// Env reads an environment variable; Home is the user's folder, "" when there is none.
	Env  func(string) string
	Home string
	// LookPath finds a program on PATH. Output runs one and returns the first line that it prints.
	LookPath func(string) (string, error)
	Output   func(ctx context.Context, name string, args ...string) (string, error)
	// GPU reads the devices once; nil when they are not to be read.
	GPU func(context.Context) *nvml.Reading
	// Listen tries whether an address can be listened on.
	Listen func(ctx context.Context, network, address string) error
	// Holder names the process that listens on a port, "" when it cannot be seen.
	Holder func(port int) string
	// Serving gives the pid of the admitd that serves with a state folder, 0 without one.
	Serving func(stateDir string) int
	// EngineMark is the value of supervisor.MarkName for engines of a state folder, "" for a folder that is not there.
	EngineMark func(stateDir string) string
	// Room is how much is free, and how much there is at all, on the file system of a folder, which need not be there.
	Room func(path string) (free, total uint64, err error)
	// OpenFiles is the highest number of files that this process may have open.
	OpenFiles func() (uint64, error)
	// Now is the clock; Synchronised says whether the kernel knows it to be right.
	Now          func() time.Time
	Synchronised func() (bool, error)
}

// Subject is what the machine is to do.
type Subject struct {
	Config config.Config
	// StateDir and DataDir are the folders in force.
	StateDir, DataDir string
	// Kind and Binary are the engine that serve would run; FindErr why there is none.
	Kind    supervisor.Kind
	Binary  string
	FindErr error
	// Repo is what the engine is to load, "" when no model is named.
	Repo string
}

// exam is one examination: what an earlier finding has learnt helps a later one.
type exam struct {
	m       Machine
	s       Subject
	catalog install.Catalog
	// reading is nil when the GPU is not read; weights is the size of the model's files in bytes, 0 when it is not known.
	reading *nvml.Reading
	weights uint64
	// guessed says that weights is from the model's name.
	guessed bool
	// local is true for an engine of ours on this machine; cpu for one that needs no GPU.
	local, cpu bool
	found      []Finding
}

// Examine looks at everything and returns the findings in the order in which one would mend them.
func Examine(ctx context.Context, m Machine, s Subject) ([]Finding, error) {
	catalog, err := install.LoadCatalog()
	if err != nil {
		return nil, err
	}
	x := &exam{m: m, s: s, catalog: catalog, local: s.Kind == supervisor.VLLM || s.Kind == supervisor.SGLang || s.FindErr != nil}
	x.engine(ctx)
	if x.local {
		x.model()
		x.gpu(ctx)
		x.memory()
		x.sharedMemory()
		x.compiler()
	}
	x.listeners(ctx)
	x.folders()
	x.openFiles()
	x.clock()
	x.leftovers()
	return x.found, nil
}

func (x *exam) add(level Level, name, fix, format string, args ...any) {
	x.found = append(x.found, Finding{Name: name, Level: level, Text: fmt.Sprintf(format, args...), Fix: fix})
}

const gib = 1 << 30

// size writes bytes for people.
func size(bytes uint64) string {
	if bytes < gib {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/gib)
}
