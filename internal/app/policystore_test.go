package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"admitd/gate/policy"
	"admitd/internal/strict"
	"admitd/signals"
	"admitd/ui"
	"admitd/ui/api"
)

// setter records the policies that the controller was given.
type setter struct {
	mu   sync.Mutex
	revs []string
}

// SetPolicy implements the store's view of the admission.
func (s *setter) SetPolicy(c *policy.Compiled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revs = append(s.revs, c.Rev)
}

type storeWorld struct {
	*policyStore
	set  *setter
	snap *signals.Snapshot
	now  time.Time
}

// newStoreWorld holds a store that runs queue-depth with max_waiting 0, before any scrape.
func newStoreWorld(t *testing.T) *storeWorld {
	t.Helper()
	w := &storeWorld{set: &setter{}, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w.policyStore = &policyStore{
		pool: "m", admission: w.set, snapshot: func() *signals.Snapshot { return w.snap }, journal: newJournal(t),
		lastGood: filepath.Join(t.TempDir(), "last-good.yaml"), clock: func() time.Time { return w.now }, logger: quiet(),
	}
	c := compiled(t, waitingText(0))
	w.install(&revision{compiled: c, info: api.PolicyInfo{Name: "queue-depth", Rev: c.Rev, Source: "start"}})
	return w
}

func waitingText(n int) string {
	return fmt.Sprintf("policy: queue-depth\nparams: {max_waiting: %d}\n", n)
}

func (w *storeWorld) apply(t *testing.T, n int) api.ReloadResult {
	t.Helper()
	res, err := w.Apply(t.Context(), []byte(waitingText(n)), "", "api", "")
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// wantRunning holds everything that must agree to a running policy.
func (w *storeWorld) wantRunning(t *testing.T, n int) {
	t.Helper()
	rev := compiled(t, waitingText(n)).Rev
	c, info := w.Current()
	file, err := os.ReadFile(w.lastGood)
	if err != nil {
		t.Error(err)
	}
	last := w.set.revs[len(w.set.revs)-1]
	if c.Rev != rev || info.Rev != rev || last != rev || w.History().Revisions[0].Rev != rev || string(file) != waitingText(n) {
		t.Errorf("want max_waiting %d (%s): running %s, info %s, controller %s, history %s, last good file %q",
			n, rev, c.Rev, info.Rev, last, w.History().Revisions[0].Rev, file)
	}
}

func TestApplySwapsEverythingTogether(t *testing.T) {
	w := newStoreWorld(t)
	w.wantRunning(t, 0)
	old, _ := w.Current()
	res, err := w.Apply(t.Context(), []byte(waitingText(5)), old.Rev, "api", "more room")
	if err != nil {
		t.Fatal(err)
	}
	w.wantRunning(t, 5)
	c, info := w.Current()
	want := api.ReloadResult{Changed: true, Rev: c.Rev, Diff: []string{"params.max_waiting: 0 -> 5"},
		Text: fmt.Sprintf("policy queue-depth@%s -> queue-depth@%s (api)", old.Rev, c.Rev)}
	if d := cmp.Diff(want, res); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(api.PolicyInfo{Name: "queue-depth", Rev: c.Rev, At: w.now, Source: "api", Note: "more room"}, info); d != "" {
		t.Error(d)
	}
	if n := countEvents(w.journal, "info policy_reload: "+want.Text); n != 1 {
		t.Errorf("%q", events(w.journal))
	}
}

func TestApplyRefusals(t *testing.T) {
	w := newStoreWorld(t)
	w.snap = scrape(signals.Waiting)
	var bad *strict.Error
	var needs *policy.NeedsError
	for _, c := range []struct {
		name, text, ifMatch string
		is                  func(error) bool
		event               bool
	}{
		{"another revision runs", waitingText(5), "000000000000", func(err error) bool { return errors.Is(err, ui.ErrPrecondition) }, false},
		{"a mistake", "policy: queue-depth\nparams: {max_wating: 1}\n", "", func(err error) bool { return errors.As(err, &bad) && bad.Places[0].Line == 2 }, true},
		{"a need", needsKV, "", func(err error) bool { return errors.As(err, &needs) && needs.Signal == signals.KVUsed }, true},
	} {
		before := len(events(w.journal))
		res, err := w.Apply(t.Context(), []byte(c.text), c.ifMatch, "api", "")
		if !c.is(err) || res.Changed {
			t.Errorf("%s: %v %+v", c.name, err, res)
		}
		if said := len(events(w.journal)) > before; said != c.event {
			t.Errorf("%s: events %q", c.name, events(w.journal))
		}
		w.wantRunning(t, 0)
		if len(w.set.revs) != 1 || len(w.History().Revisions) != 1 {
			t.Errorf("%s: something was changed", c.name)
		}
	}
	if n := countEvents(w.journal, "error policy_refused: policy from api refused, queue-depth@"); n != 2 {
		t.Errorf("%q", events(w.journal))
	}
}

func TestPolicyWithNeedsIsRefusedWhileMetricsCannotBeRead(t *testing.T) {
	w := newStoreWorld(t)
	w.snap = &signals.Snapshot{Seq: 3, Failures: 3, Err: "status 500"}
	var needs *policy.NeedsError
	if _, err := w.Apply(t.Context(), []byte(needsKV), "", "api", ""); !errors.As(err, &needs) || !strings.Contains(err.Error(), "kv_used") || !strings.Contains(err.Error(), "status 500") {
		t.Errorf("%v", err)
	}
	w.wantRunning(t, 0)
	if _, err := w.change("", []byte(waitingText(0)), "", "sighup", ""); err != nil {
		t.Errorf("the policy that runs: %v", err)
	}
	if _, err := w.Apply(t.Context(), []byte(needsNothing), "", "api", ""); err != nil {
		t.Errorf("a policy without needs: %v", err)
	}
}

func TestNeedsAreNotJudgedBeforeAScrape(t *testing.T) {
	w := newStoreWorld(t)
	for _, snap := range []*signals.Snapshot{nil, {}} {
		w.snap = snap
		if _, err := w.Compile([]byte(needsKV)); err != nil {
			t.Errorf("nothing was scraped, and yet: %v", err)
		}
	}
	w.snap = scrape(signals.Waiting)
	if _, err := w.Compile([]byte(needsKV)); err == nil {
		t.Error("the engine exports no KV use")
	}
}

func TestSameTextIsNoChange(t *testing.T) {
	w := newStoreWorld(t)
	res := w.apply(t, 0)
	c, _ := w.Current()
	if res.Changed || res.Rev != c.Rev || len(w.set.revs) != 1 || len(w.History().Revisions) != 1 || len(events(w.journal)) != 0 {
		t.Errorf("%+v, controller told %d times, %q", res, len(w.set.revs), events(w.journal))
	}
}

func TestRevertThereAndBack(t *testing.T) {
	w := newStoreWorld(t)
	if _, err := w.Revert(t.Context(), ""); !errors.Is(err, ui.ErrNoRevision) {
		t.Errorf("there is nothing to go back to, and yet: %v", err)
	}
	w.apply(t, 1)
	w.apply(t, 2)
	for _, want := range []int{1, 2, 1} {
		res, err := w.Revert(t.Context(), "")
		if err != nil || !res.Changed {
			t.Fatalf("%+v %v", res, err)
		}
		w.wantRunning(t, want)
	}
	_, info := w.Current()
	if info.Source != "revert" || info.Note != "back to "+info.Rev {
		t.Errorf("%+v", info)
	}
	first := compiled(t, waitingText(0)).Rev
	if _, err := w.Revert(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	w.wantRunning(t, 0)
	if res, err := w.Revert(t.Context(), first); err != nil || res.Changed || res.Rev != first {
		t.Errorf("revert to what runs already: %+v %v", res, err)
	}
	if _, err := w.Revert(t.Context(), "000000000000"); !errors.Is(err, ui.ErrNoRevision) {
		t.Errorf("revert to what never was: %v", err)
	}
}

func TestRevertIsCheckedAsAnyChange(t *testing.T) {
	w := newStoreWorld(t)
	if _, err := w.Apply(t.Context(), []byte(needsKV), "", "api", ""); err != nil {
		t.Fatal(err)
	}
	w.apply(t, 1)
	w.snap = scrape(signals.Waiting) // the engine that is here now exports no KV use
	var needs *policy.NeedsError
	if _, err := w.Revert(t.Context(), ""); !errors.As(err, &needs) {
		t.Errorf("%v", err)
	}
	w.wantRunning(t, 1)
}

func TestHistoryIsBounded(t *testing.T) {
	w := newStoreWorld(t)
	for n := 1; n <= 2*historyLen; n++ {
		w.apply(t, n)
	}
	h := w.History().Revisions
	if len(h) != historyLen || historyLen != 20 {
		t.Fatalf("%d revisions", len(h))
	}
	for i, r := range h {
		if r.Text != waitingText(2*historyLen-i) {
			t.Errorf("revision %d is %q", i, r.Text)
		}
	}
	if _, err := w.Revert(t.Context(), compiled(t, waitingText(1)).Rev); !errors.Is(err, ui.ErrNoRevision) {
		t.Errorf("a revision that has left the history: %v", err)
	}
}

func TestLastGoodFileIsReplacedWhole(t *testing.T) {
	w := newStoreWorld(t)
	open, err := os.Open(w.lastGood) // a reader that began before the change
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	w.apply(t, 7)
	var old [100]byte
	n, _ := open.Read(old[:])
	if string(old[:n]) != waitingText(0) {
		t.Errorf("it reads %q", old[:n])
	}
	st, err := os.Stat(w.lastGood)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	w.wantRunning(t, 7)
	left, err := os.ReadDir(filepath.Dir(w.lastGood))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestPolicyChangesAlthoughItsFileCannotBeWritten(t *testing.T) {
	w := newStoreWorld(t)
	w.lastGood = filepath.Join(t.TempDir(), "gone", "last-good.yaml")
	w.apply(t, 3)
	c, _ := w.Current()
	if c.Rev != compiled(t, waitingText(3)).Rev || w.set.revs[len(w.set.revs)-1] != c.Rev {
		t.Error("the change was lost")
	}
	err := writeFileAtomic(w.lastGood, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "write "+w.lastGood) {
		t.Errorf("%v", err)
	}
	// A target that cannot be replaced leaves nothing beside it.
	dir := t.TempDir()
	target := filepath.Join(dir, "full")
	if err := os.MkdirAll(filepath.Join(target, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeFileAtomic(target, []byte("x")); err == nil {
		t.Error("a folder was replaced")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestChangesAtOnceAreOrdered(t *testing.T) {
	w := newStoreWorld(t)
	base, _ := w.Current()
	var wg sync.WaitGroup
	won := make(chan int, 16)
	for n := 1; n <= cap(won); n++ {
		wg.Go(func() {
			_, err := w.Apply(t.Context(), []byte(waitingText(n)), base.Rev, "api", "")
			switch {
			case err == nil:
				won <- n
			case !errors.Is(err, ui.ErrPrecondition):
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d changes over the same revision", len(won))
	}
	w.wantRunning(t, <-won)
}
