package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"admitd/internal/strict"
)

// MaxLine is the longest line, in bytes, that a Reader decodes; a longer one is reported as a LineError.
const MaxLine = 4 << 20

// LineError is a line that is not an entry. The Reader can go on after it.
type LineError struct {
	// Line is the number of the line, from 1.
	Line int
	Err  error
}

// Error implements error.
func (e *LineError) Error() string { return fmt.Sprintf("journal line %d: %v", e.Line, e.Err) }

// Unwrap returns what was wrong with the line.
func (e *LineError) Unwrap() error { return e.Err }

var (
	errTooLong = fmt.Errorf("longer than %d bytes", MaxLine)
	errShape   = errors.New("exactly one of decision, outcome and event must be there, and be the one that kind names")
)

// Reader reads entries from JSON Lines, in memory bounded by MaxLine.
type Reader struct {
	in   *bufio.Reader
	line int
	torn bool
	done bool
}

// NewReader reads from r.
func NewReader(r io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(r, 64<<10)} }

// Next returns the next entry, io.EOF at the end, a *LineError for a line that is no entry (call Next again to go
// on), or the error of the underlying reader. A last line without its end that is no entry is what a crash leaves
// behind: it is skipped, and Torn says so.
func (r *Reader) Next() (Entry, error) {
	for !r.done {
		line, ended, err := r.readLine()
		if err != nil && !errors.Is(err, errTooLong) {
			r.done = true
			return Entry{}, err
		}
		if !ended {
			r.done = true
		}
		if err == nil && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e Entry
		if err == nil {
			e, err = decode(line)
		}
		if err == nil {
			return e, nil
		}
		if !ended {
			r.torn = true
			return Entry{}, io.EOF
		}
		return Entry{}, &LineError{Line: r.line, Err: err}
	}
	return Entry{}, io.EOF
}

// Torn reports whether the input ended in the middle of a line. It is known once Next has returned io.EOF.
func (r *Reader) Torn() bool { return r.torn }

// readLine returns one line and whether its newline was there; what lies beyond MaxLine is read and thrown away.
func (r *Reader) readLine() (line []byte, ended bool, err error) {
	r.line++
	long := false
	for {
		part, err := r.in.ReadSlice('\n')
		if len(line)+len(part) > MaxLine {
			long, line = true, nil
		}
		if !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return nil, false, err
		}
		ended = err == nil
		if long {
			return nil, ended, errTooLong
		}
		return line, ended, nil
	}
}

func decode(line []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(line, &e); err != nil {
		return Entry{}, err
	}
	n := 0
	for _, there := range []bool{e.Decision != nil, e.Outcome != nil, e.Event != nil} {
		if there {
			n++
		}
	}
	named := (e.Kind == KindDecision && e.Decision != nil) || (e.Kind == KindOutcome && e.Outcome != nil) ||
		(e.Kind == KindEvent && e.Event != nil)
	if n != 1 || !named {
		return Entry{}, errShape
	}
	return e, nil
}

// Notice is something ReadDir passed over.
type Notice struct {
	File string
	// Line counts from 1; it is 0 where the whole file was passed over, and where the file was not read from its beginning.
	Line int
	Text string
}

// ReadDir calls yield for every entry of a folder's files, oldest first, until yield returns an error, which is
// returned. Lines that are no entries, and what is no regular file, are passed over and returned as notices, one for each.
func ReadDir(dir string, yield func(Entry) error) ([]Notice, error) {
	files, err := Files(dir)
	if err != nil {
		return nil, err
	}
	var notices []Notice
	for _, name := range files {
		n, err := readFile(name, yield)
		notices = append(notices, n...)
		if err != nil {
			return notices, err
		}
	}
	return notices, nil
}

func readFile(name string, yield func(Entry) error) ([]Notice, error) {
	f, notices, err := openEntries(name)
	if f == nil {
		return notices, err
	}
	defer func() { _ = f.Close() }()
	return readEntries(name, f, yield)
}

// openEntries opens a file of the record; nil with a notice where no regular file has that name, which nobody should wait for.
func openEntries(name string) (*os.File, []Notice, error) {
	f, err := strict.OpenRegular(name)
	if odd, ok := errors.AsType[*strict.NotRegularError](err); ok {
		return nil, []Notice{{File: name, Text: "it is " + odd.Kind + " and no file of the record"}}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("journal: %w", err)
	}
	return f, nil, nil
}

func readEntries(name string, in io.Reader, yield func(Entry) error) ([]Notice, error) {
	var notices []Notice
	r := NewReader(in)
	for {
		e, err := r.Next()
		var bad *LineError
		switch {
		case errors.Is(err, io.EOF):
			if r.Torn() {
				notices = append(notices, Notice{File: name, Line: r.line, Text: "the last line is torn and was skipped"})
			}
			return notices, nil
		case errors.As(err, &bad):
			notices = append(notices, Notice{File: name, Line: bad.Line, Text: bad.Err.Error()})
		case err != nil:
			return notices, fmt.Errorf("journal: %s: %w", name, err)
		default:
			if err := yield(e); err != nil {
				return notices, err
			}
		}
	}
}
