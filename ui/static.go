package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"regexp"
	"strings"
)

// dist is what ui/web was built into before the binary was; without a build it holds a placeholder only.
//
//go:embed all:dist
var dist embed.FS

// hashedName matches names that change with their content, as the web app's build makes them: name-HASH.ext.
var hashedName = regexp.MustCompile(`-[A-Za-z0-9_]{8,}\.[a-z0-9.]+$`)

// app serves the web app.
type app struct {
	files fs.FS
	// live is true when files may change while we run (--ui-dir).
	live bool
}

func newApp(dir string) (*app, error) {
	if dir == "" {
		sub, err := fs.Sub(dist, "dist")
		if err != nil {
			return nil, fmt.Errorf("open the embedded web app: %w", err)
		}
		return &app{files: sub}, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open --ui-dir: %w", err)
	}
	return &app{files: root.FS(), live: true}, nil
}

const notBuilt = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>admitd</title></head>
<body><h1>admitd</h1>
<p>This binary was built without the dashboard. Run <code>make ui</code> and build it again, or start it with
<code>--ui-dir</code>.</p>
<p>The admin API is here all the same: <a href="/api/v1/status">/api/v1/status</a>, <a href="/metrics">/metrics</a>.</p>
</body></html>
`

// ServeHTTP serves a file; a path without an extension that is no file is a page of the app and gets the index.
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	if name == "" {
		name = "index.html"
	}
	body, err := fs.ReadFile(a.files, name)
	if err == nil && hidden(name) {
		err = fs.ErrNotExist
	}
	if err != nil && path.Ext(name) == "" {
		name = "index.html"
		body, err = fs.ReadFile(a.files, name)
	}
	switch {
	case err == nil:
		a.send(w, r, name, body)
	case name == "index.html" && errors.Is(err, fs.ErrNotExist):
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write([]byte(notBuilt))
	default:
		newProblem(http.StatusNotFound, "no_such_file", "There is no such file in the dashboard.").write(w)
	}
}

// hidden files are not the app's: dot files, and the compressed twins, which are served under the plain name.
func hidden(name string) bool {
	return strings.HasPrefix(path.Base(name), ".") || strings.HasSuffix(name, ".br") || strings.HasSuffix(name, ".gz")
}

func (a *app) send(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", mediaType(name))
	h.Set("Vary", "Accept-Encoding")
	for _, enc := range []struct{ name, ext string }{{"br", ".br"}, {"gzip", ".gz"}} {
		if a.live || !accepts(r.Header.Get("Accept-Encoding"), enc.name) {
			continue // on disk a twin may be older than its file
		}
		if twin, err := fs.ReadFile(a.files, name+enc.ext); err == nil {
			body = twin
			h.Set("Content-Encoding", enc.name)
			break
		}
	}
	sum := sha256.Sum256(body)
	etag := `"` + hex.EncodeToString(sum[:12]) + `"`
	h.Set("ETag", etag)
	if !a.live && hashedName.MatchString(name) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		h.Set("Cache-Control", "no-cache")
	}
	if matches(r.Header.Get("If-None-Match"), etag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(body) //nolint:gosec // a file of the embedded app, with its own content type and nosniff
}

func matches(header, etag string) bool {
	for t := range strings.SplitSeq(header, ",") {
		if t = strings.TrimPrefix(strings.TrimSpace(t), "W/"); t == etag || t == "*" {
			return true
		}
	}
	return false
}

// accepts reads Accept-Encoding: the coding is named and not refused by q=0.
func accepts(header, coding string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		if !strings.EqualFold(strings.TrimSpace(name), coding) {
			continue
		}
		q := strings.ReplaceAll(strings.ToLower(params), " ", "")
		return q != "q=0" && !strings.HasPrefix(q, "q=0.000") && q != "q=0.0" && q != "q=0.00"
	}
	return false
}

// mediaType is our own table: the system's differs between machines, and nosniff makes a wrong one fatal.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".png":
		return "image/png"
	case ".ico":
		return "image/x-icon"
	case ".json", ".map":
		return "application/json"
	case ".woff2":
		return "font/woff2"
	case ".txt":
		return "text/plain; charset=utf-8"
	case ".webmanifest":
		return "application/manifest+json"
	}
	return "application/octet-stream"
}
