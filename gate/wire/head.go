package wire

import (
	"net/http"
	"net/url"
	"strings"
)

// head is a request's head, parsed.
type head struct {
	method, target, host string
	url                  url.URL
	header               http.Header
	// room is for the values of the header's fields.
	room [16]string
	// minor is the minor version of HTTP/1.
	minor int
	// length is the body's, -1 when it is chunked, 0 when there is none.
	length  int64
	chunked bool
	// expect: the caller waits for 100 Continue before it sends the body.
	expect bool
	// close: the caller wants the connection closed after this, or knows no better.
	close bool
}

// parse parses a whole head, the empty line included. The zero head may have a header, which is empty, to be used.
func (h *head) parse(s string) *Problem {
	line, rest, ok := strings.Cut(s, "\r\n")
	if !ok {
		return bad("bad_request_line", "The request line is cut off.")
	}
	if p := h.requestLine(line); p != nil {
		return p
	}
	var p *Problem
	if h.header, p = fields(rest, h.header, h.room[:]); p != nil {
		return p
	}
	if p := h.checkHost(); p != nil {
		return p
	}
	if p := h.framing(); p != nil {
		return p
	}
	return h.options()
}

func (h *head) requestLine(line string) *Problem {
	method, rest, ok := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	switch {
	case !allToken(method):
		return bad("bad_method", "This is no HTTP/1.1 request: it must begin with a method and a space. TLS is spoken on another port, if at all.")
	case ok && !ok2 && target != "":
		return bad("http_0_9", "The request line has no version (HTTP/0.9), which is not served; use HTTP/1.1.")
	case !ok || !ok2 || target == "":
		return bad("bad_request_line", "The request line must be: method, space, path, space, HTTP/1.1.")
	}
	switch {
	case version == "HTTP/1.1":
		h.minor = 1
	case version == "HTTP/1.0":
	case method == "PRI" && version == "HTTP/2.0":
		return problem(http.StatusHTTPVersionNotSupported, "http_2", "HTTP/2 is not served here; use HTTP/1.1.")
	case len(version) == len("HTTP/1.1") && strings.HasPrefix(version, "HTTP/") && version[6] == '.':
		return problem(http.StatusHTTPVersionNotSupported, "bad_version", "This version of HTTP is not served; use HTTP/1.1.")
	default:
		return bad("bad_request_line", "The request line must be: method, space, path, space, HTTP/1.1.")
	}
	h.method, h.target = method, target
	return h.parseTarget()
}

func (h *head) parseTarget() *Problem {
	t := h.target
	for i := range len(t) {
		if t[i] <= ' ' || t[i] == 0x7f {
			return bad("bad_target", "The path has a space or a control character; percent-encode it.")
		}
	}
	switch {
	case h.method == http.MethodConnect:
		return bad("connect", "This is not a proxy: CONNECT is not served.")
	case t == "*" && h.method == http.MethodOptions:
		h.url = url.URL{Path: "*"}
		return nil
	case t[0] != '/':
		return bad("absolute_target", "This is not a proxy: the request line must have a path that begins with a slash, the server's name belongs into Host.")
	}
	path, query, asked := strings.Cut(t, "?")
	for i := range len(path) {
		if !plainPath(path[i]) {
			return h.parseEscaped()
		}
	}
	h.url = url.URL{Path: path, RawQuery: query, ForceQuery: asked && query == ""}
	return nil
}

func (h *head) parseEscaped() (p *Problem) {
	u, err := url.ParseRequestURI(h.target)
	if err != nil {
		return bad("bad_target", "The path is not a valid one; percent-encode what is not a letter, digit or one of -._~/.")
	}
	h.url = *u
	return nil
}

func (h *head) checkHost() *Problem {
	hosts := h.header["Host"]
	switch {
	case len(hosts) > 1:
		return bad("many_hosts", "The head has more than one Host field; send one.")
	case len(hosts) == 0 && h.minor > 0:
		return bad("no_host", "The head has no Host field, which HTTP/1.1 requires; send one.")
	case len(hosts) == 0:
		return nil
	}
	h.host = hosts[0]
	for i := range len(h.host) {
		if !isHost(h.host[i]) {
			return bad("bad_host", "The Host field has a character that no host name has.")
		}
	}
	delete(h.header, "Host")
	return nil
}

// framing finds out where the body ends, by one rule or not at all (RFC 9112 section 6.3).
func (h *head) framing() (p *Problem) {
	te, cl := h.header["Transfer-Encoding"], h.header["Content-Length"]
	switch {
	case len(te) == 0:
		if h.length, p = contentLength(h.header); p == nil && h.length < 0 {
			h.length = 0
		}
		return p
	case len(cl) > 0:
		return bad("two_lengths", "The request has both Content-Length and Transfer-Encoding; send one of them.")
	case h.minor == 0:
		return bad("chunked_1_0", "HTTP/1.0 knows no Transfer-Encoding; use HTTP/1.1 or Content-Length.")
	case len(te) > 1 || !strings.EqualFold(te[0], "chunked"):
		return problem(http.StatusNotImplemented, "bad_transfer_encoding", "The only Transfer-Encoding that is served is chunked, given once.")
	}
	delete(h.header, "Transfer-Encoding")
	h.length, h.chunked = -1, true
	return nil
}

func (h *head) options() *Problem {
	connection := h.header["Connection"]
	h.close = hasListed(connection, "close") || h.minor == 0 && !hasListed(connection, "keep-alive")
	expect := h.header["Expect"]
	if len(expect) == 0 || h.minor == 0 {
		return nil
	}
	if len(expect) > 1 || !strings.EqualFold(expect[0], "100-continue") {
		return problem(http.StatusExpectationFailed, "bad_expect", "The only expectation that can be met is 100-continue.")
	}
	h.expect = h.length != 0
	return nil
}
