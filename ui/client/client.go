// Package client calls a running admitd's admin API: the command line is made of it.
//
// Goal: one typed call a route, and errors that tell apart what a person would do about them.
//
// Non-goals: retrying, printing, finding the token.
//
// Invariants: the token goes into the Authorization header or a websocket subprotocol, never into a URL or an
// error; every call ends when its context does.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"admitd/supervisor"
	"admitd/ui/api"
)

// Options configures a Client.
type Options struct {
	// Address of the admin listener: host:port, http(s)://host:port or unix:/path. A wildcard host such as 0.0.0.0 means
	// loopback.
	Address string
	// Token is the admin token, "" when there is none: reads on a loopback listener need none.
	Token string
	// Pool names the served model that calls are about; "" means the first one.
	Pool string
	// HTTP makes the requests; nil means a client of its own without an overall time limit: contexts bound calls.
	HTTP *http.Client
}

// Client is safe for concurrent use.
type Client struct {
	base *url.URL
	// where is the address for messages; dial reaches it.
	where string
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	token string
	pool  string
	http  *http.Client
}

// Errors that callers tell apart with errors.Is. Other answers of the server are *ProblemError alone.
var (
	// ErrUnreachable: no admitd answered at the address, or something else did.
	ErrUnreachable = errors.New("admin API unreachable")
	// ErrUnauthorized: the token is missing or wrong (401), or the listener refuses this host name (403).
	ErrUnauthorized = errors.New("admin API refused access")
	// ErrPrecondition: what the call was based on has changed (412), is not what runs (409), or the engine does not
	// export what the policy needs (422).
	ErrPrecondition = errors.New("precondition failed")
	// ErrNotFound: there is no such thing (404).
	ErrNotFound = errors.New("not found")
	// ErrInvalid: the server could not accept what was sent (400, 413, 415).
	ErrInvalid = errors.New("not accepted")
)

// ProblemError is an answer of the server that is not a success.
type ProblemError struct {
	api.Problem
	// foreign is set when the answer is none that an admin API gives.
	foreign bool
}

// Error implements error.
func (e *ProblemError) Error() string {
	text := e.Detail
	if text == "" {
		text = e.Title
	}
	if text == "" {
		text = "HTTP status " + strconv.Itoa(e.Status)
	}
	return text
}

// Unwrap gives the class of the problem, and ErrUnreachable with it where something else than an admin API answered.
func (e *ProblemError) Unwrap() []error {
	var out []error
	if e.foreign {
		out = append(out, ErrUnreachable)
	}
	if class := e.class(); class != nil {
		out = append(out, class)
	}
	return out
}

func (e *ProblemError) class() error {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ErrUnauthorized
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired, http.StatusConflict, http.StatusUnprocessableEntity:
		return ErrPrecondition
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return ErrInvalid
	}
	return nil
}

// New checks the address. It connects to nothing.
func New(o Options) (*Client, error) {
	text := o.Address
	socket, local := strings.CutPrefix(text, "unix:")
	if local {
		if !strings.HasPrefix(socket, "/") {
			return nil, fmt.Errorf("admin address %q: the path of a unix socket begins with /", o.Address)
		}
		text = "localhost"
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, fmt.Errorf("admin address %q: give host:port, http://host:port or unix:/path", o.Address)
	}
	host, port := u.Hostname(), u.Port()
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		u.Host = net.JoinHostPort("127.0.0.1", port)
	}
	c := &Client{base: &url.URL{Scheme: u.Scheme, Host: u.Host}, token: o.Token, pool: o.Pool, http: o.HTTP, dial: new(net.Dialer).DialContext}
	c.where = c.base.String()
	if local {
		c.where = o.Address
		c.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	if c.http == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil
		t.DialContext = c.dial
		// The admin API redirects nobody; the token must not travel to where something else points.
		c.http = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return c, nil
}

// Address is where the client talks to, for messages.
func (c *Client) Address() string { return c.where }

// at is the address without its scheme.
func (c *Client) at() string {
	if _, rest, ok := strings.Cut(c.where, "://"); ok {
		return rest
	}
	return c.where
}

// CloseIdle gives up connections that are kept for reuse.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

