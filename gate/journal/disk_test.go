package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"admitd/gate/policy"
)

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func readAll(t *testing.T, dir string) (ids []string, notices []Notice) {
	t.Helper()
	notices, err := ReadDir(dir, func(e Entry) error {
		ids = append(ids, e.arrival())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids, notices
}

func TestWhatIsAppendedIsReadBackInOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	for life := range 3 {
		j := open(t, Options{Dir: dir, MaxBytes: 2000, KeepBytes: 1 << 20})
		for i := range 30 {
			j.Append(decided(fmt.Sprintf("%d-%02d", life, i)))
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if s := j.Stats(); s.Written != 30 || s.Dropped != 0 || s.Queued != 0 {
			t.Errorf("stats %+v", s)
		}
		j.Append(decided("after the end"))
	}
	ids, notices := readAll(t, dir)
	if len(ids) != 90 || len(notices) != 0 || ids[0] != "0-00" || ids[89] != "2-29" {
		t.Errorf("%d entries, %v, notices %v", len(ids), ids, notices)
	}
	files, err := Files(dir)
	if err != nil || len(files) < 6 {
		t.Errorf("%d files: the size limit did not turn them: %v", len(files), err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 2000 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %d bytes, mode %s", f, info.Size(), info.Mode())
		}
	}
}

func TestOldFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Each entry fills a file; five of them are kept beside the one being written.
	line := lineBytes(t, decided("10"))
	j := open(t, Options{Dir: dir, MaxBytes: line, KeepBytes: 6 * line})
	for i := range 20 {
		j.Append(decided(strconv.Itoa(10 + i)))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	ids, _ := readAll(t, dir)
	if strings.Join(ids, " ") != "24 25 26 27 28 29" {
		t.Errorf("kept %v", ids)
	}
	if _, err := os.Stat(filepath.Join(dir, "notes.txt")); err != nil {
		t.Errorf("a file that is not ours was removed: %v", err)
	}
}

// lineBytes is the size of an entry on disk.
func lineBytes(t *testing.T, e Entry) int64 {
	t.Helper()
	e.Seq, e.At = 10, time.Date(2026, 1, 1, 0, 0, 0, 123456789, time.UTC)
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(b)) + 1
}

// Many starts that come to nothing must not push the record out.
func TestShortLivesDoNotPushOutTheRecord(t *testing.T) {
	dir := t.TempDir()
	for life := range 40 {
		j := open(t, Options{Dir: dir, MaxBytes: 1 << 20})
		if life == 0 {
			j.Append(decided("the record"))
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if ids, _ := readAll(t, dir); len(ids) != 1 || ids[0] != "the record" {
		t.Errorf("read back %v", ids)
	}
}

// A full disk: every write fails. No file after file is made, and nothing old is removed.
func TestFullDiskRemovesNothingAndIsTriedOnceASecond(t *testing.T) {
	dir := t.TempDir()
	old := open(t, Options{Dir: dir, MaxBytes: 2000})
	for i := range 30 {
		old.Append(decided(strconv.Itoa(i)))
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	d := newDisk(Options{Dir: dir, MaxBytes: 2000, Logger: slog.New(slog.DiscardHandler)})
	d.number = 100
	now := time.Unix(0, 0)
	d.now = func() time.Time { return now }
	opened := 0
	d.open = func(path string) (io.WriteCloser, error) {
		opened++
		f, err := openFile(path)
		if err != nil {
			return nil, err
		}
		return full{f}, nil
	}
	for range 500 {
		d.write(decided("lost"))
		d.flush()
	}
	if opened != 1 || d.dropped.Load() != 500 {
		t.Errorf("%d files opened within one instant, %d dropped", opened, d.dropped.Load())
	}
	now = now.Add(2 * retryAfter)
	d.write(decided("lost"))
	d.flush()
	if opened != 2 {
		t.Errorf("not tried again: %d", opened)
	}
	if ids, _ := readAll(t, dir); len(ids) != 30 {
		t.Errorf("%d of 30 old entries are left", len(ids))
	}
	files, _ := Files(dir)
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() == 0 {
			t.Errorf("%s was left empty: %v", f, err)
		}
	}
}

// full is a file on a full disk.
type full struct{ io.WriteCloser }

func (f full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// stuck is a disk that takes nothing until it is let go, and then fails as told.
type stuck struct {
	in, free chan struct{}
	fail     error
	once     sync.Once
}

func (s *stuck) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.in) })
	<-s.free
	if s.fail != nil {
		return 0, s.fail
	}
	return len(p), nil
}

