package main

import (
	"strings"
	"testing"
	"time"

	"admitd/supervisor"
)

func TestStatusSaysWhatIsWrongWhatComesNextAndWhatToDo(t *testing.T) {
	now := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		st   supervisor.Status
		want string
	}{
		"well": {supervisor.Status{State: supervisor.Ready, LastExit: &supervisor.Exit{Hint: "of long ago"}}, ""},
		"stalled": {supervisor.Status{State: supervisor.Stalled, Trouble: &supervisor.Trouble{Code: "no_progress", Since: now.Add(-time.Minute),
			ActAt: now.Add(20 * time.Second), Next: "the engine is restarted", Hint: "look at dmesg"}},
			"trouble\tno_progress for 1m0s; in 20s: the engine is restarted\nwhat to do\tlook at dmesg\n"},
		"wedged": {supervisor.Status{State: supervisor.Wedged, Trouble: &supervisor.Trouble{Code: "unkillable", Since: now, Next: "nothing more", Hint: "reboot"}},
			"trouble\tunkillable for 0s; nothing more\nwhat to do\treboot\n"},
		"failed": {supervisor.Status{State: supervisor.Failed, LastExit: &supervisor.Exit{Hint: "free memory"}}, "what to do\tfree memory\n"},
	} {
		var b strings.Builder
		printTrouble(&b, now, c.st)
		if b.String() != c.want {
			t.Errorf("%s: %q, want %q", name, b.String(), c.want)
		}
	}
}
