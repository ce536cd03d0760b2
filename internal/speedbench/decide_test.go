package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDecideTimesAreFoundWhereverTheyStand(t *testing.T) {
	body := `{"items":[{"decide_us":12,"x":1},{"decide_us": 7},{"decide_us":"no"},{"decide_us":1305}]`
	want := []time.Duration{12 * time.Microsecond, 7 * time.Microsecond, 1305 * time.Microsecond}
	if d := cmp.Diff(want, decideTimes([]byte(body))); d != "" {
		t.Error(d)
	}
}
