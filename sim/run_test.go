package sim

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// safeBuffer is a log that several goroutines may write.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// process is a simulated engine that runs on a unix socket as its command does.
type process struct {
	*Server
	log    *safeBuffer
	client *http.Client
	stop   context.CancelFunc
	ended  chan error
}

func run(t *testing.T, o Options) *process {
	t.Helper()
	p := &process{log: &safeBuffer{}, ended: make(chan error, 1)}
	o.Output = p.log
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	p.Server = s
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = cancel
	socket := filepath.Join(t.TempDir(), "s")
	up := make(chan struct{})
	go func() {
		p.ended <- s.Run(ctx, "unix:"+socket, func() (net.Listener, error) {
			l, err := net.Listen("unix", socket)
			close(up)
			return l, err
		})
	}()
	<-up
	p.client = &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		cancel()
	})
	return p
}

func (p *process) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(patience):
		t.Fatalf("still running:\n%s", p.log)
		return nil
	}
}

func (p *process) open(t *testing.T, body string) *bufio.Reader {
	t.Helper()
	resp, err := p.client.Post("http://engine/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	r := bufio.NewReader(resp.Body)
	if _, err := r.Peek(1); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSIGTERMWithoutTimeoutCutsStreams: as measured, open streams end with an in-stream 500 and [DONE].
func TestSIGTERMWithoutTimeoutCutsStreams(t *testing.T) {
	o := recorded()
	o.Speed = 1
	p := run(t, o)
	stream := p.open(t, chat(10, 1500, `,"stream":true`))
	p.stop()
	rest, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	list, want := events(t, rest), events(t, capture(t, "stream-on-core-kill.http").body)
	if n := len(list); n < 2 || list[n-2] != want[1] || list[n-1] != want[2] {
		t.Errorf("the stream does not end as recorded:\n%s", rest)
	}
	if err := p.wait(t); err != nil {
		t.Errorf("a clean stop is %v", err)
	}
}

// TestSIGTERMWithTimeoutDrains: as measured, the open stream finishes whole, health stays 200, new requests get 500.
func TestSIGTERMWithTimeoutDrains(t *testing.T) {
	o := recorded()
	o.Speed, o.ShutdownTimeout = 1, patience
	p := run(t, o)
	stream := p.open(t, chat(10, 60, `,"stream":true`))
	// The engine stands still until everything has been asked.
	if err := p.SetFault(FaultStall, true); err != nil {
		t.Fatal(err)
	}
	p.stop()
	until(t, "the drain to begin", p.draining.Load)
	health, err := p.client.Get("http://engine/health")
	if err != nil {
		t.Fatal(err)
	}
	health.Body.Close()
	late, err := p.client.Post("http://engine/v1/chat/completions", "application/json", strings.NewReader(chat(5, 5, "")))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(late.Body)
	late.Body.Close()
	if err != nil || health.StatusCode != http.StatusOK || late.StatusCode != http.StatusInternalServerError || !strings.Contains(string(body), drainingText) {
		t.Errorf("while draining: health %d, new request %d %s %v", health.StatusCode, late.StatusCode, body, err)
	}
	if err := p.SetFault(FaultStall, false); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(stream)
	if err != nil || last(t, rest) != doneText || !strings.Contains(string(rest), `"finish_reason":"length"`) {
		t.Errorf("the open stream did not finish whole: %v\n%s", err, rest)
	}
	if err := p.wait(t); err != nil {
		t.Errorf("a clean stop is %v", err)
	}
}

// TestF3_CrashThatExitsZero: the core dies with the second request; the stream ends as recorded, the error is one that
// the command turns into exit status 0.
func TestCrashThatExitsZero(t *testing.T) {
	o := recorded()
	o.Speed, o.Faults = 1, []string{"exit0-crash:req=2"}
	p := run(t, o)
	first := p.open(t, chat(10, 1500, `,"stream":true`))
	second, err := p.client.Post("http://engine/v1/chat/completions", "application/json", strings.NewReader(chat(10, 1500, "")))
	if err == nil {
		second.Body.Close()
	}
	rest, err := io.ReadAll(first)
	if err != nil || !strings.Contains(string(rest), engineDeadText) || last(t, rest) != doneText {
		t.Errorf("the open stream: %v\n%.300s", err, rest)
	}
	if err := p.wait(t); !errors.Is(err, ErrCrashed) {
		t.Errorf("the crash is %v", err)
	}
}

// The crash can also be asked for while the engine serves.
func TestACrashSwitchedOnAtRunTime(t *testing.T) {
	p := run(t, recorded())
	if err := p.SetFault(FaultExit0Crash, true); err != nil && !errors.Is(err, errClosed) {
		t.Fatal(err)
	}
	if err := p.wait(t); !errors.Is(err, ErrCrashed) {
		t.Errorf("the crash is %v", err)
	}
}

// The lines that supervisors look for come in the order of the real engines' logs, and nothing listens before them.
func TestStartupLines(t *testing.T) {
	for dialect, want := range map[string][]string{
		VLLM: {
			"SIMULATED ENGINE", "vLLM server version", "non-default args:", "Initializing a V1 LLM engine (v0.32.0) with config", "Starting to load model",
			"Loading safetensors checkpoint shards", "Loading weights took", "Model loading took", "torch.compile takes", "Available KV cache memory:",
			"GPU KV cache size: 46,592 tokens", "Maximum concurrency for 2,048 tokens per request: 22.75x", "Capturing CUDA graphs", "Graph capturing finished in",
			"init engine (profile, create kv cache, warmup model) took", "Starting vLLM server on unix:", "Available routes are:", "Application startup complete.",
		},
		SGLang: {
			"SIMULATED ENGINE", "Init torch distributed begin", "Load weight begin.", "Load weight end.", "KV Cache is allocated. #tokens: 46592", "Memory pool end.",
			"Capture cuda graph begin.", "max_total_num_tokens=46592", "Application startup complete.", "The server is fired up and ready to roll!",
		},
	} {
		o := recorded()
		o.Dialect = dialect
		p := run(t, o)
		until(t, "the last line", func() bool { return strings.Contains(p.log.String(), want[len(want)-1]) })
		p.stop()
		if err := p.wait(t); err != nil {
			t.Error(err)
		}
		rest := p.log.String()
		for _, line := range want {
			_, after, found := strings.Cut(rest, line)
			if !found {
				t.Fatalf("%s: %q is missing or out of order in\n%s", dialect, line, p.log)
			}
			rest = after
		}
	}
}

func TestAListenerThatFails(t *testing.T) {
	s, err := New(recorded())
	if err != nil {
		t.Fatal(err)
	}
	busy := errors.New("address already in use")
	if err := s.Run(t.Context(), "somewhere", func() (net.Listener, error) { return nil, busy }); !errors.Is(err, busy) {
		t.Errorf("got %v", err)
	}
}
