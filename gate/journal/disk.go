package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	defaultMaxBytes = 64 << 20
	// keepFiles times MaxBytes is what is kept by default; never more than maxFiles files, however small.
	keepFiles = 16
	maxFiles  = 10000
	// retryAfter is how long a disk that failed is left alone. What comes meanwhile is in memory only.
	retryAfter   = time.Second
	defaultQueue = 8192
	closeWait    = 5 * time.Second
	// gatherFor is how long the writer rests after it has written all there was. What is gathered meanwhile is lost with
	// admitd if it is killed.
	gatherFor = 10 * time.Millisecond

	// maxNumber is beyond what any folder comes to; larger numbers are not admitd's.
	maxNumber = 999_999_999

	filePrefix = "journal-"
	fileSuffix = ".jsonl"
)

// disk is the writing side: a bounded queue and one goroutine. Only that goroutine touches the file.
type disk struct {
	queue   chan Entry
	dropped atomic.Uint64
	written atomic.Uint64
	done    chan struct{}
	// closing is closed when the queue is.
	closing chan struct{}
	result  error

	dir      string
	maxBytes int64
	maxAge   time.Duration
	keep     int64
	keepAge  time.Duration
	log      *slog.Logger
	now      func() time.Time

	enc    encoder
	number int
	file   io.WriteCloser
	path   string
	// begun is when the file was opened.
	begun time.Time
	// retryAt is when a disk that failed is tried again.
	retryAt time.Time
	buf     *bufio.Writer
	size    int64
	// pending counts lines that are in buf and not yet with the operating system.
	pending uint64
	// failing is true from a write error until a write succeeds, so that a full disk is said once.
	failing bool
	// said is how many drops had been reported.
	said uint64
	// open makes the next file; tests replace it.
	open func(path string) (io.WriteCloser, error)
}

func openDisk(o Options) (*disk, error) {
	d := newDisk(o)
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: make folder: %w", err)
	}
	files, err := Files(d.dir)
	if err != nil {
		return nil, err
	}
	if len(files) > 0 {
		d.number = fileNumber(filepath.Base(files[len(files)-1]))
	}
	if err := d.next(); err != nil {
		return nil, err
	}
	go d.run()
	return d, nil
}

func newDisk(o Options) *disk {
	d := &disk{dir: o.Dir, maxBytes: o.MaxBytes, maxAge: o.MaxAge, keep: o.KeepBytes, keepAge: o.KeepAge, log: o.Logger, now: time.Now, done: make(chan struct{}), closing: make(chan struct{}), open: openFile}
	if d.maxBytes == 0 {
		d.maxBytes = defaultMaxBytes
	}
	if d.keep == 0 {
		d.keep = keepFiles * d.maxBytes
	}
	n := o.Queue
	if n == 0 {
		n = defaultQueue
	}
	d.queue = make(chan Entry, n)
	return d
}

func openFile(path string) (io.WriteCloser, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

// offer queues the entry or counts it as dropped. It never waits.
func (d *disk) offer(e Entry) {
	select {
	case d.queue <- e:
	default:
		d.dropped.Add(1)
	}
}

func (d *disk) stats() Stats {
	return Stats{Dropped: d.dropped.Load(), Written: d.written.Load(), Queued: len(d.queue)}
}

func (d *disk) wait(limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-d.done:
		return d.result
	case <-t.C:
		return fmt.Errorf("journal: the disk did not take %d entries within %s", len(d.queue), limit)
	}
}

func (d *disk) run() {
	defer close(d.done)
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for e := range d.queue {
		d.write(e)
		if len(d.queue) > 0 {
			continue
		}
		d.flush()
		// What comes meanwhile is taken in one go: waking for each entry would cost more than writing it.
		t.Reset(gatherFor)
		select {
		case <-t.C:
		case <-d.closing:
		}
	}
	d.flush()
	if d.file != nil {
		d.result = d.file.Close()
	}
}

func (d *disk) write(e Entry) {
	line, err := d.enc.entry(&e)
	if err != nil {
		// A value that JSON cannot say (an infinity): one entry is lost, the journal goes on.
		d.dropped.Add(1)
		d.log.Warn("journal entry cannot be encoded", "seq", e.Seq, "error", err)
		return
	}
	line = append(line, '\n') // the encoder's own, until its next entry
	if d.file == nil && d.now().Before(d.retryAt) {
		d.dropped.Add(1)
		return
	}
	if d.file == nil || d.full(int64(len(line))) {
		if err := d.next(); err != nil {
			d.pending++
			d.fail(err)
			return
		}
	}
	d.pending++
	n, err := d.buf.Write(line)
	d.size += int64(n)
	if err != nil {
		d.fail(err)
	}
}

