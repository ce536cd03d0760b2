package ui

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestR17_ReadsAndWritesAreGuarded(t *testing.T) {
	const j, y = "application/json", "text/yaml"
	loop := newRig(t)
	wide := newRig(t, func(o *Options) { o.Addr = "0.0.0.0:8081"; o.AllowedHosts = []string{"gpu.example"} })
	for _, c := range []struct {
		name   string
		r      *rig
		method string
		path   string
		header []string
		status int
		word   string
	}{
		{"read on loopback", loop, "GET", "/api/v1/status", nil, 200, ""},
		{"read under localhost", loop, "GET", "/api/v1/status", []string{"Host", "localhost:8081"}, 200, ""},
		{"read under ::1", loop, "GET", "/api/v1/status", []string{"Host", "[::1]:8081"}, 200, ""},
		{"metrics on loopback", loop, "GET", "/metrics", nil, 200, ""},
		{"rebound name", loop, "GET", "/api/v1/status", []string{"Host", "evil.example"}, 403, "host_refused"},
		{"rebound name on the page", loop, "GET", "/", []string{"Host", "evil.example"}, 403, "host_refused"},
		{"rebound name with the token", loop, "GET", "/api/v1/status", []string{"Host", "evil.example", "Authorization", "Bearer " + testToken}, 403, "host_refused"},
		{"name that begins like ours", loop, "GET", "/", []string{"Host", "localhost.evil.example"}, 403, "host_refused"},
		{"name with a dot", loop, "GET", "/", []string{"Host", "localhost."}, 403, "host_refused"},
		{"address that is not loopback", loop, "GET", "/", []string{"Host", "10.0.0.1:8081"}, 403, "host_refused"},
		{"page of another site", loop, "GET", "/api/v1/status", []string{"Origin", "http://evil.example"}, 403, "origin_refused"},
		{"page without an origin of its own", loop, "GET", "/api/v1/status", []string{"Origin", "null"}, 403, "origin_refused"},
		{"page of another port", loop, "GET", "/api/v1/status", []string{"Origin", "http://localhost:1", "Host", "localhost:8081"}, 403, "origin_refused"},
		{"our own page", loop, "GET", "/api/v1/status", []string{"Origin", "http://localhost:8081", "Host", "localhost:8081"}, 200, ""},
		{"image in another site's page", loop, "GET", "/api/v1/status", []string{"Sec-Fetch-Site", "cross-site"}, 403, "origin_refused"},
		{"link from another site", loop, "GET", "/", []string{"Sec-Fetch-Site", "cross-site"}, 200, ""},
		{"token in the URL", loop, "GET", "/api/v1/status?token=x", nil, 400, "token_in_query"},
		{"write without token", loop, "POST", "/api/v1/reload", []string{"Content-Type", j}, 401, "token_missing"},
		{"write with a wrong token", loop, "POST", "/api/v1/reload", []string{"Content-Type", j, "Authorization", "Bearer x"}, 401, "token_wrong"},
		{"write with another scheme", loop, "POST", "/api/v1/reload", []string{"Content-Type", j, "Authorization", "Basic " + testToken}, 401, "token_missing"},
		{"write as a form would", loop, "POST", "/api/v1/reload", []string{"Content-Type", "text/plain", "Authorization", "Bearer " + testToken}, 415, "content_type"},
		{"write without a type", loop, "POST", "/api/v1/reload", []string{"Authorization", "Bearer " + testToken}, 415, "content_type"},
		{"yaml where it is not taken", loop, "POST", "/api/v1/reload", []string{"Content-Type", y, "Authorization", "Bearer " + testToken}, 415, "content_type"},
		{"write from another site, with the token", loop, "POST", "/api/v1/reload", []string{"Content-Type", j, "Authorization", "Bearer " + testToken, "Origin", "http://evil.example"}, 403, "origin_refused"},
		{"write", loop, "POST", "/api/v1/reload", []string{"Content-Type", j, "Authorization", "Bearer " + testToken}, 200, ""},

		{"read off loopback", wide, "GET", "/api/v1/status", nil, 401, "token_missing"},
		{"metrics off loopback", wide, "GET", "/metrics", nil, 401, "token_missing"},
		{"stream off loopback", wide, "GET", "/api/v1/stream", nil, 401, "token_missing"},
		{"read off loopback with the token", wide, "GET", "/api/v1/status", []string{"Authorization", "Bearer " + testToken}, 200, ""},
		{"wildcard listener under an address", wide, "GET", "/api/v1/status", []string{"Host", "10.0.0.1:8081", "Authorization", "bearer " + testToken}, 200, ""},
		{"allowed name", wide, "GET", "/api/v1/status", []string{"Host", "GPU.example", "Authorization", "Bearer " + testToken}, 200, ""},
		{"other name", wide, "GET", "/api/v1/status", []string{"Host", "x.example", "Authorization", "Bearer " + testToken}, 403, "host_refused"},
		{"page", wide, "GET", "/", nil, 200, ""},
		{"healthz", wide, "GET", "/healthz", nil, 200, ""},
		{"readyz", wide, "GET", "/readyz", nil, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := c.r.request(c.method, c.path, "", c.header...)
			if resp.StatusCode != c.status {
				t.Fatalf("status %d, want %d: %s", resp.StatusCode, c.status, body)
			}
			if c.word != "" {
				if w := problemWord(t, resp, body); w != c.word {
					t.Errorf("problem %s, want %s", w, c.word)
				}
			}
			if (resp.Header.Get("WWW-Authenticate") != "") != (c.status == 401) {
				t.Errorf("WWW-Authenticate %q with status %d", resp.Header.Get("WWW-Authenticate"), c.status)
			}
			checkSecureHeaders(t, resp.Header)
		})
	}
}

