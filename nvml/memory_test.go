//go:build linux && cgo

package nvml

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// holds makes a GPU of 80 GiB hold what its processes do, and lost GiB besides.
func (m *machine) holds(gpu int, lost uint64, processes ...nvml.ProcessInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := lost << 30
	for _, p := range processes {
		if p.UsedGpuMemory != ^uint64(0) {
			used += p.UsedGpuMemory
		}
	}
	if m.memory == nil {
		m.memory, m.processes = map[int]nvml.Memory{}, map[int][]nvml.ProcessInfo{}
	}
	m.memory[gpu] = nvml.Memory{Total: fakeTotal, Used: used, Free: fakeTotal - used}
	m.processes[gpu] = processes
}

// held is a process with so many GiB.
func held(pid uint32, gib uint64) nvml.ProcessInfo {
	return nvml.ProcessInfo{Pid: pid, UsedGpuMemory: gib << 30}
}

func (m *machine) empty() *machine {
	m.holds(0, 0)
	m.holds(1, 0)
	return m
}

// wants runs one wait of at most limit and compares what it found.
func wants(t *testing.T, f Finding, outcome Outcome, words ...string) {
	t.Helper()
	if f.Outcome != outcome {
		t.Errorf("outcome %q (%s); want %q", f.Outcome, f.Text, outcome)
	}
	for _, w := range words {
		if !strings.Contains(f.Text, w) {
			t.Errorf("text %q; want it to say %q", f.Text, w)
		}
	}
}

func within(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), limit)
}

func TestLaunchWaitsUntilFreeMemoryIsStableAndEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine().empty()
		m.holds(0, 0, held(7, 20))
		mon, stop := m.run(t)
		defer stop()
		pass(time.Second)
		// The old engine goes in three steps.
		go func() {
			for _, left := range []uint64{12, 10, 0} {
				<-time.After(2 * time.Second)
				m.holds(0, 0, held(7, left))
			}
		}()
		var told []string
		ctx, cancel := within(time.Minute)
		defer cancel()
		began := time.Now()
		f := mon.AwaitFree(ctx, Need{Count: 2, Fraction: 0.9}, func(f Finding) { told = append(told, string(f.Outcome)+": "+f.Text) })
		wants(t, f, Enough, "GPU 0: 80.0 GiB, GPU 1: 80.0 GiB free and stable")
		if waited := time.Since(began); waited < 6*time.Second || waited > 9*time.Second {
			t.Errorf("waited %s; want a little more than the 6 s that the memory took", waited)
		}
		if first := told[0]; first != "short: GPU 0 has 60.0 GiB of 80.0 GiB free and the engine wants 72.0 GiB (90 %); held by process 7 (proc7) 20.0 GiB" {
			t.Errorf("told first: %s", first)
		}
		if !strings.HasPrefix(told[len(told)-1], "restless: ") {
			t.Errorf("told last %q; want that it is still moving", told[len(told)-1])
		}
	})
}

func TestLaunchIsToldWhatItLacksAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine().empty()
		m.holds(1, 0, held(8, 5), held(9, 30))
		mon, stop := m.run(t)
		defer stop()
		pass(time.Second)
		ctx, cancel := within(30 * time.Second)
		defer cancel()
		wants(t, mon.AwaitFree(ctx, Need{Count: 2, Fraction: 0.9}, nil), Short, "GPU 1 has 45.0 GiB of 80.0 GiB", "held by process 9 (proc9) 30.0 GiB, process 8")
		// An engine on the other GPU is not kept from it.
		ctx, cancel = within(30 * time.Second)
		defer cancel()
		wants(t, mon.AwaitFree(ctx, Need{Count: 1, Fraction: 0.9}, nil), Enough)
	})
}

func TestMemoryThatNeverRestsIsNamedSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine().empty()
		mon, stop := m.run(t)
		defer stop()
		moving, done := within(15 * time.Second)
		defer done()
		go func() {
			for i := uint64(0); moving.Err() == nil; i++ {
				m.holds(0, i%3)
				select {
				case <-moving.Done():
				case <-time.After(400 * time.Millisecond):
				}
			}
		}()
		ctx, cancel := within(10 * time.Second)
		defer cancel()
		wants(t, mon.AwaitFree(ctx, Need{}, nil), Restless, "still moving")
	})
}

