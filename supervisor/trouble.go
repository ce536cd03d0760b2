package supervisor

import "time"

// TroubleCode names what is wrong with an engine, within its State. docs/serving.md says what each one means and what to do.
type TroubleCode string

// Troubles. The first six come with Stalled, the memory ones with Starting and Wedged, Unkillable with the end of an engine
// and with Wedged.
const (
	// NoProgress: work is in hand, the engine's counters can be read, and none moves.
	NoProgress TroubleCode = "no_progress"
	// Mute: work is in hand, and neither metrics nor health answer.
	Mute TroubleCode = "mute"
	// Hollow: /health answers and nothing behind it does.
	Hollow TroubleCode = "hollow"
	// Frozen: nothing is in hand, everything cheap answers, and the engine brings out no token.
	Frozen TroubleCode = "frozen"
	// Unhealthy: health probes fail in a row and no token comes out.
	Unhealthy TroubleCode = "unhealthy"
	// CoreDead: the engine says itself that it is dead, and its health agrees.
	CoreDead TroubleCode = "core_dead"
	// MemoryShort: the launch waits because less GPU memory is free than the engine will take, or it is still moving.
	MemoryShort TroubleCode = "gpu_memory_short"
	// MemoryHeld: the engine is gone and the GPU has not given its memory back.
	MemoryHeld TroubleCode = "gpu_memory_held"
	// Unkillable: processes of the engine were killed and are still there.
	Unkillable TroubleCode = "unkillable"
)

// Troubles lists every code. The caller may keep the slice.
func Troubles() []TroubleCode {
	return []TroubleCode{NoProgress, Mute, Hollow, Frozen, Unhealthy, CoreDead, MemoryShort, MemoryHeld, Unkillable}
}

// Trouble is a sub-state: what is wrong, what happens next and when. It never outlives the State that it came with.
type Trouble struct {
	Code  TroubleCode `json:"code"`
	Since time.Time   `json:"since"`
	// ActAt is when Next happens if nothing changes; zero when nothing more will happen by itself.
	ActAt time.Time `json:"act_at"`
	// Next says what admitd does then, or that it does nothing.
	Next string `json:"next"`
	// Hint says what a person can do.
	Hint string `json:"hint"`
}

// finding is why an engine counts as stalled.
type finding struct {
	code TroubleCode
	why  string
}

// deadGrace is how long an engine that reports its own death may take to prove the contrary: it most likely ends by itself
// before.
const deadGrace = 15 * time.Second

// patience is how long a stall of one kind may last before the engine is restarted.
func (s *Supervisor) patience(code TroubleCode) time.Duration {
	if code == CoreDead {
		return min(s.o.StallRestartAfter, deadGrace)
	}
	return s.o.StallRestartAfter
}

// stallTrouble describes a stall that begins at now.
func (s *Supervisor) stallTrouble(code TroubleCode, now time.Time) *Trouble {
	t := &Trouble{Code: code, Since: now, Hint: stallHint(code)}
	if s.o.Kind == External {
		t.Next = "the gate stays closed until the engine brings out a token; it is not admitd's to restart"
		return t
	}
	t.ActAt = now.Add(s.patience(code))
	t.Next = "the engine is restarted: asked to end, killed with all its processes if it does not"
	return t
}

// stallHint says what a person can do about a stall.
func stallHint(code TroubleCode) string {
	switch code {
	case NoProgress:
		return "look at the engine's log and at the GPU (Xid lines in dmesg); a prompt that does not fit into the KV cache can block vLLM's queue for ever"
	case Mute:
		return "the engine's server process is blocked or stopped: look at its state in ps and at the machine's memory"
	case Hollow, Frozen:
		return "the engine's server answers but its core does not: look for the core's last lines in the engine's log and at its state in ps"
	case CoreDead:
		return "look for the first traceback in the engine's log"
	}
	return "look at the engine's log"
}
