package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// printing is an output file with a writer and a tailer.
func printing(t *testing.T) (*os.File, *tailer, *output) {
	t.Helper()
	path := filepath.Join(t.TempDir(), logFile)
	w, err := createLog(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	out := newOutput(time.Now)
	out.begin(newTracker(VLLM, time.Now()), nil)
	tail, err := follow(path, 0, out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tail.close)
	return w, tail, out
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func TestOutputFileIsEmptiedUnderTheEngineWithoutALine(t *testing.T) {
	t.Parallel()
	w, tail, out := printing(t)
	lines := 0
	line := strings.Repeat("x", 1000)
	size := func() int64 {
		st, err := w.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	for emptied := 0; emptied < 2; lines++ {
		before := size()
		fmt.Fprintf(w, "%s %d\n", line, lines)
		if lines%500 == 499 { // now and then it waits until it was heard, so that the file can be emptied
			until(t, "everything was read", func() bool { return out.seq() == uint64(lines+1) })
			if before >= logKeep {
				until(t, "it was emptied", func() bool { return size() == 0 })
				emptied++
			}
		}
	}
	tail.close()
	if got := out.seq(); got != uint64(lines) {
		t.Errorf("%d lines came through of %d", got, lines)
	}
	if last := out.tail(0, 1)[0]; !strings.HasSuffix(last, fmt.Sprintf("x %d", lines-1)) {
		t.Errorf("the last line is %q", last)
	}
}

func TestOutputThatGrowsFasterThanItIsReadIsCutAndThatIsSaid(t *testing.T) {
	t.Parallel()
	w, tail, out := printing(t)
	if err := os.Truncate(w.Name(), logMax+(1<<20)); err != nil {
		t.Fatal(err)
	}
	until(t, "it was cut", func() bool {
		st, err := w.Stat()
		return err == nil && st.Size() < logMax
	})
	fmt.Fprintln(w, "and on it goes")
	tail.close()
	text := strings.Join(out.tail(0, 10), "\n")
	if !strings.Contains(text, "bytes were skipped") || !strings.Contains(text, "and on it goes") {
		t.Errorf("the log says %q", text)
	}
}

func TestOutputIsReadAgainFromTheStartOfALine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), logFile)
	if err := os.WriteFile(path, []byte(strings.Repeat("old line\n", 100)+"new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := newOutput(time.Now)
	out.begin(newTracker(VLLM, time.Now()), nil)
	tail, err := follow(path, 15, out)
	if err != nil {
		t.Fatal(err)
	}
	tail.close()
	if got := strings.Join(out.tail(0, 10), "|"); got != "old line|new" {
		t.Errorf("read again: %q", got)
	}
}

func TestFreshOutputFileIsNotTheOldOne(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), logFile)
	old, err := createLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	now, err := createLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	fmt.Fprintln(old, "from a stranger that held on to it")
	if st, err := os.Stat(path); err != nil || st.Size() != 0 || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want an empty file for us alone", st, err)
	}
}
