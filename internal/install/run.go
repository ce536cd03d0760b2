package install

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// endWithin is how long a program may take to end after SIGTERM when an install is interrupted.
	endWithin = 10 * time.Second
	// keptLines is how much of a program's output is kept to say why it failed.
	keptLines = 60
	// longestLine bounds one line of output, in bytes; what is longer is split.
	longestLine = 1 << 20
)

// runner starts the programs of one install. They share the install's lock and end with admitd.
type runner struct {
	lock *os.File
	log  io.Writer
	env  []string
}

// run runs a program to its end and hands each line of its output to line, which may be nil. The error is a *runError with
// the last lines, or the context's.
func (r *runner) run(ctx context.Context, line func(string), name string, args ...string) error {
	_, _ = fmt.Fprintf(r.log, "+ %s %s\n", name, strings.Join(args, " ")) // a full disk shows where it matters
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = r.env
	cmd.ExtraFiles = []*os.File{r.lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// The group: pip starts programs of its own.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = endWithin
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	ended := make(chan error, 1)
	go func() {
		// The kernel sends the death signal when the thread that started the program ends, so it must stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Run()
		if cmd.Process != nil && ctx.Err() != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // whatever of the group did not end; most often nothing
		}
		_ = in.Close()
		ended <- err
	}()
	last := r.read(out, line)
	err := <-ended
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return &runError{err: err, lines: last}
}

// read passes output on and returns its last lines.
func (r *runner) read(out io.Reader, line func(string)) []string {
	var last []string
	sc := bufio.NewScanner(out)
	sc.Buffer(make([]byte, 0, 64<<10), longestLine)
	sc.Split(scanLines)
	for sc.Scan() {
		text := strings.TrimRight(sc.Text(), " \t\r\n")
		if text == "" {
			continue
		}
		if !strings.HasPrefix(text, "Progress ") {
			_, _ = fmt.Fprintln(r.log, text)
		}
		if len(last) == keptLines {
			last = slices.Delete(last, 0, 1)
		}
		last = append(last, text)
		if line != nil {
			line(text)
		}
	}
	return last
}

// scanLines ends lines at \n and at the \r that repaints, and splits what never ends.
func scanLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexAny(data, "\r\n"); i >= 0 {
		return i + 1, data[:i], nil
	}
	if len(data) > 0 && (atEOF || len(data) >= longestLine/2) {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// runError is a program that ended with an error.
type runError struct {
	err   error
	lines []string
}

func (e *runError) Error() string { return e.err.Error() }
func (e *runError) Unwrap() error { return e.err }

// environment is ours without what would make pip or Python work somewhere else than in the engine's folder. Where packages
// come from, proxies and certificates stay as they are set.
func environment(tmp string) []string {
	without := []string{"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_DRY_RUN", "PIP_REQUIRE_VIRTUALENV", "PIP_NO_CACHE_DIR",
		"PIP_CACHE_DIR", "PIP_PROGRESS_BAR", "PIP_QUIET", "PIP_VERBOSE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TMPDIR"}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(without, name)
	})
	return append(env, "PYTHONNOUSERSITE=1", "PYTHONUNBUFFERED=1", "PIP_NO_INPUT=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "TMPDIR="+tmp)
}
