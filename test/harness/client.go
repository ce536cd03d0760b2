package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"admitd/ui/api"
)

// Client asks a running admitd through its two listeners, wherever it runs.
type Client struct {
	TB testing.TB
	// Gate and Admin are base URLs; State is the state folder.
	Gate, Admin, State string
	// Token is the admin token, known after WaitReady.
	Token string
	// Ended is closed when admitd has ended, and How then says in which way.
	Ended <-chan struct{}
	How   func() string
}

// WaitReady waits until the gate lets requests in, and reads the admin token.
func (c *Client) WaitReady(limit time.Duration) {
	c.TB.Helper()
	c.Until(limit, "ready", func() bool {
		resp, err := get(c.Admin + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	token, err := os.ReadFile(filepath.Join(c.State, "admin.token"))
	if err != nil {
		c.TB.Fatal(err)
	}
	c.Token = strings.TrimSpace(string(token))
}

// Until polls for a condition. It fails the test when admitd ends or the limit passes.
func (c *Client) Until(limit time.Duration, what string, cond func() bool) {
	c.TB.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			c.TB.Fatalf("not %s within %s", what, limit)
		case <-c.Ended:
			c.TB.Fatalf("admitd ended (%s) before it was %s", c.How(), what)
		}
	}
}

// Status asks GET /api/v1/status.
func (c *Client) Status() api.Status {
	c.TB.Helper()
	var s api.Status
	c.Get("/api/v1/status", &s)
	return s
}

// Get asks the admin API and decodes the answer.
func (c *Client) Get(path string, into any) {
	c.TB.Helper()
	resp, err := get(c.Admin + path)
	if err != nil {
		c.TB.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.TB.Fatalf("GET %s: %s %v\n%s", path, resp.Status, err, b)
	}
	if s, ok := into.(*string); ok {
		*s = string(b)
		return
	}
	if err := json.Unmarshal(b, into); err != nil {
		c.TB.Fatalf("GET %s: %v\n%s", path, err, b)
	}
}

// PutPolicy sends a policy text, over the revision ifMatch ("" for whatever runs), and returns the status and body.
func (c *Client) PutPolicy(text, ifMatch string) (int, string) {
	c.TB.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, c.Admin+"/api/v1/policy", strings.NewReader(text))
	if err != nil {
		c.TB.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	req.Header.Set("Content-Type", "application/yaml")
	req.Header.Set("If-Match", "*")
	if ifMatch != "" {
		req.Header.Set("If-Match", `"`+ifMatch+`"`)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.TB.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// Metric sums the samples of admitd's own metric whose line matches the label pattern (a regular expression, "" for all).
func (c *Client) Metric(name, labels string) float64 {
	c.TB.Helper()
	var page string
	c.Get("/metrics", &page)
	re := regexp.MustCompile(`(?m)^` + name + `(?:\{([^}]*)\})? ([0-9.e+-]+)$`)
	want := regexp.MustCompile(labels)
	sum := 0.0
	for _, m := range re.FindAllStringSubmatch(page, -1) {
		if !want.MatchString(m[1]) {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(m[2], &v); err != nil {
			c.TB.Fatalf("metric %s: %v", name, err)
		}
		sum += v
	}
	return sum
}
