package app

import "strconv"

// queueLimit is how many requests the engine's own queue limit bears at once, running ones included; 0 for no limit. One is
// left for admitd's own probes. vLLM counts those that run, SGLang only those that wait.
func queueLimit(args []string, slots int) int {
	if n := argument(args, "--max-num-queued-reqs"); n > 0 {
		return max(1, n-1)
	}
	if n := argument(args, "--max-queued-requests"); n > 0 && slots > 0 {
		return max(1, slots+n-1)
	}
	return 0
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