// Commands go on after it, with where the token is.
func TestWhatIsSaidAboutAMissingTokenIsAWholeSentence(t *testing.T) {
	r := newRig(t)
	for _, header := range [][]string{{"Content-Type", "application/json"}, {"Content-Type", "application/json", "Authorization", "Basic x"}} {
		_, body := r.request("POST", "/api/v1/reload", "", header...)
		var p struct{ Detail string }
		if err := json.Unmarshal(body, &p); err != nil || !strings.HasSuffix(p.Detail, "Bearer TOKEN.") {
			t.Errorf("%q %v", p.Detail, err)
		}
	}
}

func checkSecureHeaders(t *testing.T, h http.Header) {
	t.Helper()
	csp := h.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(csp, part) {
			t.Errorf("CSP %q lacks %s", csp, part)
		}
	}
	if strings.Contains(csp, "unsafe") {
		t.Errorf("CSP %q allows inline code", csp)
	}
	if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("headers %v", h)
	}
	if h.Get("Set-Cookie") != "" || h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("headers %v: no cookies, no CORS", h)
	}
}

func TestR17_ANameFromOutsideNeedsTheTokenOnALoopbackListenerToo(t *testing.T) {
	r := newRig(t, func(o *Options) { o.AllowedHosts = []string{"gpu.example"} })
	resp, body := r.request("GET", "/api/v1/status", "", "Host", "gpu.example")
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d %s", resp.StatusCode, body)
	}
	if resp, _ := r.request("GET", "/api/v1/status", "", "Host", "gpu.example", "Authorization", "Bearer "+testToken); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d with the token", resp.StatusCode)
	}
}

func TestWithoutATokenNothingCanBeWritten(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Token = "" })
	resp, body := r.write("POST", "/api/v1/reload", "{}")
	if resp.StatusCode != http.StatusUnauthorized || problemWord(t, resp, body) != "token_unset" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, _ := r.request("GET", "/api/v1/status", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("a read on loopback: %d", resp.StatusCode)
	}
}

func TestNewRefusesWhatWouldBeUnsafe(t *testing.T) {
	good := newRig(t).s.o
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"no token off loopback", func(o *Options) { o.Addr, o.Token = "0.0.0.0:8081", "" }, "an admin token must be set"},
		{"no token on a name", func(o *Options) { o.Addr, o.Token = "gpu.example:8081", "" }, "an admin token must be set"},
		{"no port", func(o *Options) { o.Addr = "127.0.0.1" }, "listen address"},
		{"host pattern", func(o *Options) { o.AllowedHosts = []string{"*.example"} }, "allowed host"},
		{"host with scheme", func(o *Options) { o.AllowedHosts = []string{"http://x"} }, "allowed host"},
		{"no such folder", func(o *Options) { o.UIDir = "/no/such/folder" }, "--ui-dir"},
		{"no backend", func(o *Options) { o.Backend = nil }, "must be given"},
		{"no pools", func(o *Options) { o.Backend = &fakeBackend{} }, "no pool"},
		{"metrics twice", func(*Options) {}, "register metrics"},
	} {
		o := good
		if c.name != "metrics twice" {
			o.Registry = prometheus.NewRegistry()
		}
		o.Logger = slog.New(slog.DiscardHandler)
		c.change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func TestUnknownPathsAndMethodsAreProblems(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ method, path, word, allow string }{
		{"GET", "/api/v1/nothing", "no_such_path", ""},
		{"GET", "/api/v2/status", "no_such_path", ""},
		{"DELETE", "/api/v1/policy", "method_not_allowed", "GET, PUT"},
		{"POST", "/api/v1/decisions/x", "method_not_allowed", "GET"},
		{"POST", "/healthz", "method_not_allowed", "GET"},
		{"POST", "/", "method_not_allowed", "GET, HEAD"},
		{"GET", "/api/v1/status/", "no_such_path", ""},
		{"GET", "/api/v1/signals?pool=nope", "no_such_pool", ""},
	} {
		resp, body := r.request(c.method, c.path, "")
		if w := problemWord(t, resp, body); w != c.word || resp.Header.Get("Allow") != c.allow {
			t.Errorf("%s %s: %s, Allow %q; want %s, %q", c.method, c.path, w, resp.Header.Get("Allow"), c.word, c.allow)
		}
	}
}

func FuzzHostName(f *testing.F) {
	for _, h := range []string{"localhost", "localhost:80", "[::1]:80", "127.0.0.1", "a@localhost", "localhost/", "localhost:80:80", "", "[::1", "%6c"} {
		f.Add(h)
	}
	g, err := newGuard("127.0.0.1:8081", nil, testToken)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, host string) {
		r := &http.Request{Host: host}
		if g.host(r) != nil {
			return
		}
		// What is let in is a loopback name with nothing but a port around it.
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.ToLower(host), "["), "]")
		if !strings.HasPrefix(host, "[") {
			name, _, _ = strings.Cut(name, ":")
		}
		if !isLoopbackName(name) {
			t.Errorf("Host %q was let in as %q", host, name)
		}
	})
}
