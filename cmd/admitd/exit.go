package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"admitd/gate/policy"
	"admitd/internal/app"
	"admitd/internal/strict"
	"admitd/ui/client"
)

// Exit codes, as docs/cli.md states them.
const (
	exitOK           = 0
	exitRuntime      = 1
	exitUsage        = 2
	exitFindings     = 3
	exitUnreachable  = 4
	exitPrecondition = 5
	exitTimeout      = 6
	exitEngine       = 7
	exitInterrupted  = 130
	exitTerminated   = 143
)

// exitError carries an exit code. Err nil means that everything has been said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage is an error in how the program was called.
func usage(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// report prints an error and gives the exit code.
func (e *env) report(err error) int {
	if err == nil {
		return exitOK
	}
	code := codeOf(err)
	var ee *exitError
	if errors.As(err, &ee) && ee.err == nil {
		return code
	}
	text := strings.TrimPrefix(err.Error(), "flag provided but not defined: ")
	if text != err.Error() {
		text = "unknown flag " + text
	}
	_, _ = fmt.Fprintf(e.stderr, "admitd: %s\n", text)
	if ee != nil && ee.code == exitUsage {
		_, _ = fmt.Fprintln(e.stderr, "Run `admitd --help`, or `admitd COMMAND --help`.")
	}
	return code
}

func codeOf(err error) int {
	var ee *exitError
	var strictErr *strict.Error
	var needs *policy.NeedsError
	switch {
	case errors.As(err, &ee):
		return ee.code
	case errors.As(err, &strictErr):
		return exitUsage
	case errors.As(err, &needs):
		return exitPrecondition
	case errors.Is(err, app.ErrEngineFailed):
		return exitEngine
	case errors.Is(err, app.ErrNoEngine):
		return exitUsage
	case errors.Is(err, os.ErrNotExist):
		return exitUsage
	case errors.Is(err, client.ErrUnreachable), errors.Is(err, client.ErrUnauthorized):
		return exitUnreachable
	case errors.Is(err, client.ErrPrecondition):
		return exitPrecondition
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	}
	return exitRuntime
}
