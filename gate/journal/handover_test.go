package journal

import (
	"slices"
	"testing"
)

func onDisk(t *testing.T, dir string) (ids []string) {
	t.Helper()
	if _, err := ReadDir(dir, func(e Entry) error { ids = append(ids, string(e.Kind)+" "+e.arrival()); return nil }); err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestDivertedEntriesReachTheDiskOnlyWhenTheyComeBack(t *testing.T) {
	dir := t.TempDir()
	j, err := New(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	j.Append(decided("a"))
	var taken []Entry
	if last := j.Divert(func(e Entry) { taken = append(taken, e) }); last != 1 {
		t.Errorf("diverted after %d", last)
	}
	j.Append(ended("a"))
	j.Append(decided("b"))
	j.Divert(nil)
	j.Rewrite(taken[1:]) // the other side had acknowledged the first one
	j.Append(ended("b"))
	if d, o := j.Find("a"); d == nil || o == nil {
		t.Error("memory has lost what was diverted")
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if got, want := onDisk(t, dir), []string{"decision a", "decision b", "outcome b"}; !slices.Equal(got, want) {
		t.Errorf("on disk %v, want %v", got, want)
	}
}

func TestRecalledEntriesAreInMemoryOnceAndNotOnDisk(t *testing.T) {
	dir := t.TempDir()
	j, err := New(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	j.Append(decided("a"))
	changed := j.Changed()
	j.Recall([]Entry{decided("a"), ended("a"), decided("b")})
	select {
	case <-changed:
	default:
		t.Error("readers were not told")
	}
	entries, _, last := j.Read(0, 0)
	var ids []string
	for _, e := range entries {
		ids = append(ids, string(e.Kind)+" "+e.arrival())
	}
	if want := []string{"decision a", "outcome a", "decision b"}; !slices.Equal(ids, want) || last != 3 {
		t.Errorf("in memory %v, last %d, want %v", ids, last, want)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if got := onDisk(t, dir); !slices.Equal(got, []string{"decision a"}) {
		t.Errorf("on disk %v", got)
	}
}
