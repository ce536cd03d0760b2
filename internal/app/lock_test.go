package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"admitd/supervisor"
)

func TestSecondAdmitdTouchesNothingInTheFolderOfTheFirst(t *testing.T) {
	for _, key := range []string{"state_dir", "journal.dir"} {
		c := testConfig(t)
		dir := c.StateDir
		if key == "journal.dir" {
			dir = t.TempDir()
			c.Journal.Dir = dir
		}
		unlock, err := supervisor.Lock(dir)
		if err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadDir(dir)
		err = Run(t.Context(), Options{Config: c, Logger: quiet()})
		if !errors.Is(err, supervisor.ErrStateDirBusy) || !strings.HasPrefix(err.Error(), key+": ") || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", key, err)
		}
		if after, _ := os.ReadDir(dir); len(after) != len(before) {
			t.Errorf("%s: the folder of another admitd now holds %v", key, after)
		}
		unlock()
	}
}

func TestRecordInTheStateFolderIsNoConflict(t *testing.T) {
	c := testConfig(t)
	c.Journal.Dir = "."
	l, err := Options{Config: c}.lock(c.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	l.release()
}

func TestStartsAtOnceShareOneToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "admin.token")
	var wg sync.WaitGroup
	tokens := make([]string, 16)
	for i := range tokens {
		wg.Go(func() {
			var err error
			if tokens[i], err = ensureToken(file); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	kept, err := ReadToken(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range tokens {
		if got != kept {
			t.Errorf("one start has %q, the file %q", got, kept)
		}
	}
	left, _ := os.ReadDir(filepath.Dir(file))
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 || len(left) != 1 {
		t.Errorf("%v, %v, left %v", st.Mode(), err, left)
	}
}

func TestPartThatNeverEndsDoesNotHoldTheStopForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		stuck := make(chan struct{})
		wg.Go(func() { <-stuck })
		began := time.Now()
		if waited(&wg, partsEndWithin) || time.Since(began) != partsEndWithin {
			t.Errorf("gave up after %s", time.Since(began))
		}
		close(stuck)
		if !waited(&wg, partsEndWithin) {
			t.Error("it has ended")
		}
	})
}
