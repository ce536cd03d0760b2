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
	asked   bool
	running int
	tokens  float64
	known   bool
	want    bool
}

// TestLostProcessIsAReasonToAskForAToken: at once and until one came, but not while the engine works.
func TestLostProcessIsAReasonToAskForAToken(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	l := &liveness{failures: 3, stallAfter: time.Minute, provenAt: at(0)}
	l.progress(at(0), 0, 5, true)
	if l.canaryDue(at(1), 0) {
		t.Error("asked for nothing")
	}
	l.bereaved(at(10))
	// What came out before the loss may be counted after it.
	l.progress(at(11), 0, 6, true)
	if !l.canaryDue(at(11), 0) {
		t.Error("not asked although a process has gone")
	}
	l.progress(at(12), 1, 6, true)
	if l.canaryDue(at(12), 0) {
		t.Error("asked while there is work, whose own tokens tell")
	}
	l.progress(at(20), 0, 7, true)
	if l.canaryDue(at(20), 0) {
		t.Error("asked although tokens come out")
	}
	l.bereaved(at(30))
	l.proved(at(31))
	if l.canaryDue(at(31), 0) {
		t.Error("asked although a token came")
	}
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
		{"tokens that were not known to stand still did", []step{{at: 0, running: 1, tokens: 5, known: true}, {at: 50, running: 1}, {at: 65, running: 1}, {at: 70, running: 1, tokens: 5, known: true, want: true}}},
		{"tokens that grew unseen", []step{{at: 0, running: 1, tokens: 5, known: true}, {at: 50, running: 1}, {at: 70, running: 1, tokens: 6, known: true}, {at: 129, running: 1, tokens: 6, known: true}, {at: 130, running: 1, tokens: 6, known: true, want: true}}},
		{"a smaller count is another engine's", []step{{at: 0, running: 1, tokens: 5, known: true}, {at: 59, running: 1, tokens: 2, known: true}, {at: 118, running: 1, tokens: 2, known: true}, {at: 119, running: 1, tokens: 2, known: true, want: true}}},
		{"work, no counters, no answer", []step{{at: 0, running: 1, tokens: 5, known: true}, {at: 40, running: 1, asked: true}, {at: 59, running: 1}, {at: 60, running: 1, want: true}}},
		{"work, no counters, but health answers", []step{{at: 0, running: 1}, {at: 40, running: 1, asked: true}, {at: 41, probed: true, running: 1}, {at: 100, running: 1, asked: true}, {at: 102, running: 1}, {at: 103, running: 1, want: true}}},
		{"work, no counters, and nobody asked", []step{{at: 0, running: 1}, {at: 1000, running: 1}}},
		{"no work, no counters, no answer", []step{{at: 0}, {at: 40, asked: true}, {at: 1000}}},
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
				if s.asked {
					l.asked(now)
				}
				if s.probed {
					l.healthy(now, s.health)
				}
				l.progress(now, s.running, s.tokens, s.known)
				if f, got := l.stalled(now); got != s.want || got == (f.why == "") {
					t.Errorf("step %d: stalled = %v (%+v); want %v", i, got, f, s.want)
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
	if f, yes := l.stalled(at(62)); yes {
		t.Errorf("still stalled after a token: %s", f.why)
	}
	l = stalled()
	l.progress(at(61), 1, 6, true)
	if f, yes := l.stalled(at(61)); yes {
		t.Errorf("still stalled although the work goes on: %s", f.why)
	}
}

func TestEngineThatAnswersAgainGetsTimeForAToken(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	l := &liveness{failures: 3, stallAfter: 5 * time.Second}
	l.progress(at(0), 1, 5, true)
	l.asked(at(2))
	l.progress(at(5), 1, 0, false)
	if _, yes := l.stalled(at(5)); !yes {
		t.Fatal("not stalled")
	}
	l.declare()
	if !l.overdue(at(10), at(5), 5*time.Second) || !l.looked(at(10), 3*time.Second) {
		t.Error("a silent engine is not restarted at the deadline")
	}
	l.healthy(at(9), nil)
	if l.overdue(at(13), at(5), 5*time.Second) {
		t.Error("restarted 4 s after it answered again")
	}
	if !l.overdue(at(14), at(5), 5*time.Second) {
		t.Error("not restarted although it brought out no token in 5 s")
	}
	if l.looked(at(14), 3*time.Second) {
		t.Error("a result of 5 s ago was taken for a fresh look")
	}
	l.asked(at(14))
	l.healthy(at(15), nil)
	if !l.overdue(at(15), at(5), 5*time.Second) || !l.looked(at(15), 3*time.Second) {
		t.Error("a second answer put the restart off again, or is no fresh look")
	}
}
