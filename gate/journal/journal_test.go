package journal

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func decided(id string) Entry {
	return Entry{At: epoch, Kind: KindDecision, Decision: &Decision{ID: id, Verdict: "admit", Reason: "ok"}}
}

func ended(id string) Entry {
	return Entry{At: epoch, Kind: KindOutcome, Outcome: &Outcome{ID: id, Ending: "whole"}}
}

func open(t *testing.T, o Options) *Journal {
	t.Helper()
	j, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func seqs(entries []Entry) (out []uint64) {
	for _, e := range entries {
		out = append(out, e.Seq)
	}
	return out
}

func TestReadGivesWhatIsLeftInOrder(t *testing.T) {
	j := open(t, Options{Ring: 4})
	if got, oldest, last := j.Read(0, 0); got != nil || oldest != 0 || last != 0 {
		t.Errorf("empty journal: %v %d %d", got, oldest, last)
	}
	for i := range 6 {
		if seq := j.Append(decided(strconv.Itoa(i))); seq != uint64(i+1) {
			t.Errorf("entry %d got number %d", i, seq)
		}
	}
	for _, tc := range []struct {
		after uint64
		limit int
		want  []uint64
	}{
		{0, 0, []uint64{3, 4, 5, 6}}, {0, 2, []uint64{3, 4}}, {4, 0, []uint64{5, 6}}, {5, 9, []uint64{6}}, {6, 0, nil},
		{7, 0, nil}, {math.MaxUint64, 0, nil}, {3, -1, []uint64{4, 5, 6}},
	} {
		got, oldest, last := j.Read(tc.after, tc.limit)
		if d := cmp.Diff(tc.want, seqs(got)); d != "" || oldest != 3 || last != 6 {
			t.Errorf("Read(%d, %d): oldest %d, last %d, %s", tc.after, tc.limit, oldest, last, d)
		}
	}
}

func TestFindFollowsTheRing(t *testing.T) {
	j := open(t, Options{Ring: 3})
	j.Append(decided("a"))
	j.Append(ended("a"))
	if d, o := j.Find("a"); d == nil || o == nil || d.Seq != 1 || o.Seq != 2 {
		t.Errorf("%v %v", d, o)
	}
	j.Append(decided("b"))
	j.Append(decided("c"))
	if d, o := j.Find("a"); d != nil || o == nil {
		t.Errorf("the decision has left the ring, the outcome has not: %v %v", d, o)
	}
	j.Append(Entry{Kind: KindEvent, Event: &Event{Name: "start"}})
	if d, o := j.Find("a"); d != nil || o != nil {
		t.Errorf("found what has left: %v %v", d, o)
	}
	if d, o := j.Find("b"); d == nil || o != nil {
		t.Errorf("%v %v", d, o)
	}
	if len(j.index) != 2 {
		t.Errorf("the index holds %d arrivals, two are in memory", len(j.index))
	}
}

func TestChangedWakesAReaderThatMissesNothing(t *testing.T) {
	j := open(t, Options{})
	const n = 500
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range n / 4 {
				j.Append(decided(fmt.Sprint(w, "-", i)))
			}
		})
	}
	var after uint64
	late := time.After(patience)
	for after < n {
		changed := j.Changed()
		entries, _, _ := j.Read(after, 7)
		for _, e := range entries {
			if e.Seq != after+1 {
				t.Fatalf("entry %d after %d", e.Seq, after)
			}
			after = e.Seq
		}
		if len(entries) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("no wake-up after entry %d", after)
		}
	}
	wg.Wait()
}

func TestBadOptionsAreErrors(t *testing.T) {
	for _, o := range []Options{{Ring: -1}, {MaxBytes: -1}, {KeepBytes: -1}, {Queue: -1}, {Dir: "/proc/no/such"}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

// The index never disagrees with the ring, whatever comes.
func TestIndexAgreesWithTheRing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	j := open(t, Options{Ring: 16})
	for range 2000 {
		id := strconv.Itoa(rng.IntN(12))
		if rng.IntN(2) == 0 {
			j.Append(decided(id))
		} else {
			j.Append(ended(id))
		}
		all, _, _ := j.Read(0, 0)
		want := map[string]place{}
		for _, e := range all {
			p := want[e.arrival()]
			if e.Decision != nil {
				p.decision = e.Seq
			} else {
				p.outcome = e.Seq
			}
			want[e.arrival()] = p
		}
		if d := cmp.Diff(want, j.index, cmp.AllowUnexported(place{})); d != "" {
			t.Fatal(d)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	j, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	e := decided("x")
	b.ReportAllocs()
	for b.Loop() {
		j.Append(e)
	}
}
