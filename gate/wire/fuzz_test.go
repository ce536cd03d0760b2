package wire

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"

	"admitd/test/seeds"
)

// Whatever we take for a request net/http takes for the same one: nothing reads it differently behind our back.
func FuzzHead(f *testing.F) {
	for _, s := range []string{plainGet, last, chunkedHead, "POST /a%20b?c HTTP/1.0\r\nContent-Length: 5\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
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
		h, p := parseHead(s)
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
		ours, err := parseResponse(s)
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
		for name, values := range theirs.Header {
			if strings.Join(values, "\n") != strings.Join(ours.Header[name], "\n") {
				t.Errorf("%q: %s is %q to us and %q to net/http", s, name, ours.Header[name], values)
			}
		}
	})
}
