package gate

import (
	"fmt"
	"math"
	"time"

	"admitd/gate/reason"
	"admitd/supervisor"
)

const (
	// unknownWait is told when nothing has been measured yet.
	unknownWait = 10 * time.Second
	// stalledWait is told while a stalled engine is being watched.
	stalledWait = 15 * time.Second
	// longWait is told when only people can help.
	longWait = 60 * time.Second
)

// engineRefusal says what an engine that is not ready is doing and when to come back.
func engineRefusal(st supervisor.Status, now time.Time) *refusal {
	switch st.State {
	case supervisor.Starting, supervisor.Loading:
		return loading(st)
	case supervisor.Stalled:
		return &refusal{code: reason.EngineStalled, retryAfter: stalledWait,
			message: "The engine holds work but makes no progress; admitd is watching it. Try again in a moment."}
	case supervisor.Draining:
		return &refusal{code: reason.Draining, retryAfter: expected(st)}
	case supervisor.Wedged:
		return &refusal{code: reason.EngineDown, retryAfter: longWait,
			message: "The engine's processes cannot be ended and hold the GPU; an operator must help."}
	case supervisor.Failed:
		return failed(st, now)
	case supervisor.Stopped, supervisor.Ready:
	}
	return &refusal{code: reason.EngineDown, retryAfter: expected(st),
		message: "The engine is stopped; try again when an operator has started it."}
}

func loading(st supervisor.Status) *refusal {
	phase := st.Phase
	if phase == "" {
		phase = string(st.State)
	}
	text := fmt.Sprintf("The engine is loading its model (phase: %s)", phase)
	if st.ExpectedReadyIn > 0 {
		text += fmt.Sprintf("; past starts say about %.0f s more", math.Ceil(st.ExpectedReadyIn.Seconds()))
	}
	return &refusal{code: reason.EngineLoading, retryAfter: expected(st), message: text + ". Try again at the time stated in Retry-After."}
}

func failed(st supervisor.Status, now time.Time) *refusal {
	if st.GaveUp || st.RestartAt.IsZero() {
		return &refusal{code: reason.EngineDown, retryAfter: longWait,
			message: "The engine has failed and is not being restarted; an operator must help."}
	}
	in := max(st.RestartAt.Sub(now), 0) + expected(st)
	return &refusal{code: reason.EngineDown, retryAfter: in,
		message: fmt.Sprintf("The engine has failed and is being restarted; try again in about %.0f s.", math.Ceil(in.Seconds()))}
}

func expected(st supervisor.Status) time.Duration {
	if st.ExpectedReadyIn > 0 {
		return st.ExpectedReadyIn
	}
	return unknownWait
}