func (s *stuck) Close() error { return nil }

// on starts a journal whose files are what next returns.
func on(t *testing.T, o Options, next func() io.WriteCloser) *Journal {
	t.Helper()
	o.Ring = 100
	o.Dir = t.TempDir()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d := newDisk(o)
	d.open = func(string) (io.WriteCloser, error) { return next(), nil }
	looks := 0
	d.now = func() time.Time { // long enough between two looks that a failed disk is tried again each time
		looks++
		return time.Unix(0, 0).Add(time.Duration(looks) * 2 * retryAfter)
	}
	go d.run()
	return &Journal{ring: make([]Entry, o.Ring), index: map[string]place{}, changed: make(chan struct{}), disk: d}
}

func TestAppendNeverWaitsForTheDisk(t *testing.T) {
	s := &stuck{in: make(chan struct{}), free: make(chan struct{})}
	log := &logBuffer{}
	j := on(t, Options{Queue: 8, Logger: log.logger()}, func() io.WriteCloser { return s })
	j.Append(decided("first"))
	<-s.in
	for i := range 50 {
		j.Append(decided(strconv.Itoa(i)))
	}
	if got, _, last := j.Read(0, 0); last != 51 || len(got) != 51 {
		t.Errorf("memory has %d of 51", len(got))
	}
	if s := j.Stats(); s.Dropped != 50-8 || s.Queued != 8 {
		t.Errorf("stats %+v", s)
	}
	close(s.free)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if st := j.Stats(); st.Written != 9 || st.Written+st.Dropped != 51 {
		t.Errorf("stats %+v", st)
	}
	if n := strings.Count(log.String(), "did not reach the disk"); n != 1 {
		t.Errorf("drops were said %d times: %s", n, log)
	}
}

// taken waits until the writer has dealt with n entries.
func taken(t *testing.T, j *Journal, n uint64) {
	t.Helper()
	late := time.After(patience)
	for s := j.Stats(); s.Written+s.Dropped < n; s = j.Stats() {
		select {
		case <-late:
			t.Fatalf("stats %+v after %s", s, patience)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestAFullDiskIsSaidOnceAndWrittenAgainLater(t *testing.T) {
	bad := &stuck{in: make(chan struct{}), free: make(chan struct{}), fail: errors.New("no space left")}
	close(bad.free)
	good := &stuck{in: make(chan struct{}), free: make(chan struct{})}
	close(good.free)
	log := &logBuffer{}
	opened := 0
	j := on(t, Options{Logger: log.logger()}, func() io.WriteCloser {
		opened++
		if opened <= 3 {
			return bad
		}
		return good
	})
	for i := range 40 {
		j.Append(decided(strconv.Itoa(i)))
		taken(t, j, uint64(i+1))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	text := log.String()
	if strings.Count(text, "cannot be written") != 1 || strings.Count(text, "written again") != 1 {
		t.Errorf("log: %s", text)
	}
	if s := j.Stats(); s.Dropped != 3 || s.Written != 37 {
		t.Errorf("stats %+v", s)
	}
}

func TestAValueThatJSONCannotSayCostsOneEntry(t *testing.T) {
	dir := t.TempDir()
	j := open(t, Options{Dir: dir})
	e := decided("bad")
	e.Decision.Trace = []policy.Step{{Limit: math.Inf(1)}}
	j.Append(decided("a"))
	j.Append(e)
	j.Append(decided("b"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	ids, _ := readAll(t, dir)
	if strings.Join(ids, " ") != "a b" || j.Stats().Dropped != 1 {
		t.Errorf("%v, stats %+v", ids, j.Stats())
	}
}