func TestWhatIsNotKnownNeverBlocksALaunch(t *testing.T) {
	tests := []struct {
		name string
		need Need
		make func(*machine)
		want string
		// within is how long it may take.
		within time.Duration
	}{
		{"no library", Need{}, func(m *machine) { m.failAt, m.code = 1, nvml.ERROR_LIBRARY_NOT_FOUND }, "nvmlInit", 2 * time.Second},
		{"a call hangs", Need{}, func(m *machine) { m.failAt, m.hang = 9, make(chan struct{}) }, "has not returned", 21 * time.Second},
		{"GPU lost", Need{}, func(m *machine) { m.failAt, m.code = 9, nvml.ERROR_GPU_IS_LOST }, "GPU is lost", 2 * time.Second},
		{"a GPU that shares the host's memory", Need{}, func(m *machine) { m.only, m.failAt, m.code = "Memory", 1, nvml.ERROR_NOT_SUPPORTED }, "does not tell its memory", 2 * time.Second},
		{"a slice", Need{Visible: []string{"MIG-abc"}}, func(*machine) {}, "MIG", 2 * time.Second},
		{"no GPU shown", Need{Visible: []string{""}}, func(*machine) {}, "shows the engine no GPU", 2 * time.Second},
		{"what follows a wrong entry", Need{Visible: []string{"0", "-1", "1"}, Count: 2}, func(*machine) {}, "uses 2 GPUs and 1 can be seen", 2 * time.Second},
		{"more than there are", Need{Count: 4}, func(*machine) {}, "uses 4 GPUs and 2 can be seen", 2 * time.Second},
		{"GPUs that differ", Need{Visible: []string{"1"}}, func(m *machine) {
			m.devices[1].GetNameFunc = func() (string, nvml.Return) { return "NVIDIA T400", m.enter("Name") }
		}, "another order", 2 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine()
				tt.make(m)
				mon, stop := m.run(t)
				ctx, cancel := within(20 * time.Second)
				defer cancel()
				began := time.Now()
				wants(t, mon.AwaitFree(ctx, tt.need, nil), Unknown, tt.want)
				if took := time.Since(began); took > tt.within {
					t.Errorf("took %s; want at most %s", took, tt.within)
				}
				m.heal()
				stop()
			})
		})
	}
}

func TestOnlyTheVisibleGPUsCount(t *testing.T) {
	for name, need := range map[string]Need{
		"by index":                {Visible: []string{" 1"}, Fraction: 0.9},
		"by UUID":                 {Visible: []string{"GPU-1"}, Fraction: 0.9},
		"by index, in PCI order":  {Visible: []string{"1"}, PCIOrder: true, Fraction: 0.9},
		"the first of those seen": {Visible: []string{"1", "0"}, Fraction: 0.9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine().empty()
				m.holds(0, 0, held(7, 70))
				mon, stop := m.run(t)
				defer stop()
				ctx, cancel := within(20 * time.Second)
				defer cancel()
				wants(t, mon.AwaitFree(ctx, need, nil), Enough, "GPU 1: 80.0 GiB")
			})
		})
	}
}

func TestMemoryAfterTheEngineHasGone(t *testing.T) {
	tests := []struct {
		name  string
		after func(*machine)
		want  Outcome
		words []string
	}{
		{"all of it is back", func(m *machine) { m.holds(0, 0, held(5, 2)) }, Returned, nil},
		{"but for what the driver keeps", func(m *machine) { m.memory[0] = nvml.Memory{Total: fakeTotal, Free: fakeTotal - 2<<30 - 200<<20} }, Returned, nil},
		{"another process grew meanwhile", func(m *machine) { m.holds(0, 0, held(5, 30)) }, Taken, []string{"28.0 GiB less", "process 5 (proc5) 30.0 GiB"}},
		{"another process came", func(m *machine) { m.holds(0, 0, held(5, 2), held(6, 30)) }, Taken, []string{"process 6"}},
		{"another process of unknown size", func(m *machine) {
			m.holds(0, 30, held(5, 2), nvml.ProcessInfo{Pid: 6, UsedGpuMemory: ^uint64(0)})
		}, Taken, []string{"may be another process"}},
		{"a dead process of the engine holds on", func(m *machine) { m.holds(0, 0, held(5, 2), held(70, 60)) }, Held, []string{"60.0 GiB less", "held by process 70 (proc70) 60.0 GiB"}},
		{"nobody holds it", func(m *machine) { m.holds(0, 40, held(5, 2)) }, Held, []string{"GPU 0 has 40.0 GiB less", "no process accounts for 40.0 GiB"}},
		{"the driver does not answer any more", func(m *machine) { m.mu.Lock(); m.failAt, m.code = 1, nvml.ERROR_UNKNOWN; m.mu.Unlock() }, Unknown, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine().empty()
				m.holds(0, 0, held(5, 2))
				mon, stop := m.run(t)
				defer stop()
				ctx, cancel := within(time.Minute)
				defer cancel()
				wants(t, mon.AwaitFree(ctx, Need{}, nil), Enough)
				m.holds(0, 0, held(5, 2), held(70, 60)) // the engine, which is ours
				pass(10 * time.Second)
				tt.after(m)
				ctx, cancel = within(20 * time.Second)
				defer cancel()
				began := time.Now()
				wants(t, mon.AwaitReturned(ctx, nil), tt.want, tt.words...)
				if took := time.Since(began); (took >= 20*time.Second) != (tt.want == Held) {
					t.Errorf("took %s; want only memory that is held to be waited for", took)
				}
			})
		})
	}
}

func TestMemoryOfAnEngineThatWasAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine().empty()
		m.holds(0, 0, held(70, 60))
		mon, stop := m.run(t)
		defer stop()
		pass(3 * time.Second)
		ctx, cancel := within(5 * time.Second)
		defer cancel()
		wants(t, mon.AwaitReturned(ctx, nil), Held, "GPU 0 still lists process 70")
		m.holds(0, 0)
		ctx, cancel = within(5 * time.Second)
		defer cancel()
		wants(t, mon.AwaitReturned(ctx, nil), Unknown, "not known")
	})
}
