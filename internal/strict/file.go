package strict

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// readWithin bounds the reading of one file: a hung mount must hold nobody for ever.
const readWithin = 5 * time.Second

// ReadFile reads a regular file, following links, within five seconds. what names the file's purpose for people, for
// instance "configuration". Errors: *Error with the file's name and the cause, for instance os.ErrNotExist; a pipe, a
// device, a folder and more than 1 MiB are refused. A read that hangs goes on in the background until the system ends it.
func ReadFile(what, name string) ([]byte, error) {
	b, err := Read(name, readWithin)
	if err == nil {
		return b, nil
	}
	text := err.Error()
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		text = pe.Err.Error()
	}
	return nil, &Error{Places: []Place{{File: name, Text: "cannot read " + what + ": " + text}}, Cause: err}
}

// Read reads a regular file as ReadFile does, with the system's own error.
func Read(name string, within time.Duration) ([]byte, error) {
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		b, err := readRegular(name)
		done <- result{b, err}
	}()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case r := <-done:
		return r.b, r.err
	case <-late.C:
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("not done after %s: %w", within, os.ErrDeadlineExceeded)}
	}
}

func readRegular(name string) ([]byte, error) {
	f, err := OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxBytes+1)) // Decode complains about one that is longer
}

// OpenRegular opens a regular file for reading, following links. Anything else is not opened: opening alone can hang, or set a
// device in motion. Errors are *fs.PathError, with a *NotRegularError for a folder, a pipe and the like.
func OpenRegular(name string) (*os.File, error) {
	st, err := os.Stat(name)
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: pe.Err}
	}
	if err != nil {
		return nil, err
	}
	if err := regular(name, st); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a pipe meanwhile
	if err != nil {
		return nil, err
	}
	if st, err = f.Stat(); err == nil {
		err = regular(name, st)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// NotRegularError says what stands where a regular file should.
type NotRegularError struct {
	// Kind is the thing with its article, for instance "a pipe".
	Kind string
}

// Error implements error.
func (e *NotRegularError) Error() string { return "it is " + e.Kind + "; name a regular file" }

func regular(name string, st fs.FileInfo) error {
	kind := "a device, pipe or socket"
	switch m := st.Mode(); {
	case m.IsRegular():
		return nil
	case m.IsDir():
		kind = "a folder"
	case m&fs.ModeNamedPipe != 0:
		kind = "a pipe"
	}
	return &fs.PathError{Op: "read", Path: name, Err: &NotRegularError{Kind: kind}}
}
