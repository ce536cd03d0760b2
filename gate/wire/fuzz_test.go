package wire

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"admitd/test/seeds"
)

// Whatever we take for a request net/http takes for the same one: nothing reads it differently behind our back.
func FuzzHead(f *testing.F) {
	for _, s := range []string{plainGet, last, chunkedHead, "POST /a%20b?c HTTP/1.0\r\nContent-Length: 5\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
		"GET / HTTP/1.1\nHost: h\n\n", "GET /\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n", "\r\n\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, p := headEnd([]byte(s), 0)
		if p != nil || n == 0 {
			return
		}
		s = s[:n]
		for from := range n {
			// However it comes in pieces, it ends in the same place.
			if m, p := headEnd([]byte(s), from); p == nil && m != n {
				t.Fatalf("the end is at %d, and at %d when the search begins at %d", n, m, from)
			}
		}
		h, p := parsed(s)
		if p != nil {
			if p.Status < 400 || p.Status > 505 || p.Code == "" || p.Message == "" {
				t.Errorf("problem %+v", p)
			}
			return
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(s)))
		if err != nil {
			t.Fatalf("we take %q, net/http does not: %v", s, err)
		}
		chunked := len(r.TransferEncoding) == 1 && r.TransferEncoding[0] == "chunked"
		if r.Method != h.method || r.RequestURI != h.target || r.Host != h.host || r.ContentLength != h.length || chunked != h.chunked || r.Close != h.close {
			t.Errorf("%q: net/http reads %+v, we %+v", s, r, h)
		}
		if r.URL.String() != h.url.String() || r.URL.Path != h.url.Path || r.URL.EscapedPath() != h.url.EscapedPath() || r.URL.RawQuery != h.url.RawQuery {
			t.Errorf("%q: net/http reads %#v, we %#v", s, r.URL, h.url)
		}
		for name, values := range h.header {
			if strings.Join(values, "\n") != strings.Join(r.Header[name], "\n") {
				t.Errorf("%q: %s is %q to us and %q to net/http", s, name, values, r.Header[name])
			}
		}
	})
}

// Whatever we take for a chunked body net/http takes for the same one, and pieces do not matter.
func FuzzChunked(f *testing.F) {
	for _, s := range []string{"0\r\n\r\n", "3\r\nabc\r\n0\r\n\r\n", "3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\n", "0003\r\nabc\r\n00\r\n\r\n", "3\nabc\n0\n\n", "fffffffffffffffff\r\n"} {
		f.Add(s, uint8(3), uint8(2))
	}
	f.Fuzz(func(t *testing.T, s string, in, out uint8) {
		var whole chunkDecoder
		dst := make([]byte, len(s)+1)
		n, used, err := whole.decode(dst, []byte(s))
		var d chunkDecoder
		var got []byte
		var pieceErr error
		at := 0
		for at < len(s) && !d.done() && pieceErr == nil {
			p := make([]byte, 1+int(out))
			var nd, ns int
			nd, ns, pieceErr = d.decode(p, []byte(s[at:min(len(s), at+1+int(in))]))
			got = append(got, p[:nd]...)
			at += ns
		}
		if !bytes.Equal(got, dst[:n]) || (pieceErr == nil) != (err == nil) || d.done() != whole.done() || err == nil && at != used {
			t.Fatalf("%q at once: %q, %d used, %v; in pieces: %q, %d used, %v", s, dst[:n], used, err, got, at, pieceErr)
		}
		if !whole.done() {
			return
		}
		theirs, err := io.ReadAll(httputil.NewChunkedReader(strings.NewReader(s)))
		if err != nil || !bytes.Equal(theirs, got) {
			t.Errorf("%q: we read %q, net/http %q, %v", s, got, theirs, err)
		}
	})
}

func TestALengthThatIsSaidTwiceIsOneLength(t *testing.T) {
	h, p := parsed("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n")
	if p != nil || h.length != 5 || len(h.header["Content-Length"]) != 1 {
		t.Errorf("%+v, %v", h, p)
	}
	answer := http.Header{"Content-Length": {"5", "5"}}
	if n, p := contentLength(answer); n != 5 || p != nil || len(answer["Content-Length"]) != 1 {
		t.Errorf("%d, %v, left with %v", n, p, answer)
	}
}

