package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"admitd/internal/config"
	"admitd/nvml"
	"admitd/supervisor"
)

func TestWhatAnEngineTakesOfTheGPUs(t *testing.T) {
	cpu := t.TempDir()
	if err := os.MkdirAll(filepath.Join(cpu, "lib", "python3.12", "site-packages", "vllm-0.32.0+cpu.dist-info"), 0o700); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		o    supervisor.Options
		env  []string
		want nvml.Need
		no   bool
	}{
		{"vLLM by default", supervisor.Options{Kind: supervisor.VLLM}, nil, nvml.Need{Count: 1, Fraction: 0.9}, false},
		{"vLLM over four GPUs, the last word counts", supervisor.Options{Kind: supervisor.VLLM, Args: []string{"--gpu-memory-utilization", "0.5",
			"-tp", "2", "--pipeline-parallel-size=2", "--gpu_memory_utilization=0.8"}}, nil, nvml.Need{Count: 4, Fraction: 0.8}, false},
		{"a share that is none", supervisor.Options{Kind: supervisor.VLLM, Args: []string{"--gpu-memory-utilization", "90"}}, nil, nvml.Need{Count: 1}, false},
		{"GPUs of the environment", supervisor.Options{Kind: supervisor.VLLM, Env: []string{"CUDA_VISIBLE_DEVICES=2,3"}},
			[]string{"CUDA_VISIBLE_DEVICES=0", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}, nvml.Need{Visible: []string{"2", "3"}, PCIOrder: true, Count: 1, Fraction: 0.9}, false},
		{"SGLang takes a share of what is free", supervisor.Options{Kind: supervisor.SGLang, Args: []string{"--tp", "2"}}, nil, nvml.Need{Count: 2}, false},
		{"SGLang on CPUs", supervisor.Options{Kind: supervisor.SGLang, Args: []string{"--device", "cpu"}}, nil, nvml.Need{}, true},
		{"vLLM built for CPUs", supervisor.Options{Kind: supervisor.VLLM, Binary: filepath.Join(cpu, "bin", "vllm")}, nil, nvml.Need{}, true},
		{"vLLM set up for CPUs", supervisor.Options{Kind: supervisor.VLLM}, []string{"VLLM_CPU_KVCACHE_SPACE=4"}, nvml.Need{}, true},
		{"the simulator", supervisor.Options{Kind: supervisor.Sim}, nil, nvml.Need{}, true},
		{"an external engine", supervisor.Options{Kind: supervisor.External}, nil, nvml.Need{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := memoryNeed(tt.o, tt.env)
			if ok == tt.no {
				t.Errorf("asked of the GPUs: %t", ok)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// card is a machine with one GPU of 80 GiB of which used are taken by process 7.
type card struct {
	nvml.Library // whatever is not answered here is not asked
	used         uint64
	absent       bool
}

func (c *card) Init() error {
	if c.absent {
		return &nvml.Error{Op: "nvmlInit", Code: nvml.CodeLibraryNotFound}
	}
	return nil
}
func (c *card) Shutdown() error                 { return nil }
func (c *card) Driver() (string, error)         { return "1", nil }
func (c *card) Count() (int, error)             { return 1, nil }
func (c *card) Device(int) (nvml.Handle, error) { return cardHandle{c}, nil }
func (c *card) Events() (nvml.Events, error)    { return nil, errors.New("none") }
func (c *card) ProcessName(int) (string, error) { return "python3", nil }

type cardHandle struct{ c *card }

func (cardHandle) UUID() (string, error)         { return "GPU-a", nil }
func (cardHandle) Name() (string, error)         { return "NVIDIA H100", nil }
func (cardHandle) Utilization() (float64, error) { return 0, nil }
func (cardHandle) Power() (float64, error)       { return 0, nil }
func (cardHandle) Temperature() (float64, error) { return 0, nil }
func (cardHandle) Throttle() ([]string, error)   { return nil, nil }
func (cardHandle) ECC() (uint64, error)          { return 0, nil }
func (h cardHandle) Memory() (nvml.Memory, error) {
	return nvml.Memory{Total: 80 << 30, Used: h.c.used, Free: 80<<30 - h.c.used}, nil
}
func (cardHandle) GraphicsProcesses() ([]nvml.Process, error) { return nil, nil }
func (h cardHandle) ComputeProcesses() ([]nvml.Process, error) {
	if h.c.used == 0 {
		return nil, nil
	}
	return []nvml.Process{{PID: 7, UsedBytes: new(h.c.used)}}, nil
}

func TestLaunchesAndEndsLookAtTheGPUsMemory(t *testing.T) {
	tests := []struct {
		name string
		card card
		want string
	}{
		{"free", card{}, ""},
		{"taken", card{used: 60 << 30}, "GPU 0 has 20.0 GiB of 80.0 GiB free and the engine wants 72.0 GiB (90 %); held by process 7 (python3) 60.0 GiB"},
		{"no GPU library", card{absent: true}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, needsNothing, func(c *config.Config) { c.GPU.Disabled = false })
				w.monitor = nvml.NewMonitor(nvml.MonitorOptions{Lib: &tt.card})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- w.monitor.Run(ctx) }()
				t.Cleanup(func() { cancel(); <-done })
				o := supervisor.Options{Kind: supervisor.VLLM}
				w.memoryHooks(&o)
				limited, end := context.WithTimeout(ctx, time.Minute)
				defer end()
				err := o.BeforeLaunch(limited, func(string) {})
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("before the launch: %v; want %q", err, tt.want)
				}
				if n := countEvents(w.journal, "error gpu_memory: GPU memory before the launch: short"); (n == 1) != (tt.want != "") {
					t.Errorf("events %q", events(w.journal))
				}
				limited, end = context.WithTimeout(ctx, time.Minute)
				defer end()
				if err := o.AfterStop(limited, func(string) {}); err != nil {
					t.Errorf("after the end: %v; want nothing missing", err)
				}
			})
		})
	}
}

func TestNoGPUIsReadWhereThatIsSwitchedOff(t *testing.T) {
	w := newWorld(t, needsNothing)
	o := supervisor.Options{Kind: supervisor.VLLM}
	if w.memoryHooks(&o); o.BeforeLaunch != nil || o.AfterStop != nil {
		t.Error("the GPUs are looked at although gpu.disabled is set")
	}
}
