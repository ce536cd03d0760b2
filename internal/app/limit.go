package app

import (
	"strconv"

	"admitd/gate/admission"
)

// queueLimit is what the engine's own queue limit bears. One place is left for admitd's own probes. vLLM counts those that run,
// SGLang only those that wait.
func queueLimit(args []string, slots int) (l admission.QueueLimit) {
	if n := argument(args, "--max-num-queued-reqs"); n > 0 {
		l.AtEngine = max(1, n-1)
		return l
	}
	if n := argument(args, "--max-queued-requests"); n > 0 {
		l.Waiting = max(1, n-1)
		if slots > 0 {
			l.AtEngine = slots + l.Waiting
		}
	}
	return l
}

// mostQueued is where a queue limit counts as none: no engine has so many requests.
const mostQueued = 1 << 30

// argument is the last value that arguments give to a numeric option, up to mostQueued, 0 when they give none that is a
// number.
func argument(args []string, name string) int {
	text, _ := argOf(args, name)
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return min(n, mostQueued)
}