// Whatever we take for a response net/http takes for the same one.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{okAnswer, "HTTP/1.0 404 \r\n\r\n", "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n"} {
		f.Add(s)
	}
	for _, b := range seeds.Files(f, "../dialect/testdata/vllm-0.32.0/*.http") {
		f.Add(string(b[:min(len(b), 1024)]))
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, p := headEnd([]byte(s), 0)
		if p != nil || n == 0 {
			return
		}
		s = s[:n]
		ours := &http.Response{}
		err := parseResponse(s, ours, make([]string, 2))
		if err != nil {
			return
		}
		theirs, err := http.ReadResponse(bufio.NewReader(strings.NewReader(s)), nil)
		if err != nil {
			// It looks at lengths and codings at once, we when the body begins.
			if strings.Contains(err.Error(), "Content-Length") || strings.Contains(err.Error(), "transfer encoding") {
				return
			}
			t.Fatalf("we take %q, net/http does not: %v", s, err)
		}
		theirs.Body.Close()
		if ours.StatusCode != theirs.StatusCode || ours.ProtoMinor != theirs.ProtoMinor {
			t.Errorf("%q: status %d, net/http reads %d", s, ours.StatusCode, theirs.StatusCode)
		}
		if _, p := contentLength(ours.Header); p != nil {
			t.Errorf("%q: %s, and net/http takes it", s, p.Message)
		}
		for name, values := range theirs.Header {
			if strings.Join(values, "\n") != strings.Join(ours.Header[name], "\n") {
				t.Errorf("%q: %s is %q to us and %q to net/http", s, name, ours.Header[name], values)
			}
		}
	})
}

// Whatever we send net/http and we ourselves take for exactly the request that was meant: nothing in it makes a second one.
func FuzzSentHead(f *testing.F) {
	f.Add("POST", "http://engine/v1/a%20b?c=d", "Accept", "*/*", "{}")
	f.Add("GET", "http://engine/\r\nX: y", "A\r\nB", "c\r\nd: e", "")
	f.Add("GE T", "http://en gine//x", "Content-Length", "5", "abc")
	f.Add("", "http://[::1]:80?q#f", "Transfer-Encoding", "chunked", "")
	f.Fuzz(func(t *testing.T, method, address, name, value, content string) {
		u, err := url.Parse(address)
		if err != nil {
			return
		}
		name = http.CanonicalHeaderKey(name)
		req := &http.Request{Method: method, URL: u, Header: http.Header{name: {value, value}}, ContentLength: int64(len(content)), Body: io.NopCloser(strings.NewReader(content))}
		c := &Client{}
		up := &upload{}
		up.init(c, req)
		defer up.end()
		if content == "" {
			up.body, up.read, up.left = nil, true, 0
		}
		if up.begin() != nil || len(content) > 2000 {
			return
		}
		sent := string(up.buf)
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(sent)))
		if err != nil {
			if strings.Contains(err.Error(), "Host") {
				return // a host that the pool's address, not a caller, gives
			}
			t.Fatalf("we send %q, net/http does not take it: %v", sent, err)
		}
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != content || r.RequestURI != u.RequestURI() || method != "" && r.Method != method || r.Host != u.Host {
			t.Fatalf("%q: net/http reads %+v with the body %q, %v", sent, r, got, err)
		}
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Expect":
			return
		}
		if want := strings.Trim(value, " \t"); value != "" && (len(r.Header[name]) != 2 || r.Header[name][1] != want) {
			t.Fatalf("%q: %s is %q, want %q twice", sent, name, r.Header[name], want)
		}
		n, p := headEnd([]byte(sent), 0)
		if p != nil || n == 0 || len(sent)-n != len(content) {
			t.Fatalf("%q: our own head ends at %d (%+v), the body has %d bytes", sent, n, p, len(content))
		}
	})
}

func parsed(s string) (head, *Problem) {
	var h head
	p := h.parse(s)
	return h, p
}
