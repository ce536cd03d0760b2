package gate

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// What is no request was answered by net/http with a line of plain text, and nobody was told.
func TestWhatIsNoRequestIsAnsweredAndRecordedLikeEveryRefusal(t *testing.T) {
	if stock {
		// net/http answers it itself.
		return
	}
	for name, tc := range map[string]struct {
		sent   string
		status int
		word   string
	}{
		"two lengths":      {"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "both"},
		"not HTTP":         {"\x16\x03\x01\x02\x00\x01", 400, "TLS"},
		"an odd wish":      {"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 5\r\nExpect: more\r\n\r\n", 417, "100-continue"},
		"HTTP/2":           {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "HTTP/2"},
		"an endless field": {"GET / HTTP/1.1\r\nHost: g\r\nX: " + strings.Repeat("x", 2<<20), 431, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, answerJSON, nil)
			c, err := net.Dial("tcp", r.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			fmt.Fprint(c, tc.sent)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tc.status || resp.Header.Get("X-Admitd-Reason") != "bad_request" || !resp.Close ||
				!strings.Contains(string(body), tc.word) || !strings.HasPrefix(string(body), `{"error":{"message":`) {
				t.Errorf("status %d, headers %v, body %s", resp.StatusCode, resp.Header, body)
			}
			if d := r.decision(1); d.Verdict != "reject" || d.Status != tc.status || d.Path != unknownLabel {
				t.Errorf("decision %+v", d)
			}
		})
	}
}

// Behind TLS a request with two lengths is served; whichever the caller meant, the engine must be given one.
func TestTwoLengthsBehindTLSReachTheEngineAsOne(t *testing.T) {
	got := make(chan string, 1)
	r := newRig(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- fmt.Sprintf("%d %q %s", r.ContentLength, r.TransferEncoding, body)
		answerJSON(w, r)
	}, nil)
	front := httptest.NewUnstartedServer(r.gate)
	Prepare(front.Config)
	front.StartTLS()
	defer front.Close()
	c, err := tls.Dial("tcp", front.Listener.Addr().String(), front.Client().Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 4\r\n"+
		"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", chatPath, len(chatBody), chatBody)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if want := fmt.Sprintf("%d [] %s", len(chatBody), chatBody); resp.StatusCode != http.StatusOK || <-got != want {
		t.Errorf("status %d, or the engine did not get %s", resp.StatusCode, want)
	}
}
