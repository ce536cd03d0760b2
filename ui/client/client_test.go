package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNewReadsAddresses(t *testing.T) {
	for _, c := range []struct{ address, want string }{
		{"127.0.0.1:8081", "http://127.0.0.1:8081"},
		{":8081", "http://127.0.0.1:8081"},
		{"0.0.0.0:8081", "http://127.0.0.1:8081"},
		{"[::]:8081", "http://127.0.0.1:8081"},
		{"https://gpu.example", "https://gpu.example"},
		{"http://gpu.example:81/path", "http://gpu.example:81"},
	} {
		got, err := New(Options{Address: c.address})
		if err != nil || got.Address() != c.want {
			t.Errorf("%s: %v %v, want %s", c.address, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "ftp://x:1", "http://user:secret@x:1", "http://"} {
		if _, err := New(Options{Address: bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// serve answers every request with a status and body, and returns a client for it.
func serve(t *testing.T, o Options, status int, body string) (*Client, *http.Request) {
	t.Helper()
	seen := new(http.Request)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		*seen = *r.Clone(context.Background())
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	o.Address = srv.URL
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseIdle(); srv.Close() })
	return c, seen
}

func TestErrorsSayWhatToDoAboutThem(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		is     error
		text   string
	}{
		{401, `{"status":401,"detail":"this needs the admin token"}`, ErrUnauthorized, "this needs the admin token"},
		{403, `{"status":403,"detail":"x"}`, ErrUnauthorized, "x"},
		{412, `{"status":412,"detail":"changed"}`, ErrPrecondition, "changed"},
		{409, `{"status":409,"detail":"fields","fields":["a"]}`, ErrPrecondition, "fields"},
		{422, `{"status":422,"detail":"needs"}`, ErrPrecondition, "needs"},
		{404, `{"status":404,"title":"Not Found"}`, ErrNotFound, "Not Found"},
		{400, `{"status":400,"detail":"bad"}`, ErrInvalid, "bad"},
		{404, `{"error":{"message":"no such path"}}`, ErrUnreachable, "is that admitd's admin listener?"},
		{302, ``, ErrUnreachable, "is that admitd's admin listener?"},
		{502, `<html>`, ErrUnreachable, "is that admitd's admin listener?"},
	} {
		client, _ := serve(t, Options{}, c.status, c.body)
		_, err := client.Status(t.Context())
		var pe *ProblemError
		if !errors.As(err, &pe) || pe.Status != c.status || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%d %s: %v", c.status, c.body, err)
		}
		if want := errors.Is(c.is, ErrUnreachable); errors.Is(err, ErrUnreachable) != want {
			t.Errorf("%d counts as unreachable: %v", c.status, !want)
		}
	}
}

func TestIDThatWouldBeAnotherPathIsNotAskedFor(t *testing.T) {
	c, seen := serve(t, Options{}, 200, `{}`)
	for _, id := range []string{"../status", "..", ".", "", "a/b", "a%2fb", "a?b", "a#b", "a\\b", "a b", strings.Repeat("a", 201)} {
		if _, err := c.Decision(t.Context(), id); !errors.Is(err, ErrID) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if seen.URL != nil {
		t.Errorf("asked for %s", seen.URL)
	}
	if _, err := c.Decision(t.Context(), "req-1.a_B"); err != nil || seen.URL.Path != "/api/v1/decisions/req-1.a_B" {
		t.Errorf("%v %v", err, seen.URL)
	}
}

func TestAnswerThatIsNoStatusIsNoAdmitd(t *testing.T) {
	c, _ := serve(t, Options{}, 200, `{"status":"ok"}`)
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("%v", err)
	}
}

func TestNobodyListeningIsUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	c, err := New(Options{Address: addr, Token: "secret-token"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Status(t.Context())
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "admitd serve") {
		t.Errorf("status: %v", err)
	}
	if _, err := c.Stream(t.Context(), 0); !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "secret-token") {
		t.Errorf("stream: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Status(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestWritesCarryTokenTypeAndRevision(t *testing.T) {
	c, seen := serve(t, Options{Token: "tok", Pool: "m 2"}, 200, `{"rev":"r"}`)
	if _, err := c.PutPolicy(t.Context(), []byte("policy: x"), "abc", "why & what"); err != nil {
		t.Fatal(err)
	}
	h := seen.Header
	if seen.Method != http.MethodPut || h.Get("Authorization") != "Bearer tok" || h.Get("If-Match") != `"abc"` || h.Get("Content-Type") != "text/yaml" {
		t.Errorf("%s %v", seen.Method, h)
	}
	if q := seen.URL.Query(); q.Get("note") != "why & what" || q.Get("pool") != "m 2" || strings.Contains(seen.URL.String(), "tok") {
		t.Errorf("%s", seen.URL)
	}
	if _, err := c.PutPolicy(t.Context(), nil, "", ""); err != nil || seen.Header.Get("If-Match") != "*" {
		t.Errorf("%v %v", err, seen.Header)
	}
	if _, err := c.Reload(t.Context()); err != nil || seen.Header.Get("Content-Type") != "application/json" || seen.Method != http.MethodPost {
		t.Errorf("%v %v", err, seen.Header)
	}
}

func TestAnAnswerThatIsNotJSONIsAnError(t *testing.T) {
	c, _ := serve(t, Options{}, 200, "<html>")
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "/api/v1/status") {
		t.Error(err)
	}
}

func TestReady(t *testing.T) {
	c, _ := serve(t, Options{}, 503, "m1: engine loading\n")
	if ready, why, err := c.Ready(t.Context()); ready || why != "m1: engine loading" || err != nil {
		t.Errorf("%v %q %v", ready, why, err)
	}
	c, _ = serve(t, Options{}, 200, "ready\n")
	if ready, _, err := c.Ready(t.Context()); !ready || err != nil {
		t.Errorf("%v %v", ready, err)
	}
	c, _ = serve(t, Options{}, 404, "")
	if _, _, err := c.Ready(t.Context()); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestStreamOfAnotherVersionIsRefused(t *testing.T) {
	var m Message
	if err := m.decode([]byte(`{"v":2,"kind":"hello"}`)); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Error(err)
	}
	if err := m.decode([]byte(`{"v":1,"kind":"later"}`)); err != nil {
		t.Error("a kind of a later server must be passed over:", err)
	}
}
