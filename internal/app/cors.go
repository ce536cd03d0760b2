package app

import (
	"net/http"
	"slices"
	"strings"
)

// corsHeaders are what a page may read of an answer beyond the few that browsers always show.
const corsHeaders = "Retry-After, X-Admitd-Decision, X-Admitd-Reason, X-Admitd-Policy, X-Admitd-Request-Id, X-Admitd-Ticket, X-Request-Id"

// crossOrigin lets pages of the given origins call the gate from a browser (Fetch standard, "CORS protocol"). A preflight is
// answered here: it is no arrival, so there is no decision about it. Credentials that a browser would add by itself are never
// invited: keys travel in a header that the page sets.
func crossOrigin(origins []string, next http.Handler) http.Handler {
	if len(origins) == 0 {
		return next
	}
	every := slices.Contains(origins, "*")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if !every {
			h.Add("Vary", "Origin")
		}
		from := r.Header.Values("Origin")
		if len(from) != 1 || !every && !slices.Contains(origins, from[0]) {
			next.ServeHTTP(w, r)
			return
		}
		allow := from[0]
		if every {
			allow = "*"
		}
		h.Set("Access-Control-Allow-Origin", allow)
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			h.Set("Access-Control-Expose-Headers", corsHeaders)
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Methods", "GET, POST")
		// The star does not cover Authorization (Fetch standard, "CORS-safelisted"), so what is asked for is named.
		if asked := strings.Join(r.Header.Values("Access-Control-Request-Headers"), ", "); asked != "" {
			h.Set("Access-Control-Allow-Headers", asked)
		}
		h.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	})
}
