package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"admitd/ui/api"
)

// Policy calls GET policy. The revision in the answer is what PutPolicy's ifMatch takes.
func (c *Client) Policy(ctx context.Context) (api.PolicyDocument, error) {
	return get[api.PolicyDocument](ctx, c, "/api/v1/policy", nil)
}

// PolicyHistory calls GET policy/history.
func (c *Client) PolicyHistory(ctx context.Context) (api.PolicyHistory, error) {
	return get[api.PolicyHistory](ctx, c, "/api/v1/policy/history", nil)
}

// PutPolicy calls PUT policy with the YAML text. ifMatch is the revision that the text was made from; "" overwrites
// whatever runs. A text with mistakes is a *ProblemError with places in Errors (ErrInvalid); a policy that has
// changed meanwhile, or that needs signals which the engine does not export, is ErrPrecondition.
func (c *Client) PutPolicy(ctx context.Context, text []byte, ifMatch, note string) (api.ReloadResult, error) {
	q := url.Values{}
	if note != "" {
		q.Set("note", note)
	}
	match := "*"
	if ifMatch != "" {
		match = strconv.Quote(ifMatch)
	}
	var out api.ReloadResult
	err := c.json(ctx, call{method: http.MethodPut, path: "/api/v1/policy", query: q, body: text,
		contentType: "text/yaml", ifMatch: match}, &out)
	return out, err
}

// DryRun calls POST policy/dry-run over the decisions of the last window; 0 means the server's default, five minutes.
func (c *Client) DryRun(ctx context.Context, text []byte, window time.Duration) (api.DryRun, error) {
	q := url.Values{}
	if window > 0 {
		q.Set("window", window.String())
	}
	var out api.DryRun
	err := c.json(ctx, call{method: http.MethodPost, path: "/api/v1/policy/dry-run", query: q, body: text,
		contentType: "text/yaml"}, &out)
	return out, err
}

func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	return c.json(ctx, call{method: http.MethodPost, path: path, body: body, contentType: "application/json"}, out)
}

// Revert calls POST policy/revert; rev "" means the revision before the running one.
func (c *Client) Revert(ctx context.Context, rev string) (api.ReloadResult, error) {
	var out api.ReloadResult
	err := c.post(ctx, "/api/v1/policy/revert", api.RevertRequest{Rev: rev}, &out)
	return out, err
}

// RestartEngine calls POST engine/restart; it returns when the restart has been accepted.
func (c *Client) RestartEngine(ctx context.Context) (api.Accepted, error) {
	var out api.Accepted
	err := c.post(ctx, "/api/v1/engine/restart", struct{}{}, &out)
	return out, err
}

// Reload calls POST reload: the configuration and policy files are read again.
func (c *Client) Reload(ctx context.Context) (api.ReloadResult, error) {
	var out api.ReloadResult
	err := c.post(ctx, "/api/v1/reload", struct{}{}, &out)
	return out, err
}

func logQuery(after uint64, limit int) url.Values {
	q := url.Values{}
	if after > 0 {
		q.Set("after", strconv.FormatUint(after, 10))
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return q
}

// Logs calls GET engine/logs: lines after a number, oldest first, or with after 0 the newest ones; at most limit (0
// means the server's default).
func (c *Client) Logs(ctx context.Context, after uint64, limit int) (api.EngineLogs, error) {
	return get[api.EngineLogs](ctx, c, "/api/v1/engine/logs", logQuery(after, limit))
}

// FollowLogs calls fn for every line after a number, as they come, until ctx ends, the server stops (nil) or fn
// returns an error, which is returned.
func (c *Client) FollowLogs(ctx context.Context, after uint64, fn func(api.LogEvent) error) error {
	q := logQuery(after, 0)
	q.Set("follow", "1")
	resp, err := c.send(ctx, call{method: http.MethodGet, path: "/api/v1/engine/logs", query: q})
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	d := json.NewDecoder(lines)
	for {
		var l api.LogEvent
		switch err := d.Decode(&l); {
		case err == io.EOF:
			return nil
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("follow the engine's log: %w", err)
		}
		if err := fn(l); err != nil {
			return err
		}
	}
}

// Upgrade calls POST upgrade and tells of each step; the last one says how it ended. An answer that breaks off is
// ErrUnreachable.
func (c *Client) Upgrade(ctx context.Context, binary string, tell func(api.UpgradeStep)) (api.UpgradeStep, error) {
	body, err := json.Marshal(api.UpgradeRequest{Binary: binary})
	if err != nil {
		return api.UpgradeStep{}, fmt.Errorf("encode the request: %w", err)
	}
	resp, err := c.send(ctx, call{method: http.MethodPost, path: "/api/v1/upgrade", body: body, contentType: "application/json"})
	if err != nil {
		return api.UpgradeStep{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	dec := json.NewDecoder(resp.Body)
	for {
		var step api.UpgradeStep
		if err := dec.Decode(&step); err != nil {
			if ctx.Err() != nil {
				return step, ctx.Err()
			}
			return step, fmt.Errorf("%w at %s: the answer broke off before the upgrade had ended: %w", ErrUnreachable, c.at(), err)
		}
		if step.Done {
			return step, nil
		}
		tell(step)
	}
}
