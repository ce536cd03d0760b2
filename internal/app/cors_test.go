package app

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestPagesMayCallTheGateOnlyFromConfiguredOrigins(t *testing.T) {
	const preflight = http.MethodOptions
	for _, c := range []struct {
		name    string
		origins []string
		method  string
		header  []string
		reaches bool
		allow   string
		vary    string
	}{
		{"off: a page", nil, "POST", []string{"Origin", "https://chat.example"}, true, "", ""},
		{"off: a preflight", nil, preflight, []string{"Origin", "https://chat.example", "Access-Control-Request-Method", "POST"}, true, "", ""},
		{"no browser", []string{"https://chat.example"}, "POST", nil, true, "", "Origin"},
		{"its page", []string{"https://chat.example"}, "POST", []string{"Origin", "https://chat.example"}, true, "https://chat.example", "Origin"},
		{"its preflight", []string{"https://chat.example"}, preflight, []string{"Origin", "https://chat.example", "Access-Control-Request-Method", "POST"}, false, "https://chat.example", "Origin"},
		{"another page", []string{"https://chat.example"}, "POST", []string{"Origin", "https://evil.example"}, true, "", "Origin"},
		{"a page whose name goes on", []string{"https://chat.example"}, "POST", []string{"Origin", "https://chat.example.evil"}, true, "", "Origin"},
		{"the other scheme", []string{"https://chat.example"}, "POST", []string{"Origin", "http://chat.example"}, true, "", "Origin"},
		{"a page without an origin", []string{"https://chat.example"}, "POST", []string{"Origin", "null"}, true, "", "Origin"},
		{"another page's preflight", []string{"https://chat.example"}, preflight, []string{"Origin", "https://evil.example", "Access-Control-Request-Method", "POST"}, true, "", "Origin"},
		{"OPTIONS that is no preflight", []string{"https://chat.example"}, preflight, []string{"Origin", "https://chat.example"}, true, "https://chat.example", "Origin"},
		{"every page", []string{"*"}, "POST", []string{"Origin", "https://any.example"}, true, "*", ""},
		{"every page's preflight", []string{"*"}, preflight, []string{"Origin", "null", "Access-Control-Request-Method", "POST"}, false, "*", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			reached := false
			h := crossOrigin(c.origins, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
			r := httptest.NewRequest(c.method, "/v1/chat/completions", nil)
			for i := 0; i < len(c.header); i += 2 {
				r.Header.Set(c.header[i], c.header[i+1])
			}
			r.Header.Set("Access-Control-Request-Headers", "authorization,content-type")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			got := w.Header()
			if reached != c.reaches || got.Get("Access-Control-Allow-Origin") != c.allow || got.Get("Vary") != c.vary {
				t.Errorf("reached the gate %v, headers %v", reached, got)
			}
			if got.Get("Access-Control-Allow-Credentials") != "" {
				t.Error("a browser would add credentials by itself")
			}
			if !c.reaches && (w.Code != http.StatusNoContent || got.Get("Access-Control-Allow-Headers") != "authorization,content-type" || got.Get("Access-Control-Allow-Methods") != "GET, POST") {
				t.Errorf("a preflight gets %d %v", w.Code, got)
			}
			if (got.Get("Access-Control-Expose-Headers") != "") != (c.allow != "" && c.reaches) {
				t.Errorf("readable headers %q", got.Get("Access-Control-Expose-Headers"))
			}
		})
	}
}
