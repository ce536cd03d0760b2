package supervisor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// remote is an engine that somebody else runs, in virtual time.
type remote struct {
	t *testing.T
	*Supervisor

	mu sync.Mutex
	// err is what every request meets; status is the answer by path where it is not 200.
	err    error
	status map[string]int
	models string
	// version is the path that tells a version.
	version string
	asked   map[string]int
	readies int
}

func (r *remote) RoundTrip(req *http.Request) (*http.Response, error) {
	<-time.After(time.Millisecond) // virtual
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[req.URL.Path]++
	if r.err != nil {
		return nil, r.err
	}
	status, body := http.StatusOK, "{}"
	switch req.URL.Path {
	case "/v1/models":
		body = `{"data":[` + r.models + `]}`
	case "/v1/completions":
		body = `{"choices":[{"text":"2"}]}`
	case "/version", "/server_info":
		if status = http.StatusNotFound; r.version == req.URL.Path {
			status, body = http.StatusOK, `{"version":"1.2.3"}`
		}
	}
	if s, ok := r.status[req.URL.Path]; ok {
		status = s
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

func (r *remote) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// attach watches the engine until the end of the test; inside a synctest bubble.
func (r *remote) attach(t *testing.T, o Options) {
	t.Helper()
	r.t, r.asked = t, map[string]int{}
	if r.models == "" {
		r.models = `{"id":"m","max_model_len":4096}`
	}
	if o.URL == "" {
		o.URL = "http://gpu1:8000/"
	}
	o.Kind, o.ServedNames = External, []string{"m"}
	o.OnReady = func() { r.set(func() { r.readies++ }) }
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.probeVia, r.Supervisor = r, s
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func (r *remote) after(d time.Duration, state State, text string) Status {
	r.t.Helper()
	<-time.After(d) // virtual
	synctest.Wait()
	st := r.Status()
	if st.State != state || !strings.Contains(st.Text, text) {
		r.t.Errorf("state %s (%q); want %s (%q)", st.State, st.Text, state, text)
	}
	return st
}

func TestExternalEngineThatIsGoneIsNoticedAndFoundAgainInSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{version: "/version"}
		r.attach(t, Options{})
		r.after(100*time.Millisecond, Ready, "")
		r.set(func() { r.err = refused() })
		r.after(2*time.Second, Loading, "http://gpu1:8000/health: connection refused")
		// It comes back as something else.
		r.set(func() { r.models = `{"id":"m","max_model_len":8192}` })
		r.after(time.Hour, Loading, "connection refused")
		r.set(func() { r.err = nil })
		if st := r.after(1500*time.Millisecond, Ready, ""); st.MaxModelLen != 8192 || time.Since(st.ReadyAt) > 2*time.Second {
			t.Errorf("status %+v; want the new engine's context", st)
		}
		// And again, without the model.
		r.set(func() { r.err = refused() })
		r.after(2*time.Second, Loading, "")
		r.set(func() { r.err, r.models = nil, `{"id":"n"}` })
		r.after(5*time.Second, Loading, `/v1/models: does not list ["m"] but ["n"]`)
	})
}

func TestExternalEngineThatIsReplacedUnseenIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{version: "/version"}
		r.attach(t, Options{})
		first := r.after(time.Minute, Ready, "")
		r.set(func() { r.models = `{"id":"m","max_model_len":1024}` })
		st := r.after(15*time.Second, Ready, "was replaced: it serves m with 1024 tokens")
		if st.MaxModelLen != 1024 || !st.ReadyAt.After(first.ReadyAt) || r.readies != 2 {
			t.Errorf("status %+v, ready %d times; want a new engine", st, r.readies)
		}
		r.set(func() { r.models = `{"id":"other"}` })
		r.after(15*time.Second, Loading, `does not list ["m"] but ["other"]`)
		r.set(func() { r.models = `{"id":"m","max_model_len":1024}` })
		r.after(2*time.Second, Ready, "")
		r.set(func() { r.status = map[string]int{"/v1/models": 401} })
		r.after(15*time.Second, Loading, "set engine.key_env")
	})
}

func TestExternalSGLangIsSparedButItsEndIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{version: "/server_info"}
		r.attach(t, Options{})
		r.after(time.Second, Ready, "")
		r.set(func() { r.asked = map[string]int{} })
		r.after(time.Minute, Ready, "")
		r.set(func() {
			if n := r.asked["/health"]; n < 4 || n > 7 {
				t.Errorf("its health, which is a real request, was asked for %d times in a minute", n)
			}
			r.err = refused()
		})
		r.after(3*time.Second, Loading, "connection refused")
	})
}

func TestExternalEngineThatDoesNotAnswerWellStallsAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{version: "/version"}
		r.attach(t, Options{})
		r.after(time.Second, Ready, "")
		r.set(func() { r.status = map[string]int{"/health": 503} })
		r.after(10*time.Second, Stalled, "http://gpu1:8000/health: answers 503")
		r.set(func() { r.status, r.models = nil, `{"id":"m","max_model_len":512}` })
		if st := r.after(3*time.Second, Ready, ""); st.MaxModelLen != 512 {
			t.Errorf("status %+v; want what it serves to be read again", st)
		}
	})
}

func TestExternalEngineThatIsNotReachedSaysWhy(t *testing.T) {
	tests := []struct {
		name string
		url  string
		key  string
		r    *remote
		want string
	}{
		{"nobody there", "", "", &remote{err: refused()}, "http://gpu1:8000/health: connection refused"},
		{"no such host", "", "", &remote{err: &net.DNSError{IsNotFound: true}}, "http://gpu1:8000/health: no such host"},
		{"no answer", "", "", &remote{err: fmt.Errorf("x: %w", context.DeadlineExceeded)}, "/health: no answer in time"},
		{"a key is wanted", "", "", &remote{status: map[string]int{"/v1/models": 401}}, "/v1/models: 401: the engine wants a key: set engine.key_env"},
		{"another key is wanted", "", "k", &remote{status: map[string]int{"/v1/models": 401}}, "does not take the key of engine.key_env"},
		{"a URL with /v1", "http://gpu1:8000/v1", "", &remote{status: map[string]int{"/health": 404}}, "http://gpu1:8000/v1/health: 404: give the base URL without /v1"},
		{"a URL with /v1 of an engine with a key", "http://gpu1:8000/v1/", "", &remote{status: map[string]int{"/health": 401}}, "http://gpu1:8000/v1/health: 401: give the base URL without /v1"},
		{"no secret in a query", "http://gpu1:8000/?key=sesame", "", &remote{err: refused()}, "http://gpu1:8000/health: connection refused"},
		{"another model", "", "", &remote{models: `{"id":"n"}`}, `does not list ["m"] but ["n"]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.r.attach(t, Options{URL: tt.url, APIKey: tt.key})
				st := tt.r.after(3*time.Second, Loading, "waiting for the engine: ")
				if !strings.Contains(st.Text, tt.want) {
					t.Errorf("text %q; want %q", st.Text, tt.want)
				}
				// However long it takes, it is waited for.
				tt.r.after(2*time.Hour, Loading, tt.want)
			})
		})
	}
}
