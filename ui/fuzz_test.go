package ui

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"admitd/ui/api"
)

func TestAnUpgradeWithAMistypedFieldIsNotBegun(t *testing.T) {
	r := newRig(t)
	r.b.upgrade = func(string, func(string)) (int, error) {
		t.Error("it was begun")
		return 0, nil
	}
	header := []string{"Content-Type", "application/json", "Authorization", "Bearer " + testToken}
	for _, body := range []string{`{"binray":"/opt/new"}`, `{"binary":"/opt/new"} x`, `{"binary":7}`, `[]`} {
		if resp, text := r.request("POST", "/api/v1/upgrade", body, header...); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, resp.StatusCode, text)
		}
	}
}

// A body that is taken is one JSON value without a member that we do not know.
func FuzzBody(f *testing.F) {
	for _, s := range []string{`{"text":"policy: admit-all\n","note":"n"}`, `{"rev":"a"}`, `{"binary":"/b"}`, `null`, `{} {}`, `{"text":1}`, `{"Text":"x","x":{}}`, "\xff"} {
		f.Add([]byte(s))
	}
	known := map[string]bool{"text": true, "note": true, "rev": true, "binary": true}
	f.Fuzz(func(t *testing.T, body []byte) {
		var all struct {
			api.PolicyText
			api.RevertRequest
			api.UpgradeRequest
		}
		if prob := decodeStrict(body, &all); prob != nil {
			if prob.Status != http.StatusBadRequest || prob.Detail == "" {
				t.Fatalf("%q: %+v", body, prob)
			}
			return
		}
		var members map[string]any
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatalf("%q is taken, encoding/json says %v", body, err)
		}
		for name := range members {
			if !known[strings.ToLower(name)] && !strings.ContainsFunc(name, func(r rune) bool { return r > 0x7e }) {
				t.Fatalf("%q is taken with the member %q", body, name)
			}
		}
	})
}

func TestATimeBeyondTheYear9999IsAnError(t *testing.T) {
	for text, taken := range map[string]bool{"253402300799999": true, "253402300800000": false, "9223372036854775807": false} {
		at, err := instant(url.Values{"from": {text}}, "from", time.Time{})
		if (err == nil) != taken || taken && at.UTC().Year() != 9999 {
			t.Errorf("%s: %v, %v", text, at, err)
		}
	}
}

// Numbers, times and durations of a query are within their bounds, whatever is written there, and errors are short.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"", "5", "-1", "9223372036854775807", "1s", "2562047h47m16.854775807s", "2026-11-30T12:00:00Z", "1796043521000", "+7", "0x10"} {
		f.Add(s)
	}
	def := time.Unix(1, 0)
	f.Fuzz(func(t *testing.T, text string) {
		v := url.Values{"x": {text}}
		n, err1 := whole(v, "x", 7, 0, 1000)
		at, err2 := instant(v, "x", def)
		d, err3 := span(v, "x", time.Second)
		if err1 == nil && (n < 0 || n > 1000) || err3 == nil && (d < 0 || d > 24*time.Hour) {
			t.Fatalf("%q is %d, %v", text, n, d)
		}
		if _, err := json.Marshal(at); err2 == nil && err != nil {
			t.Fatalf("%q is the time %v, which cannot be answered: %v", text, at, err)
		}
		for _, err := range []error{err1, err2, err3} {
			if err != nil && (text == "" || len(err.Error()) > 250) {
				t.Fatalf("%q: %v", text, err)
			}
		}
	})
}

// A page of another site has no way in, and nobody changes anything without the token.
func FuzzGuard(f *testing.F) {
	f.Add("localhost:8081", "http://localhost:8081", "Bearer "+testToken, "")
	f.Add("127.0.0.1", "https://127.0.0.1.evil.example", "bearer", "admitd.token.x")
	f.Add("evil.example", "http://evil.example", "", "a, "+api.TokenProtocol+testToken)
	f.Add("localhost", "null", "Basic eA==", api.TokenProtocol+base64.RawURLEncoding.EncodeToString([]byte(testToken)))
	g, err := newGuard("127.0.0.1:8081", nil, testToken)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, host, origin, auth, protocols string) {
		r := &http.Request{Method: http.MethodGet, Host: host, URL: &url.URL{Path: "/api/v1/stream"}, Header: http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {protocols}, "Origin": {origin},
		}}
		if auth != "" {
			r.Header.Set("Authorization", auth)
		}
		if g.host(r) == nil && g.origin(r) == nil {
			if u, err := url.Parse(origin); err != nil || !isLoopbackName(strings.ToLower(u.Hostname())) || u.User != nil {
				t.Fatalf("a page of %q is let in at %q", origin, host)
			}
		}
		if g.authorise(r, true) == nil {
			said := auth + protocols
			if !strings.Contains(said, testToken) && !strings.Contains(said, base64.RawURLEncoding.EncodeToString([]byte(testToken))) {
				t.Fatalf("let in with %q and %q", auth, protocols)
			}
		}
		if name := hostName(host); name != "" && bytes.ContainsAny([]byte(name), "/@?# ") {
			t.Fatalf("%q is the host %q", host, name)
		}
	})
}
