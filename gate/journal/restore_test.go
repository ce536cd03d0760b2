package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// crashed leaves a folder as a killed admitd does: one request ended, one open, one refused, and half a line.
func crashed(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	j := open(t, Options{Dir: dir})
	j.Append(decided("whole"))
	j.Append(decided("open"))
	refused := decided("refused")
	refused.Decision.Verdict = "defer"
	j.Append(refused)
	j.Append(ended("whole"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(files[len(files)-1], os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"seq":5,"at":"2026-01-`); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAfterACrashTheRecordGoesOnAndOpenRequestsGetTheirEnding(t *testing.T) {
	dir := crashed(t)
	log := &logBuffer{}
	j := open(t, Options{Dir: dir, Restore: true, CloseOpen: true, Logger: log.logger()})
	entries, oldest, last := j.Read(0, 0)
	if got := seqs(entries); !slices.Equal(got, []uint64{1, 2, 3, 4, 5}) || oldest != 1 || last != 5 {
		t.Fatalf("numbers %v, oldest %d, last %d", got, oldest, last)
	}
	lost := entries[4].Outcome
	if lost == nil || lost.ID != "open" || lost.Ending != EndLost || lost.SLOMet || lost.Status != 0 {
		t.Errorf("the open request's outcome: %+v", lost)
	}
	if decision, outcome := j.Find("whole"); decision == nil || outcome == nil {
		t.Error("an earlier request is not found again")
	}
	if n := strings.Count(log.String(), "torn"); n != 1 {
		t.Errorf("the torn line was said %d times: %s", n, log)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	// A third life finds nothing open any more.
	j = open(t, Options{Dir: dir, Restore: true, CloseOpen: true})
	if _, _, last := j.Read(0, 0); last != 5 {
		t.Errorf("the next start wrote more endings: last %d", last)
	}
	if seq := j.Append(decided("next")); seq != 6 {
		t.Errorf("the next entry has number %d", seq)
	}
}

func TestAHandedOverRecordClosesNothing(t *testing.T) {
	j := open(t, Options{Dir: crashed(t), Restore: true})
	if _, outcome := j.Find("open"); outcome != nil {
		t.Errorf("a request that may still be served has the outcome %+v", outcome.Outcome)
	}
}

func TestRestoringKeepsTheNewestThatFitAndNumbersOn(t *testing.T) {
	dir := t.TempDir()
	j := open(t, Options{Dir: dir, MaxBytes: 3000, KeepBytes: 1 << 20})
	for i := range 50 {
		j.Append(decided(fmt.Sprintf("%02d", i)))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, Options{Dir: dir, Ring: 10, Restore: true})
	entries, oldest, last := j.Read(0, 0)
	if len(entries) != 10 || oldest != 41 || last != 50 || entries[0].Decision.ID != "40" || entries[9].Decision.ID != "49" {
		t.Errorf("%d entries, %d to %d", len(entries), oldest, last)
	}
	if seq := j.Append(decided("new")); seq != 51 {
		t.Errorf("numbered on with %d", seq)
	}
	if entries, oldest, _ := j.Read(0, 0); len(entries) != 10 || oldest != 42 {
		t.Errorf("after one more: %d entries, oldest %d", len(entries), oldest)
	}
}

// Each of these held a start up for ever, or led it astray.
func TestOddThingsInTheFolderDoNotHoldUpAStart(t *testing.T) {
	dir := crashed(t)
	if err := syscall.Mkfifo(filepath.Join(dir, "journal-000900.jsonl"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "journal-000901.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "journal-000902.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"9223372036854775807", "9223372036854775808", "1000000000"} {
		if err := os.WriteFile(filepath.Join(dir, "journal-"+n+".jsonl"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := &logBuffer{}
	j := open(t, Options{Dir: dir, Restore: true, Logger: log.logger()})
	if entries, _, _ := j.Read(0, 0); len(entries) != 4 {
		t.Errorf("%d entries were read back, want 4", len(entries))
	}
	if text := log.String(); strings.Count(text, "it is a pipe") != 1 || strings.Count(text, "it is a device") != 1 || !strings.Contains(text, "line=5") || strings.Contains(text, "line=0") {
		t.Errorf("what was passed over is not told: %s", text)
	}
	j.Append(decided("next"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if ids, _ := readAll(t, dir); len(ids) != 5 || ids[4] != "next" {
		t.Errorf("what came after the start cannot be found: %v", ids)
	}
}

func TestTheLastNumberThatAFileCanHaveIsSaid(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "journal-999999999.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "no number is left after journal-999999999.jsonl; move that file away") {
		t.Errorf("%v", err)
	}
}

func TestReadingBackIsBoundedInBytes(t *testing.T) {
	dir := crashed(t)
	line := lineBytes(t, decided("10"))
	entries, _, err := readTail(dir, 100, 3*line)
	if err != nil || len(entries) == 0 || len(entries) > 3 || entries[len(entries)-1].Outcome == nil {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	if entries, notices, err := readTail(filepath.Join(dir, "none"), 1, 1); entries != nil || notices != nil || err != nil {
		t.Errorf("a folder that is not there: %v %v %v", entries, notices, err)
	}
}

func TestAnOldFileIsTurnedAndOneOlderThanKeptIsRemoved(t *testing.T) {
	dir := t.TempDir()
	past := filepath.Join(dir, "journal-000001.jsonl")
	if err := os.WriteFile(past, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(past, time.Unix(0, 0), time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	d := newDisk(Options{Dir: dir, MaxAge: time.Hour, KeepAge: 24 * time.Hour})
	now := time.Now()
	d.now = func() time.Time { return now }
	// The number of the file that is there is not free.
	if err := d.next(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(past); !os.IsNotExist(err) {
		t.Errorf("a file from years ago is still there: %v", err)
	}
	d.write(decided("a"))
	now = now.Add(59 * time.Minute)
	d.write(decided("b"))
	now = now.Add(2 * time.Minute)
	d.write(decided("c"))
	d.flush()
	if err := d.file.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := Files(dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("files %v, %v", files, err)
	}
	if ids, _ := readAll(t, dir); strings.Join(ids, " ") != "a b c" {
		t.Errorf("read back %v", ids)
	}
}