func (c *Client) url(path string, q url.Values) string {
	u := *c.base
	u.Path = path
	if q == nil {
		q = url.Values{}
	}
	if c.pool != "" {
		q.Set("pool", c.pool)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

type call struct {
	method, path string
	query        url.Values
	body         []byte
	contentType  string
	ifMatch      string
}

func (c *Client) send(ctx context.Context, k call) (*http.Response, error) {
	var body io.Reader
	if k.body != nil {
		body = bytes.NewReader(k.body)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, c.url(k.path, k.query), body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if k.contentType != "" {
		req.Header.Set("Content-Type", k.contentType)
	}
	if k.ifMatch != "" {
		req.Header.Set("If-Match", k.ifMatch)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode >= 300 {
		defer func() { _ = resp.Body.Close() }()
		return nil, problemOf(resp)
	}
	return resp, nil
}

func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	return fmt.Errorf("%w at %s: %w; is admitd serve running, and --admin right?", ErrUnreachable, c.at(), err)
}

// maxAnswer bounds what is read of one answer, in bytes.
const maxAnswer = 64 << 20

func problemOf(resp *http.Response) error {
	e := &ProblemError{}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if json.Unmarshal(body, &e.Problem) != nil || e.Status == 0 {
		e.foreign = resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden
		e.Problem = api.Problem{Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode),
			Detail: fmt.Sprintf("%s answered %d without saying why; is that admitd's admin listener?", resp.Request.URL.Host, resp.StatusCode)}
	}
	return e
}

func (c *Client) json(ctx context.Context, k call, into any) error {
	resp, err := c.send(ctx, k)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(into); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w at %s: its answer to %s cannot be read: %w; is that admitd's admin listener?", ErrUnreachable, c.at(), k.path, err)
	}
	return nil
}

func get[T any](ctx context.Context, c *Client, path string, q url.Values) (T, error) {
	var v T
	err := c.json(ctx, call{method: http.MethodGet, path: path, query: q}, &v)
	return v, err
}

// Status calls GET status.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	st, err := get[api.Status](ctx, c, "/api/v1/status", nil)
	if err == nil && st.Version == "" {
		err = fmt.Errorf("%w at %s: what answers there is no admitd's admin listener; is --admin right?", ErrUnreachable, c.at())
	}
	return st, err
}

// Signals calls GET signals.
func (c *Client) Signals(ctx context.Context) (api.Signals, error) {
	return get[api.Signals](ctx, c, "/api/v1/signals", nil)
}

// DecisionQuery chooses decisions.
type DecisionQuery struct {
	// After continues after an entry number, oldest first; nil asks for the newest.
	After *uint64
	// Limit from 1 to 1000; 0 means the server's default of 100.
	Limit int
	// Filter in the grammar of package ui/filter.
	Filter string
}

// Decisions calls GET decisions.
func (c *Client) Decisions(ctx context.Context, d DecisionQuery) (api.Decisions, error) {
	q := url.Values{}
	if d.After != nil {
		q.Set("after", strconv.FormatUint(*d.After, 10))
	}
	if d.Limit > 0 {
		q.Set("limit", strconv.Itoa(d.Limit))
	}
	if d.Filter != "" {
		q.Set("filter", d.Filter)
	}
	return get[api.Decisions](ctx, c, "/api/v1/decisions", q)
}

// ErrID: a text that cannot be the id of a request.
var ErrID = errors.New("not an id")

// Decision calls GET decisions/{id}; ErrNotFound when it is no longer in memory, ErrID without asking for what is no id.
func (c *Client) Decision(ctx context.Context, id string) (api.DecisionItem, error) {
	if !isID(id) {
		return api.DecisionItem{}, fmt.Errorf("%w: %q; an id is what X-Admitd-Request-Id says", ErrID, id)
	}
	return get[api.DecisionItem](ctx, c, "/api/v1/decisions/"+id, nil)
}

// isID keeps anything out of the path that could make it another one.
func isID(id string) bool {
	other := func(r rune) bool {
		return !strings.ContainsRune("-_.:", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	return id != "" && len(id) <= 200 && strings.Trim(id, ".") != "" && strings.IndexFunc(id, other) < 0
}

// Sessions calls GET sessions.
func (c *Client) Sessions(ctx context.Context) (api.Sessions, error) {
	return get[api.Sessions](ctx, c, "/api/v1/sessions", nil)
}

// Tenants calls GET tenants.
func (c *Client) Tenants(ctx context.Context) (api.Tenants, error) {
	return get[api.Tenants](ctx, c, "/api/v1/tenants", nil)
}

// Engine calls GET engine.
func (c *Client) Engine(ctx context.Context) (supervisor.Status, error) {
	return get[supervisor.Status](ctx, c, "/api/v1/engine", nil)
}

// History calls GET history. Zero times mean the server's defaults, the last five minutes.
func (c *Client) History(ctx context.Context, from, to time.Time, step time.Duration) (api.History, error) {
	q := url.Values{}
	for name, t := range map[string]time.Time{"from": from, "to": to} {
		if !t.IsZero() {
			q.Set(name, strconv.FormatInt(t.UnixMilli(), 10))
		}
	}
	if step > 0 {
		q.Set("step", step.String())
	}
	return get[api.History](ctx, c, "/api/v1/history", q)
}

// Poll calls GET frame. since 0 starts afresh.
func (c *Client) Poll(ctx context.Context, since uint64) (api.Poll, error) {
	q := url.Values{}
	if since > 0 {
		q.Set("since", strconv.FormatUint(since, 10))
	}
	return get[api.Poll](ctx, c, "/api/v1/frame", q)
}

// Ready calls GET /readyz. why says what is missing when it is not ready.
func (c *Client) Ready(ctx context.Context) (ready bool, why string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url("/readyz", nil), nil)
	if err != nil {
		return false, "", fmt.Errorf("make the request: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return false, "", c.unreachable(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		return false, "", problemOf(resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	return resp.StatusCode == http.StatusOK, strings.TrimSpace(string(text)), err
}
