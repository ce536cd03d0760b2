package supervisor

import (
	"context"
	"errors"
	"time"
)

// MemoryError says that GPU memory is not there: before a launch, less than the engine needs; after an end, less than before it.
// It is what the memory hooks return; any other error of theirs is treated alike, without the hint.
type MemoryError struct {
	// Text says which GPU, how much, and who holds it.
	Text string
	// Hint says what a person can do.
	Hint string
}

// Error implements error.
func (e *MemoryError) Error() string { return e.Text }

// memoryHint is what to do about memory that nobody gives back.
const memoryHint = "a reset of the GPU (nvidia-smi --gpu-reset) or a reboot of the machine gives it back"

// beforeLaunch waits until the engine's memory is free. Its failure is a failed launch.
func (s *Supervisor) beforeLaunch(ctx context.Context) error {
	if s.o.BeforeLaunch == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.FreeTimeout)
	defer cancel()
	since := s.now()
	err := s.o.BeforeLaunch(ctx, func(text string) {
		s.update(func(st *Status) {
			st.Text = "waiting for GPU memory: " + text
			st.Trouble = &Trouble{
				Code: MemoryShort, Since: since, ActAt: since.Add(s.o.FreeTimeout),
				Next: "the launch counts as failed and is tried again after a pause, within the restart budget",
				Hint: "end the processes named, or lower the engine's share of the memory (--gpu-memory-utilization, --mem-fraction-static)",
			}
		})
	})
	if err == nil {
		s.update(func(st *Status) { st.Text, st.Trouble = "launching the engine", nil })
		return nil
	}
	le := &LaunchError{Err: err}
	if m, ok := errors.AsType[*MemoryError](err); ok {
		le.Hint = m.Hint
	}
	return le
}

// afterStop waits until the memory of an engine that has gone is free again. What it returns is a wedge.
func (s *Supervisor) afterStop() error {
	if s.o.AfterStop == nil || s.hurrying() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.o.ReturnTimeout)
	defer cancel()
	defer background(ctx, func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-s.hurry:
			cancel()
		}
	})()
	since := s.now()
	err := s.o.AfterStop(ctx, func(text string) {
		s.update(func(st *Status) {
			st.Text = "the engine has gone; waiting for its GPU memory to come back: " + text
			st.Trouble = &Trouble{Code: MemoryHeld, Since: since, ActAt: since.Add(s.o.ReturnTimeout),
				Next: "the GPU counts as wedged and nothing is launched on it", Hint: memoryHint}
		})
	})
	s.update(func(st *Status) {
		if codeOf(st.Trouble) == MemoryHeld {
			st.Trouble = nil
		}
	})
	if err == nil || s.hurrying() {
		return nil
	}
	return &wedge{memory: err, again: s.o.AfterStop}
}

// memoryLook bounds one look at the memory of an engine that has gone, while the GPU counts as wedged.
const memoryLook = 2 * time.Second
