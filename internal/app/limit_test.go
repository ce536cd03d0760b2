package app

import (
	"strings"
	"testing"
)

func TestQueueLimitIsReadFromTheEnginesArguments(t *testing.T) {
	for _, tc := range []struct {
		args  string
		slots int
		// What may be at the engine, and of that what it has not begun.
		want, waiting int
	}{
		{"", 4, 0, 0},
		{"--max-num-queued-reqs 8", 4, 7, 0},
		{"--max-num-queued-reqs=8", 0, 7, 0},
		{"--max-num-queued-reqs 8 --max-num-queued-reqs 3", 4, 2, 0},
		{"--max-num-queued-reqs 1", 4, 1, 0},
		{"--max-num-queued-reqs", 4, 0, 0},
		{"--max-num-queued-reqs many", 4, 0, 0},
		{"--max-num-queued-reqs-x=8", 4, 0, 0},
		{"--max_num_queued_reqs 8", 4, 7, 0},
		{"--max_queued_requests=8", 4, 11, 7},
		{"--max-queued-requests 8", 4, 11, 7},
		{"--max-queued-requests 1", 4, 5, 1},
		{"--max-queued-requests 9223372036854775807", 4, mostQueued + 3, mostQueued - 1},
		{"--max-queued-requests 8", 0, 0, 7},
	} {
		if got := queueLimit(strings.Fields(tc.args), tc.slots); got.AtEngine != tc.want || got.Waiting != tc.waiting {
			t.Errorf("%q with %d slots: %+v, want %d, waiting %d", tc.args, tc.slots, got, tc.want, tc.waiting)
		}
	}
}
