package ui

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func builtApp() fstest.MapFS {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	return fstest.MapFS{
		"index.html":          file("<!doctype html>index"),
		"index.html.br":       file("BR-index"),
		"app-3KSJ2A7Q.js":     file("plain js"),
		"app-3KSJ2A7Q.js.br":  file("BR-js"),
		"app-3KSJ2A7Q.js.gz":  file("GZ-js"),
		"app-9ABCDEF0.css":    file("css"),
		"icon.svg":            file("<svg/>"),
		".gitkeep":            file(""),
		"assets/deep-file.js": file("deep"),
	}
}

func TestStaticFiles(t *testing.T) {
	r := newRig(t)
	r.s.app.files = builtApp()
	const immutable = "public, max-age=31536000, immutable"
	for _, c := range []struct {
		path, accept                        string
		status                              int
		body, encoding, cache, typ, comment string
	}{
		{"/", "", 200, "<!doctype html>index", "", "no-cache", "text/html; charset=utf-8", ""},
		{"/", "gzip, br", 200, "BR-index", "br", "no-cache", "text/html; charset=utf-8", ""},
		{"/policy", "", 200, "<!doctype html>index", "", "no-cache", "text/html; charset=utf-8", "a page of the app"},
		{"/app-3KSJ2A7Q.js", "br;q=0, gzip", 200, "GZ-js", "gzip", immutable, "text/javascript; charset=utf-8", ""},
		{"/app-3KSJ2A7Q.js", "identity", 200, "plain js", "", immutable, "text/javascript; charset=utf-8", ""},
		{"/app-3KSJ2A7Q.js", "broken, gzipped", 200, "plain js", "", immutable, "text/javascript; charset=utf-8", ""},
		{"/app-9ABCDEF0.css", "br", 200, "css", "", immutable, "text/css; charset=utf-8", "no twin"},
		{"/icon.svg", "", 200, "<svg/>", "", "no-cache", "image/svg+xml", "not hashed"},
		{"/assets/deep-file.js", "", 200, "deep", "", "no-cache", "text/javascript; charset=utf-8", "not hashed"},
		{"/missing.js", "", 404, "", "", "no-store", "application/problem+json", "has an extension"},
		{"/app-3KSJ2A7Q.js.br", "", 404, "", "", "no-store", "application/problem+json", "twins have no address"},
		{"/.gitkeep", "", 404, "", "", "no-store", "application/problem+json", ""},
		{"/assets", "", 200, "<!doctype html>index", "", "no-cache", "text/html; charset=utf-8", "a folder is no file"},
	} {
		// Naming a coding ourselves keeps Go's client from undoing it.
		accept := c.accept
		if accept == "" {
			accept = "identity"
		}
		resp, body := r.request("GET", c.path, "", "Accept-Encoding", accept)
		h := resp.Header
		if resp.StatusCode != c.status || c.body != "" && string(body) != c.body || h.Get("Content-Encoding") != c.encoding ||
			h.Get("Cache-Control") != c.cache || h.Get("Content-Type") != c.typ {
			t.Errorf("%s (%s) %s: %d %q %v", c.path, accept, c.comment, resp.StatusCode, body, h)
		}
		if c.status != 200 {
			continue
		}
		if h.Get("Vary") != "Accept-Encoding" || h.Get("ETag") == "" {
			t.Errorf("%s: %v", c.path, h)
		}
		if resp, body := r.request("GET", c.path, "", "Accept-Encoding", accept, "If-None-Match", "W/"+h.Get("ETag")); resp.StatusCode != http.StatusNotModified || len(body) != 0 {
			t.Errorf("%s again: %d", c.path, resp.StatusCode)
		}
	}
	plain, _ := r.request("GET", "/app-3KSJ2A7Q.js", "", "Accept-Encoding", "identity")
	packed, _ := r.request("GET", "/app-3KSJ2A7Q.js", "", "Accept-Encoding", "br")
	if plain.Header.Get("ETag") == packed.Header.Get("ETag") {
		t.Error("two encodings share an ETag")
	}
}

func TestWithoutABuiltAppThePageSaysSo(t *testing.T) {
	r := newRig(t)
	r.s.app.files = fstest.MapFS{".gitkeep": &fstest.MapFile{}}
	resp, body := r.request("GET", "/", "")
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "make ui") || strings.Contains(string(body), "<script") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestUIDirIsServedFresh(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("index.html", "one")
	write("index.html.br", "stale twin")
	secret := filepath.Join(t.TempDir(), "secret.txt")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "link.txt")); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *Options) { o.UIDir = dir })
	if resp, body := r.request("GET", "/", "", "Accept-Encoding", "br"); string(body) != "one" || resp.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("%s %v", body, resp.Header)
	}
	write("index.html", "two")
	if _, body := r.request("GET", "/", ""); string(body) != "two" {
		t.Errorf("%s", body)
	}
	if resp, body := r.request("GET", "/link.txt", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a link out of the folder was followed: %d %s", resp.StatusCode, body)
	}
	if resp, body := r.request("GET", "/../secret.txt", ""); strings.Contains(string(body), "secret\"") || resp.StatusCode == http.StatusInternalServerError {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestR18_TheEmbeddedAppIsWhole looks at what was built into this binary, when something was.
func TestR18_TheEmbeddedAppIsWhole(t *testing.T) {
	app, err := newApp("")
	if err != nil {
		t.Fatal(err)
	}
	index, err := fs.ReadFile(app.files, "index.html")
	if err != nil {
		if _, missing := fs.ReadFile(app.files, ".gitkeep"); missing != nil {
			t.Fatalf("neither an app nor the placeholder is built in: %v", err)
		}
		return // built without the dashboard: go test alone; make test builds it first
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="/?([^"#:]+)"`).FindAllStringSubmatch(string(index), -1) {
		if _, err := fs.Stat(app.files, m[1]); err != nil {
			t.Errorf("index.html refers to %s: %v", m[1], err)
		}
	}
	for _, m := range regexp.MustCompile(`<script(?: [^>]*)?>([^<]+)</script>|<style|style="|\son[a-z]+="`).FindAllString(string(index), -1) {
		t.Errorf("index.html has %.60s, which the CSP forbids", m)
	}
	err = fs.WalkDir(app.files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".gz") {
			return err
		}
		plain, err := fs.ReadFile(app.files, strings.TrimSuffix(name, ".gz"))
		if err != nil {
			t.Errorf("%s has no plain file: %v", name, err)
			return nil
		}
		f, err := app.files.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		z, err := gzip.NewReader(f)
		if err != nil {
			return err
		}
		if got, err := io.ReadAll(z); err != nil || string(got) != string(plain) {
			t.Errorf("%s is not its plain file (%v)", name, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
