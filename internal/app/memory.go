package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"admitd/gate/journal"
	"admitd/nvml"
	"admitd/supervisor"
)

// vllmShare is the part of each GPU that vLLM takes when nobody says another: 0.9, in newer versions 0.92. The smaller one never
// keeps back an engine that would have started.
const vllmShare = 0.9

// memoryNeed is what an engine will take of the GPUs; ok is false for one that has no business there.
func memoryNeed(o supervisor.Options, environ []string) (need nvml.Need, ok bool) {
	env := func(name string) (value string, set bool) {
		for _, e := range append(append([]string(nil), environ...), o.Env...) {
			if v, found := strings.CutPrefix(e, name+"="); found {
				value, set = v, true
			}
		}
		return value, set
	}
	if visible, set := env("CUDA_VISIBLE_DEVICES"); set {
		need.Visible = strings.Split(visible, ",")
	}
	order, _ := env("CUDA_DEVICE_ORDER")
	need.PCIOrder = order == "PCI_BUS_ID"
	switch o.Kind {
	case supervisor.VLLM:
		if _, cpu := env("VLLM_CPU_KVCACHE_SPACE"); cpu || cpuBuild(o.Binary) {
			return nvml.Need{}, false
		}
		need.Count = countOf(o.Args, "-tp", "--tensor-parallel-size") * countOf(o.Args, "-pp", "--pipeline-parallel-size") *
			countOf(o.Args, "-dp", "--data-parallel-size-local", "--data-parallel-size")
		need.Fraction = vllmShare
		if v, given := argOf(o.Args, "--gpu-memory-utilization"); given {
			need.Fraction = fraction(v)
		}
		return need, true
	case supervisor.SGLang:
		if device, _ := argOf(o.Args, "--device"); device != "" && device != "cuda" {
			return nvml.Need{}, false
		}
		// It takes its share of what is free, so any amount may do.
		need.Count = countOf(o.Args, "--tp", "--tp-size", "--tensor-parallel-size") * countOf(o.Args, "--pp-size", "--pipeline-parallel-size")
		return need, true
	}
	return nvml.Need{}, false
}

// fraction reads a share; 0, which means not known, for anything that is none: the engine will say what is wrong with it.
func fraction(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0 && v <= 1) {
		return 0
	}
	return v
}

// mostGPUs bounds a number of GPUs that an argument gives, so that products of several stay numbers of GPUs.
const mostGPUs = 1 << 12

// countOf is the last value given to one of the names, from 1 to mostGPUs.
func countOf(args []string, names ...string) int {
	text, _ := argOf(args, names...)
	n, err := strconv.Atoi(text)
	if err != nil {
		return 1
	}
	return min(max(n, 1), mostGPUs)
}

// argOf is the last value of an argument in any spelling that the engines take: --a-b v, --a-b=v, --a_b v.
func argOf(args []string, names ...string) (value string, given bool) {
	for i, arg := range args {
		name, v, joined := strings.Cut(arg, "=")
		for _, want := range names {
			if strings.ReplaceAll(name, "_", "-") != want {
				continue
			}
			switch {
			case joined:
				value, given = v, true
			case i+1 < len(args):
				value, given = args[i+1], true
			}
		}
	}
	return value, given
}

// cpuBuild reports whether the vLLM that a command belongs to was built for CPUs: its version says so.
func cpuBuild(binary string) bool {
	if target, err := filepath.EvalSymlinks(binary); err == nil {
		binary = target
	}
	found, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(binary)), "lib", "python*", "site-packages", "vllm-*+cpu*.dist-info"))
	return err == nil && len(found) > 0
}

// memoryHooks gives the supervisor its looks at GPU memory, none where there is nothing to look at.
func (p *pool) memoryHooks(o *supervisor.Options) {
	need, ok := memoryNeed(*o, os.Environ())
	if !ok || p.config.GPU.Disabled {
		return
	}
	o.BeforeLaunch = func(ctx context.Context, tell func(string)) error {
		f := p.monitor.AwaitFree(ctx, need, func(f nvml.Finding) {
			if f.Outcome == nvml.Short || f.Readings > patientReadings {
				tell(f.Text)
			}
		})
		p.memoryFound("before the launch", f)
		if f.Outcome == nvml.Short {
			return &supervisor.MemoryError{Text: "too little GPU memory is free: " + f.Text,
				Hint: "end the processes named, or lower the engine's share of the memory: -- --gpu-memory-utilization"}
		}
		return nil
	}
	o.AfterStop = func(ctx context.Context, tell func(string)) error {
		f := p.monitor.AwaitReturned(ctx, func(f nvml.Finding) {
			if f.Outcome == nvml.Held {
				tell(f.Text)
			}
		})
		p.memoryFound("after the end of the engine", f)
		if f.Outcome == nvml.Held {
			return &supervisor.MemoryError{Text: f.Text}
		}
		return nil
	}
}

// patientReadings of moving memory pass before a launch says that it waits: every launch takes the first ones.
const patientReadings = 6

// memoryFound keeps what a look at GPU memory came to: in the log, and as an event what a person may have to act on.
func (p *pool) memoryFound(when string, f nvml.Finding) {
	p.news.Info("looked at GPU memory", "when", when, "outcome", string(f.Outcome), "text", f.Text, "readings", f.Readings)
	level := "warn"
	switch f.Outcome {
	case nvml.Short, nvml.Held:
		level = "error"
	case nvml.Taken, nvml.Restless:
	default:
		return
	}
	p.event("gpu_memory", level, fmt.Sprintf("GPU memory %s: %s: %s", when, f.Outcome, f.Text))
}

// event puts something that happened into the record.
func (p *pool) event(name, level, text string) {
	p.journal.Append(journal.Entry{At: time.Now(), Kind: journal.KindEvent,
		Event: &journal.Event{Name: name, Level: level, Pool: p.name, Text: text}})
}
