package app

import "testing"

func TestACrowdThatHasLeftIsNoticedOnce(t *testing.T) {
	var c crowds
	for i, step := range []struct {
		now  int
		want bool
	}{{0, false}, {crowd - 1, false}, {0, false}, {4 * crowd, false}, {2 * crowd, false}, {crowd, true}, {0, true}, {0, false}, {crowd, false}, {10, true}, {10, false}} {
		if got := c.left(step.now); got != step.want {
			t.Errorf("step %d, %d now: %t", i, step.now, got)
		}
	}
}

func TestMemoryIsCollectedLateOnlyWhileLittleIsInUse(t *testing.T) {
	for _, tt := range []struct {
		used uint64
		want int
	}{{0, 400}, {8 << 20, 400}, {32 << 20, 200}, {64 << 20, 100}, {128 << 20, 50}, {1 << 40, 50}} {
		if got := collectAt(tt.used); got != tt.want {
			t.Errorf("with %d bytes in use: %d %%, want %d", tt.used, got, tt.want)
		}
	}
}
