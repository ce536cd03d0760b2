package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

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

// exitError carries an exit code. err nil means that everything has been said already.
type exitError struct {
	code int
	err  error
	// usage is set for mistakes in the call itself; help is the command whose help tells more, "" for admitd's own.
	usage bool
	help  string
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
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...), usage: true}
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
	_, _ = fmt.Fprintf(e.stderr, "admitd: %s%s\n", err, remedy(err))
	if ee != nil && ee.usage {
		help := ee.help
		if help == "" {
			help = "admitd"
		}
		_, _ = fmt.Fprintf(e.stderr, "`%s --help` tells more.\n", help)
	}
	return code
}

// remedy says what to do where the error itself, which was made elsewhere, does not.
func remedy(err error) string {
	var p *client.ProblemError
	switch {
	case errors.As(err, &p) && p.Status == http.StatusUnauthorized:
		return " It is in admin.token of the serving admitd's state folder: name it with --state-dir or --token-file, or set ADMITD_TOKEN."
	case errors.Is(err, context.DeadlineExceeded) && err.Error() == context.DeadlineExceeded.Error():
		return ": nothing answered within " + answerWithin.String() + "; is that admitd's admin listener?"
	}
	return ""
}

func codeOf(err error) int {
	var ee *exitError
	var strictErr *strict.Error
	var needs *policy.NeedsError
	var setup *app.SetupError
	switch {
	case errors.As(err, &ee):
		return ee.code
	case errors.As(err, &strictErr):
		return exitUsage
	case errors.As(err, &needs):
		return exitPrecondition
	case errors.Is(err, app.ErrEngineFailed):
		return exitEngine
	case errors.As(err, &setup):
		return exitUsage
	case errors.Is(err, os.ErrNotExist):
		return exitUsage
	case errors.Is(err, client.ErrUnreachable), errors.Is(err, client.ErrUnauthorized):
		return exitUnreachable
	case errors.Is(err, client.ErrPrecondition):
		return exitPrecondition
	case errors.Is(err, client.ErrInvalid), errors.Is(err, client.ErrID):
		return exitUsage
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	}
	return exitRuntime
}
