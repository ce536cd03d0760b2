package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// limit is how long a script waits for one thing: far more than any takes, so that a slow machine decides no test.
const limit = 2 * time.Minute

// program is an admitd that a script started in the background.
type program struct {
	cmd    *exec.Cmd
	done   chan struct{}
	mu     sync.Mutex
	output bytes.Buffer
	more   chan struct{} // closed at the next output
}

// Write implements io.Writer.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.output.Write(b)
	close(p.more)
	p.more = make(chan struct{})
	return len(b), nil
}

func (p *program) printed() (string, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String(), p.more
}

// await waits until the output matches and returns the submatches.
func (p *program) await(ts *testscript.TestScript, pattern string) []string {
	re := regexp.MustCompile(pattern)
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		text, more := p.printed()
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
		select {
		case <-more:
		case <-p.done:
			if text, _ := p.printed(); re.MatchString(text) {
				return re.FindStringSubmatch(text)
			}
			ts.Fatalf("it ended with %s before it printed %s:\n%s", p.cmd.ProcessState, pattern, text)
		case <-late.C:
			ts.Fatalf("it has not printed %s:\n%s", pattern, text)
		}
	}
}

type programs struct{}

// scriptSetup gives each script a home, a state folder and the program's path.
func scriptSetup(e *testscript.Env) error {
	bin, err := exec.LookPath("admitd")
	if err != nil {
		return err
	}
	e.Setenv("BIN", bin)
	e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
	e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, "state"))
	e.Setenv("XDG_DATA_HOME", filepath.Join(e.WorkDir, "share"))
	// Under the race detector every program would sleep for a second before it ends.
	e.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	running := map[string]*program{}
	e.Values[programs{}] = running
	e.Defer(func() {
		for _, p := range running {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-p.done:
			case <-time.After(limit):
				_ = p.cmd.Process.Kill()
				<-p.done
			}
		}
	})
	return nil
}

func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"code": scriptCode, "run": scriptRun, "serve": scriptServe, "await": scriptAwait, "signal": scriptSignal,
		"end": scriptEnd, "printed": scriptPrinted, "hold": scriptHold, "chat": scriptChat, "stream": scriptStream,
	}
}

// code N CMD ARGS runs a program that must end with exit code N.
func scriptCode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var ended *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ended) {
		got = ended.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func started(ts *testscript.TestScript, name string) *program {
	p := ts.Value(programs{}).(map[string]*program)[name]
	if p == nil {
		ts.Fatalf("no program %s", name)
	}
	return p
}

// run NAME PATTERN ARGS starts admitd in the background and waits until it has printed PATTERN.
func scriptRun(ts *testscript.TestScript, _ bool, args []string) {
	launch(ts, args[0], args[2:]).await(ts, args[1])
}

func launch(ts *testscript.TestScript, name string, args []string) *program {
	p := &program{cmd: exec.Command(ts.Getenv("BIN"), args...), done: make(chan struct{}), more: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = ts.MkAbs("."), p, p
	p.cmd.Env = os.Environ()
	for _, v := range []string{"HOME", "XDG_STATE_HOME", "ADMITD_DATA_DIR", "ADMITD_ADMIN", "ADMITD_TOKEN", "NO_COLOR", "PATH", "GORACE"} {
		if ts.Getenv(v) != "" {
			p.cmd.Env = append(p.cmd.Env, v+"="+ts.Getenv(v))
		}
	}
	ts.Check(p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	ts.Value(programs{}).(map[string]*program)[name] = p
	return p
}

// serve NAME ARGS starts admitd serve on free ports, waits until the gate is open, and sets ADMITD_ADMIN and GATE.
func scriptServe(ts *testscript.TestScript, _ bool, args []string) {
	all := append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args[1:]...)
	m := launch(ts, args[0], all).await(ts, `ready: \S+ on http://(\S+)/v1 (?s:.*)dashboard: http://(\S+)/`)
	ts.Setenv("GATE", m[1])
	ts.Setenv("ADMITD_ADMIN", m[2])
}

// await NAME PATTERN waits until a program has printed PATTERN.
func scriptAwait(ts *testscript.TestScript, _ bool, args []string) {
	started(ts, args[0]).await(ts, args[1])
}

// printed NAME PATTERN looks at what a program has printed so far.
func scriptPrinted(ts *testscript.TestScript, neg bool, args []string) {
	text, _ := started(ts, args[0]).printed()
	if found := regexp.MustCompile(args[1]).MatchString(text); found == neg {
		ts.Fatalf("%s matches: %v, in\n%s", args[1], found, text)
	}
}

// signal NAME SIGNAL sends TERM, INT, HUP or KILL.
func scriptSignal(ts *testscript.TestScript, _ bool, args []string) {
	sig := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}[args[1]]
	ts.Check(started(ts, args[0]).cmd.Process.Signal(sig))
}

// end NAME SIGNAL CODE sends a signal, or none for -, and waits for the end, which must have the exit code.
func scriptEnd(ts *testscript.TestScript, _ bool, args []string) {
	p := started(ts, args[0])
	if args[1] != "-" {
		scriptSignal(ts, false, args[:2])
	}
	select {
	case <-p.done:
	case <-time.After(limit):
		text, _ := p.printed()
		ts.Fatalf("it has not ended:\n%s", text)
	}
	if got := strconv.Itoa(p.cmd.ProcessState.ExitCode()); got != args[2] {
		text, _ := p.printed()
		ts.Fatalf("exit code %s, want %s:\n%s", got, args[2], text)
	}
}

// hold VAR listens on a free port of loopback until the script ends, answers nothing, and sets VAR to the address.
func scriptHold(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}

func post(ts *testscript.TestScript, body string) *http.Response {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	ts.Defer(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+ts.Getenv("GATE")+"/v1/chat/completions", strings.NewReader(body))
	ts.Check(err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	ts.Check(err)
	return resp
}

// chat VAR STATUS asks the model m, expects a status and sets VAR to the request's id.
func scriptChat(ts *testscript.TestScript, _ bool, args []string) {
	resp := post(ts, `{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"Hello"}]}`)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if strconv.Itoa(resp.StatusCode) != args[1] {
		ts.Fatalf("%s: %s", resp.Status, body)
	}
	if !json.Valid(body) {
		ts.Fatalf("not JSON: %s", body)
	}
	ts.Setenv(args[0], resp.Header.Get("X-Admitd-Request-Id"))
}

// stream begins a long answer and leaves it open.
func scriptStream(ts *testscript.TestScript, _ bool, _ []string) {
	resp := post(ts, `{"model":"m","stream":true,"max_tokens":20000,"messages":[{"role":"user","content":"Hello"}]}`)
	ts.Defer(func() { _ = resp.Body.Close() })
	if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil || resp.StatusCode != http.StatusOK {
		ts.Fatalf("%s: %v", resp.Status, err)
	}
}