// full reports whether the file, which has lines, should be closed before n more bytes.
func (d *disk) full(n int64) bool {
	if d.size == 0 {
		return false
	}
	return d.size+n > d.maxBytes || (d.maxAge > 0 && d.now().Sub(d.begun) >= d.maxAge)
}

func (d *disk) flush() {
	if d.buf == nil {
		return
	}
	if err := d.buf.Flush(); err != nil {
		d.fail(err)
		return
	}
	d.settle()
	if d.failing {
		d.failing = false
		d.log.Info("journal is being written again", "dropped_entries", d.dropped.Load())
	}
	if n := d.dropped.Load(); n > d.said {
		d.log.Warn("journal entries did not reach the disk", "dropped_entries", n-d.said, "dropped_in_all", n)
		d.said = n
	}
}

// settle counts what is in the buffer as written.
func (d *disk) settle() {
	d.written.Add(d.pending)
	d.pending = 0
}

// fail counts what was in the buffer as lost, says the error once and gives the file up: a bufio.Writer keeps its first error for
// ever, and a torn line must not be followed by a whole one.
func (d *disk) fail(err error) {
	d.dropped.Add(d.pending)
	d.pending = 0
	d.retryAt = d.now().Add(retryAfter)
	if !d.failing {
		d.failing = true
		d.log.Error("journal cannot be written; decisions go on and stay in memory", "error", err)
	}
	if d.file != nil {
		_ = d.file.Close()
		d.removeEmpty()
	}
	d.file, d.buf = nil, nil
}

// removeEmpty takes away a file that nothing got into: on a full disk there would be one for each attempt.
func (d *disk) removeEmpty() {
	if info, err := os.Stat(d.path); err == nil && info.Size() == 0 {
		_ = os.Remove(d.path)
	}
}

// next closes the current file, opens the following number and removes the oldest ones beyond what is kept.
func (d *disk) next() error {
	if d.file != nil {
		if err := errors.Join(d.buf.Flush(), d.file.Close()); err != nil {
			d.file, d.buf = nil, nil
			return err
		}
		d.settle()
	}
	d.file, d.buf = nil, nil
	f, path, err := d.create()
	if err != nil {
		return fmt.Errorf("journal: open %s: %w", path, err)
	}
	d.path, d.begun = path, d.now()
	d.file, d.buf, d.size = f, bufio.NewWriterSize(f, 64<<10), 0
	d.prune()
	return nil
}

// create makes the file of the next free number: while one admitd hands over to another, both write to the folder.
func (d *disk) create() (f io.WriteCloser, path string, err error) {
	for range 100 {
		if d.number >= maxNumber {
			return nil, d.dir, fmt.Errorf("no number is left after %s%d%s; move that file away", filePrefix, d.number, fileSuffix)
		}
		d.number++
		path = filepath.Join(d.dir, fmt.Sprintf("%s%06d%s", filePrefix, d.number, fileSuffix))
		if f, err = d.open(path); !errors.Is(err, os.ErrExist) {
			break
		}
	}
	if err != nil {
		d.number--
	}
	return f, path, err
}

// prune counts bytes and age, not files: starts that came to nothing and a full disk leave small files, and must not push
// out the record.
func (d *disk) prune() {
	files, err := Files(d.dir)
	if err != nil {
		return
	}
	total := int64(0)
	for i, file := range slices.Backward(files) {
		info, err := os.Stat(file)
		if err != nil || file == d.path {
			continue
		}
		total += info.Size()
		old := d.keepAge > 0 && d.now().Sub(info.ModTime()) >= d.keepAge
		if !old && total <= d.keep-d.maxBytes && len(files)-i <= maxFiles {
			continue
		}
		if err := os.Remove(file); err != nil {
			d.log.Warn("old journal file cannot be removed", "file", file, "error", err)
		}
	}
}

// Files returns the journal's files in a folder, oldest first. Files of other names are left out.
func Files(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("journal: read folder: %w", err)
	}
	var names []string
	for _, e := range list {
		if fileNumber(e.Name()) > 0 && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	sort.Slice(names, func(i, k int) bool { return fileNumber(names[i]) < fileNumber(names[k]) })
	for i, n := range names {
		names[i] = filepath.Join(dir, n)
	}
	return names, nil
}

// fileNumber reads N out of journal-N.jsonl; 0 for any other name.
func fileNumber(name string) int {
	s, ok := strings.CutPrefix(name, filePrefix)
	if !ok {
		return 0
	}
	s, ok = strings.CutSuffix(s, fileSuffix)
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxNumber {
		return 0
	}
	return n
}
