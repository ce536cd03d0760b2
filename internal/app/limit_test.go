package app

import (
	"strings"
	"testing"
)

func TestQueueLimitIsReadFromTheEnginesArguments(t *testing.T) {
	for _, tc := range []struct {
		args  string
		slots int
		want  int
	}{
		{"", 4, 0},
		{"--max-num-queued-reqs 8", 4, 7},
		{"--max-num-queued-reqs=8", 0, 7},
		{"--max-num-queued-reqs 8 --max-num-queued-reqs 3", 4, 2},
		{"--max-num-queued-reqs 1", 4, 1},
		{"--max-num-queued-reqs", 4, 0},
		{"--max-num-queued-reqs many", 4, 0},
		{"--max-num-queued-reqs-x=8", 4, 0},
		{"--max_num_queued_reqs 8", 4, 7},
		{"--max_queued_requests=8", 4, 11},
		{"--max-queued-requests 8", 4, 11},
		{"--max-queued-requests 9223372036854775807", 4, mostQueued + 3},
		{"--max-queued-requests 8", 0, 0},
	} {
		if got := queueLimit(strings.Fields(tc.args), tc.slots); got != tc.want {
			t.Errorf("%q with %d slots: %d, want %d", tc.args, tc.slots, got, tc.want)
		}
	}
}
