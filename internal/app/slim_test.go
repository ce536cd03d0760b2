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
