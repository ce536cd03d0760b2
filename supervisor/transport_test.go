package supervisor

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// echo answers with what reached it.
func echo() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for name, v := range map[string]string{"Path": r.URL.EscapedPath(), "Auth": r.Header.Get("Authorization"), "Key": r.Header.Get("X-Api-Key"),
			"Host": r.Host, "Enc": r.Header.Get("Accept-Encoding"), "Body": string(body)} {
			w.Header().Set("Got-"+name, v)
		}
	})
}

func ask(t *testing.T, rt http.RoundTripper, url string) (*http.Response, *http.Request) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer the-callers")
	req.Header.Set("X-Api-Key", "the-callers")
	res, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res, req
}

func TestTransportReachesTheSocketWithTheEnginesKey(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: echo()}
	go srv.Serve(l)
	defer srv.Close()
	rt := newTransport()
	defer rt.point(nil)
	rt.point(&target{network: "unix", address: socket, scheme: "http", host: "engine-1", key: "k"})
	res, req := ask(t, rt, "http://engine/v1/a%2Fb?x=1")
	for name, want := range map[string]string{"Path": "/v1/a%2Fb", "Auth": "Bearer k", "Key": "", "Host": "localhost", "Enc": "", "Body": "hello"} {
		if got := res.Header.Get("Got-" + name); got != want {
			t.Errorf("%s reached the engine as %q; want %q", name, got, want)
		}
	}
	if req.Header.Get("Authorization") != "Bearer the-callers" || req.URL.Host != "engine" {
		t.Error("the caller's request was changed")
	}
}

func TestTransportFollowsTheEngine(t *testing.T) {
	rt := newTransport()
	defer rt.point(nil)
	first, second := httptest.NewServer(echo()), httptest.NewServer(echo())
	defer first.Close()
	defer second.Close()
	for i, srv := range []*httptest.Server{first, second, first} {
		rt.point(&target{network: "tcp", address: srv.Listener.Addr().String(), scheme: "http", host: "engine-" + string(rune('1'+i)), key: "k"})
		ask(t, rt, "http://engine/")
	}
	rt.point(nil)
	if _, err := rt.RoundTrip(httptest.NewRequest(http.MethodGet, "http://engine/", nil)); !errors.Is(err, ErrNoEngine) {
		t.Errorf("without an engine: %v; want ErrNoEngine", err)
	}
}

func TestTransportToAnExternalEngine(t *testing.T) {
	srv := httptest.NewServer(echo())
	defer srv.Close()
	for key, auth := range map[string]string{"": "", "theirs": "Bearer theirs"} {
		at, err := externalTarget(srv.URL+"/some%2Fwhere/", key)
		if err != nil {
			t.Fatal(err)
		}
		rt := newTransport()
		rt.point(at)
		res, _ := ask(t, rt, "http://engine/v1/models")
		if got := res.Header.Get("Got-Path"); got != "/some%2Fwhere/v1/models" {
			t.Errorf("path %q", got)
		}
		// The caller's key is never handed on, also when there is none of our own.
		if got := res.Header.Get("Got-Auth"); got != auth {
			t.Errorf("Authorization %q; want %q", got, auth)
		}
		rt.point(nil)
	}
}

// answers is an engine of fixed answers, by path.
type answers map[string]string

func (a answers) RoundTrip(req *http.Request) (*http.Response, error) {
	body, ok := a[req.URL.Path]
	status := http.StatusOK
	if !ok {
		status = http.StatusNotFound
	}
	if code, rest, ok := strings.Cut(body, "!"); ok && code == "503" {
		status, body = http.StatusServiceUnavailable, rest
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func TestReadiness(t *testing.T) {
	const models = `{"data":[{"id":"x"},{"id":"m","max_model_len":4096}]}`
	tests := []struct {
		name  string
		a     answers
		names []string
		want  string // of the error; "" is ready
		model string
	}{
		{"all is well", answers{"/health": "", "/v1/models": models, "/v1/completions": `{"choices":[{}]}`}, []string{"m"}, "", "m"},
		{"any model will do", answers{"/health": "", "/v1/models": models, "/v1/completions": `{"choices":[{}]}`}, nil, "", "x"},
		{"a model that does not generate", answers{"/health": "", "/v1/models": models, "/v1/embeddings": `{}`}, []string{"m"}, "", "m"},
		{"not healthy", answers{"/health": "503!"}, []string{"m"}, "/health answers 503", ""},
		{"another model", answers{"/health": "", "/v1/models": models}, []string{"n"}, "does not list", ""},
		{"no models", answers{"/health": "", "/v1/models": `{"data":[]}`}, nil, "does not list", ""},
		{"a page that is not JSON", answers{"/health": "", "/v1/models": "<html>"}, []string{"m"}, "not JSON", ""},
		{"no token", answers{"/health": "", "/v1/models": models, "/v1/completions": `{"error":{}}`}, []string{"m"}, "without a choice", "m"},
		{"an overloaded engine", answers{"/health": "", "/v1/models": models, "/v1/completions": "503!"}, []string{"m"}, "answered with 503", "m"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := (&prober{rt: tt.a, names: tt.names}).ready(t.Context())
			if (tt.want == "") != (r.err == nil) || r.err != nil && !strings.Contains(r.err.Error(), tt.want) {
				t.Errorf("error %v; want %q", r.err, tt.want)
			}
			if r.model != tt.model {
				t.Errorf("model %q; want %q", r.model, tt.model)
			}
		})
	}
}

func TestExternalEngineIsWatchedAndLeftAlone(t *testing.T) {
	srv := httptest.NewServer(fakeHandler(nil))
	defer srv.Close()
	t.Setenv("VLLM_API_KEY", "theirs")
	o := Options{Kind: External, URL: srv.URL, APIKey: "theirs", Model: "", ReadyInterval: 5 * time.Millisecond, HealthInterval: 5 * time.Millisecond, HealthTimeout: 20 * time.Millisecond}
	drained := make(chan struct{}, 1)
	o.BeforeStop = func(context.Context) { drained <- struct{}{} }
	// The handler lists the model under the name of an argument that this test has not.
	o.ServedNames = []string{""}
	r := run(t, o)
	st := r.ready()
	if st.PID != 0 || len(r.Pids()) != 0 || st.Address != srv.URL {
		t.Errorf("status %+v; want no process of ours", st)
	}
	if err := r.Restart(t.Context()); !errors.Is(err, ErrExternal) {
		t.Errorf("Restart = %v; want ErrExternal", err)
	}
	r.post("/hang")
	r.await("stalled", func(st Status) bool { return st.State == Stalled })
	if err := r.end(); err != nil {
		t.Errorf("Run = %v", err)
	}
	<-drained
	if st := r.Status(); st.State != Stopped {
		t.Errorf("state %s; want stopped", st.State)
	}
}
