package client

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"

	"admitd/ui/api"
)

// parrot answers every request with the same text.
type parrot struct {
	status int
	body   []byte
}

func (p parrot) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: p.status, Request: r, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(p.body))}, nil
}

// Whatever answers at the admin address: the command line ends with a result or an error that it can name, and an upgrade
// counts as ended only when the answer says so.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"text":"started"}`+"\n"+`{"text":"upgraded","done":true,"ok":true,"pid":7}`+"\n"))
	f.Add(200, []byte(`{"seq":1,"text":"line"}`+"\n"+`{"seq":2`))
	f.Add(409, []byte(`{"status":409,"title":"t","detail":"d","errors":[{"line":1}]}`))
	f.Add(502, []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		status = 200 + (status%400+400)%400
		c, err := New(Options{Address: "127.0.0.1:1", HTTP: &http.Client{Transport: parrot{status, body}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}})
		if err != nil {
			t.Fatal(err)
		}
		told := 0
		step, err := c.Upgrade(t.Context(), "", func(s api.UpgradeStep) {
			if told++; s.Done {
				t.Fatalf("%q: the end was told as a step", body)
			}
		})
		if err == nil && (!step.Done || !bytes.Contains(bytes.ToLower(body), []byte("done"))) {
			t.Fatalf("%q: ended with %+v", body, step)
		}
		lines := 0
		follow := c.FollowLogs(t.Context(), 0, func(api.LogEvent) error { lines++; return nil })
		if told > len(body) || lines > len(body) {
			t.Fatalf("%d steps and %d lines in %d bytes", told, lines, len(body))
		}
		_, plain := c.Status(t.Context())
		for _, err := range []error{err, follow, plain} {
			var p *ProblemError
			if status >= 300 && (!errors.As(err, &p) || err.Error() == "") {
				t.Fatalf("%d %q: %v", status, body, err)
			}
		}
	})
}
