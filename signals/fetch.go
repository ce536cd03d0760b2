package signals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
)

// acceptText asks for the classic text format. The Rust front end of vLLM answers in OpenMetrics all the same.
const acceptText = "text/plain;version=0.0.4"

// fetcher gets pages from one engine within limits of time and size.
type fetcher struct {
	client   *http.Client
	url      string
	timeout  time.Duration
	maxBytes int64
}

// newFetcher builds a fetcher that follows no redirect: a page from elsewhere would not be the engine's.
func newFetcher(o ScraperOptions) fetcher {
	client := &http.Client{
		Transport:     o.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return fetcher{client: client, url: o.URL, timeout: o.Timeout, maxBytes: o.MaxBytes}
}

// page gets the metrics page and tells whether it is declared as OpenMetrics.
func (f fetcher) page(ctx context.Context) (body []byte, openMetrics bool, err error) {
	body, head, err := f.get(ctx, f.url, f.maxBytes)
	if err != nil {
		return nil, false, err
	}
	kind, _, _ := mime.ParseMediaType(head.Get("Content-Type"))
	if kind == "text/html" {
		return nil, false, errHTML
	}
	if enc := head.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return nil, false, fmt.Errorf("the page is compressed (%.20q) although plain text was asked for", enc)
	}
	return body, kind == "application/openmetrics-text", nil
}

// version asks beside the metrics page; "" when there is no sensible answer.
func (f fetcher) version(ctx context.Context) string {
	u, err := url.Parse(f.url)
	if err != nil {
		return ""
	}
	u.Path, u.RawPath, u.RawQuery = "/version", "", ""
	const limit = 4096
	body, _, err := f.get(ctx, u.String(), limit)
	if err != nil {
		return ""
	}
	var said struct {
		Version string `json:"version"`
	}
	const longest = 64
	if json.Unmarshal(body, &said) != nil || len(said.Version) > longest {
		return ""
	}
	if strings.ContainsFunc(said.Version, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return ""
	}
	return said.Version
}

// get reads one answer of status 200 and at most limit bytes.
func (f fetcher) get(ctx context.Context, address string, limit int64) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("the metrics address is not valid: %w", inner(err))
	}
	req.Header.Set("Accept", acceptText)
	// Packing a page costs the engine's event loop more than sending it over loopback.
	req.Header.Set("Accept-Encoding", "identity")
	res, err := f.client.Do(req)
	if err != nil {
		return nil, nil, f.explain(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, nil, statusError(res.StatusCode)
	}
	if res.ContentLength > limit {
		return nil, nil, tooLarge(limit)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return nil, nil, f.explain(ctx, err)
	}
	if int64(len(body)) > limit {
		return nil, nil, tooLarge(limit)
	}
	return body, res.Header, nil
}

// explain words a failed exchange without the address, which may hold a key.
func (f fetcher) explain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no complete answer within %s: %w", f.timeout, context.DeadlineExceeded)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the page was cut off on its way: %w", err)
	}
	return inner(err)
}

// inner strips the address that package net/http puts around its errors.
func inner(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// tooLarge says that a page is over the limit.
func tooLarge(limit int64) error {
	return fmt.Errorf("the page is larger than the limit of %d bytes", limit)
}

// statusError words an answer other than 200.
func statusError(code int) error {
	hint := ""
	if code == http.StatusNotFound {
		hint = "; SGLang exports metrics only with --enable-metrics"
	}
	return fmt.Errorf("the engine answered %d %s where its metrics should be%s", code, http.StatusText(code), hint)
}
