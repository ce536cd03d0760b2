package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// logFile is the name of the file that the engine prints into: in the state directory, or in the launch's own folder.
const logFile = "engine.log"

// Bounds on the engine's output file. The engine writes into a file and not into a pipe, so that it neither blocks nor gets
// a SIGPIPE when admitd dies.
const (
	// logKeep is the size in bytes from which the file is emptied once all of it was read.
	logKeep = 4 << 20
	// logMax is the size in bytes at which it is emptied even though the engine prints faster than it can be read.
	logMax = 64 << 20
	// logReplay is how much of the file's end, in bytes, is read again for an engine that was adopted.
	logReplay = 256 << 10
)

// tailBusy and tailIdle are the least and the longest pause between two looks at the output file.
const (
	tailBusy = 5 * time.Millisecond
	tailIdle = 100 * time.Millisecond
)

// createLog makes a fresh output file that only we can read and opens it for the engine. An older one is replaced, not
// emptied: whoever still holds that one open must not write into this launch's output. O_APPEND makes every write go to the
// end of the file as it is then, so that the file can be emptied under the engine.
func createLog(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replace the engine's output file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the engine's output file: %w", err)
	}
	return f, nil
}

// tailer moves what the engine prints from its output file into the ring, and keeps the file small.
type tailer struct {
	f   *os.File
	out *output
	// at is how much of the file, in bytes, was read.
	at   int64
	asks chan chan struct{}
	stop chan struct{}
	done chan struct{}
	once sync.Once
}

// follow begins to read an output file, at most its last replay bytes of what is there already, from the start of a line.
func follow(path string, replay int64, out *output) (*tailer, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the engine's output file: %w", err)
	}
	t := &tailer{f: f, out: out, asks: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
	if size := t.size(); size > replay {
		t.at = size - replay
		t.skipLine()
	}
	go t.run()
	return t, nil
}

// skipLine goes on to the next line: where reading begins, one has lost its start.
func (t *tailer) skipLine() {
	buf := make([]byte, maxLine)
	n, _ := t.f.ReadAt(buf, t.at) // what cannot be read now is read, or complained about, later
	if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
		t.at += int64(i) + 1
	}
}

// size is the file's size in bytes, 0 when that cannot be told.
func (t *tailer) size() int64 {
	st, err := t.f.Stat()
	if err != nil {
		return 0
	}
	return st.Size()
}

// run reads until close. A look costs one read; there are the fewer of them the longer nothing was printed.
func (t *tailer) run() {
	defer close(t.done)
	buf := make([]byte, 32<<10)
	pause := tailBusy
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		if t.look(buf) {
			pause = tailBusy
		} else {
			pause = min(2*pause, tailIdle)
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case heard := <-t.asks:
			t.readUp(buf)
			close(heard)
		case <-t.stop:
			t.readUp(buf)
			t.out.end()
			return
		}
	}
}

// readUp reads what is there, and only that: it may never stop.
func (t *tailer) readUp(buf []byte) {
	for end := t.size(); t.at < end && t.read(buf); {
	}
}

// hear returns when everything that was printed before the call has been read.
func (t *tailer) hear() {
	heard := make(chan struct{})
	select {
	case t.asks <- heard:
		<-heard
	case <-t.done:
	}
}

// look reads what is there, for a while at most, and reports whether there was anything.
func (t *tailer) look(buf []byte) (moved bool) {
	for range 256 {
		if !t.read(buf) {
			return moved
		}
		moved = true
		select {
		case <-t.stop:
			return moved
		default:
		}
	}
	return moved
}

// read moves one piece and reports whether there was one.
func (t *tailer) read(buf []byte) bool {
	n, err := t.f.ReadAt(buf, t.at)
	if n > 0 {
		_, _ = t.out.Write(buf[:n]) // never fails
		t.at += int64(n)
	}
	if err != nil || t.at >= logMax {
		t.trim()
	}
	return n > 0
}

// trim empties a file that has grown large. What the engine prints between the last look and the emptying is lost, at most a
// few lines in megabytes; only a file that grows faster than it is read loses more, and that is said.
func (t *tailer) trim() {
	size := t.size()
	switch {
	case size < t.at: // another admitd has emptied it
		t.at = 0
	case size >= logMax || t.at >= logKeep && size == t.at:
		if err := t.f.Truncate(0); err != nil {
			return // a full disk or the like; it is tried again
		}
		if lost := size - t.at; lost > 0 {
			t.out.end() // what comes is not the rest of the line so far
			t.out.note(fmt.Sprintf("the engine prints faster than it can be read: %d bytes were skipped", lost))
		}
		t.at = 0
	}
}

// close reads what the engine has printed so far and stops.
func (t *tailer) close() {
	t.once.Do(func() { close(t.stop) })
	<-t.done
	t.f.Close()
}

// logPath is where an engine that was launched into dir prints: a path that holds wherever a later admitd is started.
func (o Options) logPath(dir string) string {
	if o.StateDir != "" {
		dir = o.StateDir
	}
	path := filepath.Join(dir, logFile)
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
