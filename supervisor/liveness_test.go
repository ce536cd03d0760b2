package supervisor

import (
	"errors"
	"testing"
	"time"
)

// step is one observation of a liveness script.
type step struct {
	at      int // seconds
	health  error
	probed  bool
	running int
	tokens  float64
	known   bool
	want    bool
}

func TestLiveness(t *testing.T) {
	bad := errors.New("/health answers 503")
	tests := []struct {
		name  string
		steps []step
	}{
		{"work moves", []step{{at: 0, running: 3, tokens: 1, known: true}, {at: 59, running: 3, tokens: 2, known: true}, {at: 118, running: 3, tokens: 3, known: true}}},
		{"work stands still", []step{{at: 0, running: 1, tokens: 5, known: true}, {at: 59, running: 1, tokens: 5, known: true}, {at: 60, running: 1, tokens: 5, known: true, want: true}}},
		{"idle stands still", []step{{at: 0, tokens: 5, known: true}, {at: 1000, tokens: 5, known: true}}},
		{"the clock begins with the work", []step{{at: 0, tokens: 5, known: true}, {at: 100, running: 1, tokens: 5, known: true}, {at: 160, running: 1, tokens: 5, known: true, want: true}}},
		{"unknown is not standing still", []step{{at: 0, running: 1, tokens: 5, known: true}, {at: 50}, {at: 70, running: 1, tokens: 5, known: true}, {at: 130, running: 1, tokens: 5, known: true, want: true}}},
		{"health fails while tokens come", []step{
			{at: 0, running: 1, tokens: 1, known: true}, {at: 5, probed: true, health: bad, running: 1, tokens: 2, known: true},
			{at: 10, probed: true, health: bad, running: 1, tokens: 3, known: true}, {at: 15, probed: true, health: bad, running: 1, tokens: 4, known: true},
			{at: 20, probed: true, health: bad, running: 1, tokens: 5, known: true}}},
		{"health fails and nothing moves", []step{
			{at: 5, probed: true, health: bad}, {at: 10, probed: true, health: bad}, {at: 15, probed: true, health: bad, want: true}}},
		{"one good answer starts the count again", []step{
			{at: 5, probed: true, health: bad}, {at: 10, probed: true, health: bad}, {at: 15, probed: true}, {at: 20, probed: true, health: bad}, {at: 25, probed: true, health: bad}}},
		{"tokens before the failures do not excuse them", []step{
			{at: 0, tokens: 1, known: true}, {at: 1, tokens: 2, known: true},
			{at: 5, probed: true, health: bad, tokens: 2, known: true}, {at: 10, probed: true, health: bad, tokens: 2, known: true},
			{at: 15, probed: true, health: bad, tokens: 2, known: true, want: true}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &liveness{failures: 3, stallAfter: time.Minute}
			for i, s := range tt.steps {
				now := time.Unix(int64(s.at), 0)
				if s.probed {
					l.healthy(now, s.health)
				}
				l.progress(now, s.running, s.tokens, s.known)
				if why, got := l.stalled(now); got != s.want || got == (why == "") {
					t.Errorf("step %d: stalled = %v (%q); want %v", i, got, why, s.want)
				}
			}
		})
	}
}

func TestLivenessNeedsATokenToRecover(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	stalled := func() *liveness {
		l := &liveness{failures: 3, stallAfter: time.Minute}
		l.progress(at(0), 1, 5, true)
		l.progress(at(60), 1, 5, true)
		if _, yes := l.stalled(at(60)); !yes {
			t.Fatal("not stalled")
		}
		l.declare()
		return l
	}
	l := stalled()
	if l.askToken() {
		t.Error("a token is asked for although requests are in hand that would show one")
	}
	// The callers left: nothing is in hand any more, which proves nothing.
	l.progress(at(61), 0, 5, true)
	if _, yes := l.stalled(at(61)); !yes || !l.askToken() {
		t.Error("an empty engine was believed to work again without a token")
	}
	l.proved(at(62))
	if why, yes := l.stalled(at(62)); yes {
		t.Errorf("still stalled after a token: %s", why)
	}
	l = stalled()
	l.progress(at(61), 1, 6, true)
	if why, yes := l.stalled(at(61)); yes {
		t.Errorf("still stalled although the work goes on: %s", why)
	}
}
