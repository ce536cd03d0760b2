package gate

import (
	"bufio"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
)

// Whatever headers a caller sends: nothing that belongs to one hop, to admitd or to its keys reaches the engine, and the
// engine's own hop headers do not reach the caller.
func FuzzHeaders(f *testing.F) {
	f.Add("Authorization: Bearer k\r\nconnection: X-Secret, close\r\nX-Secret: 1\r\nX-Admitd-Class: batch\r\nAccept: */*\r\n")
	f.Add("x-api-key: k\r\nTRANSFER-ENCODING: chunked\r\nTe: trailers\r\nUser-Agent: a\r\nX-Request-Id: theirs\r\n")
	f.Add("Connection: Content-Type\r\nContent-Type: a\r\nAccept-Encoding: gzip\r\nConnection: \"a\", User-Agent\r\n")
	f.Fuzz(func(t *testing.T, lines string) {
		mime, err := textproto.NewReader(bufio.NewReader(strings.NewReader(lines + "\r\n"))).ReadMIMEHeader()
		if err != nil {
			return
		}
		in := http.Header(mime)
		var named []string
		for _, v := range in.Values("Connection") {
			for n := range strings.SplitSeq(v, ",") {
				named = append(named, strings.ToLower(strings.TrimSpace(n)))
			}
		}
		up, down := upstreamHeader(http.Header{}, in, "ours"), http.Header{}
		downstreamHeader(down, in, true)
		ours := []string{"x-request-id", "accept-encoding", "user-agent"}
		for name := range up {
			low := strings.ToLower(name)
			if slices.Contains(ours, low) {
				continue
			}
			if notUp[name] || slices.Contains(named, low) || strings.HasPrefix(low, "x-admitd-") {
				t.Fatalf("%q: the engine gets %s", lines, name)
			}
		}
		if len(up["X-Request-Id"]) != 1 || up.Get("X-Request-Id") != "ours" || up.Get("Accept-Encoding") != "identity" || len(up["Accept-Encoding"]) != 1 {
			t.Fatalf("%q: %v", lines, up)
		}
		if up.Get("Authorization")+up.Get("X-Api-Key")+up.Get("Transfer-Encoding")+up.Get("Connection") != "" {
			t.Fatalf("%q: %v", lines, up)
		}
		for name := range down {
			if low := strings.ToLower(name); notDown[name] || slices.Contains(named, low) || strings.HasPrefix(low, "x-admitd-") || low == "content-length" {
				t.Fatalf("%q: the caller gets %s", lines, name)
			}
		}
		for name, values := range in {
			low := strings.ToLower(name)
			if kept := down[name]; !notDown[name] && !slices.Contains(named, low) && !strings.HasPrefix(low, "x-admitd-") && low != "content-length" && !slices.Equal(kept, values) {
				t.Fatalf("%q: %s became %q", lines, name, kept)
			}
		}
	})
}
