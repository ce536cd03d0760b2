package ui

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/gorilla/websocket"

	"admitd/ui/api"
)

// guard holds the listener's rules: who may address it, from where, and with what.
type guard struct {
	// loopback is true when the listener can be reached from this machine only.
	loopback bool
	// anyIP is true for a wildcard listener: an address cannot be rebound by DNS, so every IP literal is ours.
	anyIP    bool
	hosts    map[string]bool
	hasToken bool
	token    tokenSum
}

func newGuard(addr string, allowed []string, token string) (*guard, error) {
	if strings.HasPrefix(addr, "unix:") {
		// Who may open the file is the kernel's to say. No page of a browser can.
		addr = "localhost:0"
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("listen address %q: %w", addr, err)
	}
	g := &guard{hosts: map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}}
	ip, ipErr := netip.ParseAddr(host)
	switch {
	case host == "" || ipErr == nil && ip.IsUnspecified():
		g.anyIP = true
	case ipErr == nil:
		g.loopback = ip.IsLoopback()
		g.hosts[ip.WithZone("").Unmap().String()] = true
	default:
		g.loopback = strings.EqualFold(host, "localhost")
		g.hosts[strings.ToLower(host)] = true
	}
	for _, h := range allowed {
		if h == "" || strings.ContainsAny(h, "/:*@ ") && net.ParseIP(h) == nil {
			return nil, fmt.Errorf("allowed host %q: give a bare name or address, without scheme, port or pattern", h)
		}
		g.hosts[strings.ToLower(h)] = true
	}
	if token != "" {
		g.hasToken, g.token = true, sha256.Sum256([]byte(token))
	}
	if !g.loopback && !g.hasToken {
		return nil, fmt.Errorf("%s is not a loopback address, so an admin token must be set", addr)
	}
	return g, nil
}

// hostName takes the port off a Host header; "" when it is malformed.
func hostName(h string) string {
	if h == "" {
		return ""
	}
	u, err := url.Parse("http://" + h)
	if err != nil || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.Host != h {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

func isLoopbackName(name string) bool {
	if name == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}

// host refuses a request that addresses us by a name that is not ours: a page whose name was made to point at this
// machine (DNS rebinding).
func (g *guard) host(r *http.Request) *problem {
	name := hostName(r.Host)
	if g.hosts[name] {
		return nil
	}
	if ip, err := netip.ParseAddr(name); err == nil && (g.anyIP || g.loopback && ip.IsLoopback()) {
		return nil
	}
	return newProblem(http.StatusForbidden, "host_refused",
		fmt.Sprintf("The Host %q is not one of this listener's; add it to admin.allowed_hosts if it should be.", cutText(r.Host)))
}

// origin refuses requests that a page of another site made.
func (g *guard) origin(r *http.Request) *problem {
	o := r.Header.Values("Origin")
	if len(o) == 0 {
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" && strings.HasPrefix(r.URL.Path, "/api/") {
			return newProblem(http.StatusForbidden, "origin_refused", "A page of another site may not call the admin API.")
		}
		return nil
	}
	if len(o) == 1 && sameOrigin(o[0], r.Host) {
		return nil
	}
	return newProblem(http.StatusForbidden, "origin_refused",
		fmt.Sprintf("The Origin %q is not this listener's.", cutText(o[0])))
}

// sameOrigin accepts both schemes, because TLS may end in front of us.
func sameOrigin(origin, host string) bool {
	scheme, rest, ok := strings.Cut(origin, "://")
	return ok && (scheme == "http" || scheme == "https") && strings.EqualFold(rest, host)
}

// authorise checks the token where one is needed. On a loopback listener a read of a loopback Host needs none;
// under any other name somebody has made a way in from outside.
func (g *guard) authorise(r *http.Request, write bool) *problem {
	if r.URL.Query().Has("token") {
		return newProblem(http.StatusBadRequest, "token_in_query",
			"A token in the URL ends up in logs; send it as Authorization: Bearer.")
	}
	if !write && g.loopback && isLoopbackName(hostName(r.Host)) {
		return nil
	}
	if !g.hasToken {
		return unauthorised("token_unset", "No admin token is set, so nothing can be changed here.")
	}
	token, missing := bearer(r)
	if missing != "" {
		return unauthorised("token_missing", missing)
	}
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], g.token[:]) != 1 {
		return unauthorised("token_wrong", "The admin token is not the right one.")
	}
	return nil
}

func unauthorised(word, detail string) *problem {
	return newProblem(http.StatusUnauthorized, word, detail)
}

// noToken is a sentence, as every detail: commands add where the token is.
const noToken = "This needs the admin token, as Authorization: Bearer TOKEN."

// bearer returns the token of a request, from the header or, on a websocket, from the subprotocols; or what is missing.
func bearer(r *http.Request) (token, missing string) {
	if h := r.Header.Get("Authorization"); h != "" {
		scheme, value, ok := strings.Cut(h, " ")
		if !ok || !strings.EqualFold(scheme, "Bearer") || value == "" {
			return "", "The Authorization header must be of the form: Bearer TOKEN."
		}
		return strings.TrimSpace(value), ""
	}
	if !websocket.IsWebSocketUpgrade(r) {
		return "", noToken
	}
	for _, p := range websocket.Subprotocols(r) {
		if t, ok := strings.CutPrefix(p, api.TokenProtocol); ok && t != "" {
			if raw, err := base64.RawURLEncoding.DecodeString(t); err == nil && printable(raw) {
				return string(raw), ""
			}
			return t, ""
		}
	}
	return "", noToken
}

func printable(b []byte) bool {
	for _, c := range b {
		if c < 0x20 || c > 0x7e {
			return false
		}
	}
	return true
}

// contentType requires one of the types on a write: a form of another site cannot send them.
func contentType(r *http.Request, types ...string) *problem {
	got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil {
		if slices.Contains(types, got) {
			return nil
		}
	}
	return newProblem(http.StatusUnsupportedMediaType, "content_type",
		fmt.Sprintf("The Content-Type must be %s.", strings.Join(types, " or ")))
}

// secureHeaders go on every answer.
func secureHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

func cutText(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}
