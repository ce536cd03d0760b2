package app

import (
	"strconv"
	"strings"
)

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

// argument is the last value that arguments give to a numeric option, 0 when they give none.
func argument(args []string, name string) (value int) {
	for i, arg := range args {
		text, found := strings.CutPrefix(arg, name+"=")
		if arg == name && i+1 < len(args) {
			text, found = args[i+1], true
		}
		if !found {
			continue
		}
		if n, err := strconv.Atoi(text); err == nil {
			value = n
		}
	}
	return value
}
