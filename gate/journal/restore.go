package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

const (
	// EndLost is the ending of a request whose admitd died: how it ended for the caller is not known.
	EndLost = "admitd_lost"

	// restoreEntries and restoreBytes bound what is read back at a start: enough to show and explain what came last,
	// little enough that a start does not wait for it.
	restoreEntries = 4000
	restoreBytes   = 8 << 20
)

// restore takes the newest entries on disk into the ring and returns those admissions that have no outcome. What cannot be
// read is said, once for each place, and costs no start.
func (j *Journal) restore(o Options) (open []Entry) {
	entries, notices, err := readTail(o.Dir, min(restoreEntries, len(j.ring)), restoreBytes)
	if err != nil {
		o.Logger.Warn("the earlier record cannot be read back; it stays on disk", "error", err)
	}
	for _, n := range notices {
		at := []any{"file", n.File}
		if n.Line > 0 {
			at = append(at, "line", n.Line)
		}
		o.Logger.Warn("the record holds something that is no entry; it was passed over", append(at, "why", n.Text)...)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		j.last = max(j.last, e.Seq)
	}
	// Entries that never reached the disk left holes in the numbers; in memory there are none.
	j.last = max(j.last, uint64(len(entries))) - uint64(len(entries))
	for i := range entries {
		entries[i] = j.keep(entries[i])
	}
	return unended(entries)
}

// unended are the admissions without an outcome.
func unended(entries []Entry) (open []Entry) {
	ended := map[string]bool{}
	for _, e := range slices.Backward(entries) {
		switch {
		case e.Outcome != nil:
			ended[e.Outcome.ID] = true
		case e.Decision != nil && e.Decision.Verdict == "admit" && !ended[e.Decision.ID]:
			open = append(open, e)
		}
	}
	slices.Reverse(open)
	return open
}

// closeOpen writes the outcomes that a dead admitd could not.
func (j *Journal) closeOpen(open []Entry) {
	now := time.Now()
	for _, e := range open {
		j.Append(Entry{At: now, Kind: KindOutcome, Outcome: &Outcome{
			ID: e.Decision.ID, Ending: EndLost, Error: "admitd died before this request ended",
			TotalMS: float64(now.Sub(e.At)) / float64(time.Millisecond),
		}})
	}
}

// readTail reads the last entries of a folder's files, oldest first: at most so many, from at most so many bytes.
func readTail(dir string, entries int, bytes int64) ([]Entry, []Notice, error) {
	files, err := Files(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var all []Entry
	var notices []Notice
	for _, name := range slices.Backward(files) {
		if len(all) >= entries || bytes <= 0 {
			break
		}
		part, n, used, err := readEnd(name, bytes)
		if err != nil {
			return all, notices, err
		}
		bytes -= used
		all, notices = append(part, all...), append(n, notices...)
	}
	if more := len(all) - entries; more > 0 {
		all = all[more:]
	}
	return all, notices, nil
}

// readEnd reads the entries in the last so many bytes of a file.
func readEnd(name string, limit int64) (entries []Entry, notices []Notice, used int64, err error) {
	f, notices, err := openEntries(name)
	if f == nil {
		return nil, notices, 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, 0, fmt.Errorf("journal: %w", err)
	}
	used = min(info.Size(), limit)
	in := bufio.NewReader(io.LimitReader(f, used)) // some files of the kernel's own never end
	if used < info.Size() {
		if _, err := f.Seek(-used, io.SeekEnd); err != nil {
			return nil, nil, 0, fmt.Errorf("journal: %s: %w", name, err)
		}
		// The first line is most likely the rest of one.
		if _, err := in.ReadString('\n'); err != nil {
			return nil, nil, used, nil
		}
	}
	notices, err = readEntries(name, in, func(e Entry) error {
		entries = append(entries, e)
		return nil
	})
	if used < info.Size() {
		// Counted from where the reading began, which is no help to anyone.
		for i := range notices {
			notices[i].Line = 0
		}
	}
	return entries, notices, used, err
}
