package ui

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"admitd/ui/api"
	"admitd/ui/client"
)

func TestUpgradeTellsEachStepAndHowItEnded(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		steps []string
		want  api.UpgradeStep
		class error
	}{
		{"it serves", nil, []string{"started", "adopted"}, api.UpgradeStep{Text: "upgraded", Done: true, OK: true, PID: 7}, nil},
		{"it does not become ready", errors.New("not ready within 2m"), []string{"started"}, api.UpgradeStep{Text: "not ready within 2m", Done: true}, nil},
		{"one is under way", fmt.Errorf("%w: one is under way", ErrNoUpgrade), nil, api.UpgradeStep{}, client.ErrPrecondition},
	} {
		r := newRig(t)
		asked := ""
		r.b.upgrade = func(binary string, tell func(string)) (int, error) {
			asked = binary
			for _, s := range c.steps {
				tell(s)
			}
			return 7, c.err
		}
		var told []string
		step, err := r.client(testToken).Upgrade(t.Context(), "/opt/new", func(s api.UpgradeStep) { told = append(told, s.Text) })
		if step != c.want || !slices.Equal(told, c.steps) || !errors.Is(err, c.class) || asked != "/opt/new" {
			t.Errorf("%s: %+v, told %q, asked for %q, %v", c.name, step, told, asked, err)
		}
	}
}

func TestUpgradeNeedsTheTokenAndATypeThatNoFormSends(t *testing.T) {
	r := newRig(t)
	r.b.upgrade = func(string, func(string)) (int, error) {
		t.Error("it was begun")
		return 0, nil
	}
	for _, header := range [][]string{
		{"Content-Type", "application/json"},
		{"Content-Type", "text/plain", "Authorization", "Bearer " + testToken},
		{"Content-Type", "application/json", "Authorization", "Bearer " + testToken, "Origin", "http://evil.example"},
	} {
		if resp, body := r.request("POST", "/api/v1/upgrade", "{}", header...); resp.StatusCode < 400 {
			t.Errorf("%v: %d %s", header, resp.StatusCode, body)
		}
	}
}

// A websocket is not held back by the browser's own rules for other sites: only the server can.
func TestWebsocketOfAnotherSiteIsRefused(t *testing.T) {
	r := newRig(t)
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	for _, c := range [][]string{{"Origin", "http://evil.example"}, {"Origin", "null"}, {"Host", "evil.example", "Origin", "http://evil.example"}} {
		if resp, _ := r.request("GET", "/api/v1/stream", "", append(upgrade, c...)...); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%v: %d", c, resp.StatusCode)
		}
	}
}

func TestAdminOnAUnixSocketIsReadWithoutTokenAndWrittenWithIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	r := newRig(t, func(o *Options) { o.Addr = "unix:" + path })
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: r.s.Handler()}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-served })
	for _, token := range []string{"", testToken} {
		c, err := client.New(client.Options{Address: "unix:" + path, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Status(t.Context()); err != nil {
			t.Errorf("token %q: %v", token, err)
		}
		if _, err := c.Reload(t.Context()); (err == nil) != (token != "") {
			t.Errorf("token %q: writing gives %v", token, err)
		}
		c.CloseIdle()
	}
}
