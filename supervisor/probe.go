package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/tidwall/gjson"
)

// maxProbeBody bounds what a probe reads, in bytes.
const maxProbeBody = 1 << 20

// prober asks the engine how it is. It never asks twice at once: its user calls one method at a time.
type prober struct {
	rt http.RoundTripper
	// names are the served names of which one must be listed; empty takes the first listed model.
	names []string
}

// readiness is what a readiness probe found.
type readiness struct {
	// alive is true when /health answered 200.
	alive bool
	// model is the listed name of the model; maxModelLen its context in tokens, 0 when not told.
	model       string
	maxModelLen int
	version     string
	// err says why the engine is not ready, nil when it is.
	err error
}

// ready runs the three checks of readiness: /health answers, the model is listed, one token comes out.
func (p *prober) ready(ctx context.Context) readiness {
	var r readiness
	if r.err = p.health(ctx); r.err != nil {
		return r
	}
	r.alive = true
	if r.model, r.maxModelLen, r.err = p.models(ctx); r.err != nil {
		return r
	}
	if r.err = p.token(ctx, r.model); r.err != nil {
		return r
	}
	r.version = p.version(ctx)
	return r
}

// health asks /health.
func (p *prober) health(ctx context.Context) error {
	status, _, err := p.do(ctx, http.MethodGet, "/health", nil)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("/health answers %d", status)
	}
	return nil
}

// models looks for the model in /v1/models.
func (p *prober) models(ctx context.Context) (name string, maxLen int, err error) {
	status, body, err := p.do(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return "", 0, err
	}
	if status != http.StatusOK {
		return "", 0, fmt.Errorf("/v1/models answers %d", status)
	}
	if !gjson.ValidBytes(body) {
		return "", 0, errors.New("/v1/models answers something that is not JSON")
	}
	entries := gjson.GetBytes(body, "data").Array()
	for _, want := range p.names {
		for _, e := range entries {
			if e.Get("id").String() == want {
				return want, modelLen(e), nil
			}
		}
	}
	if len(p.names) == 0 && len(entries) > 0 && entries[0].Get("id").String() != "" {
		return entries[0].Get("id").String(), modelLen(entries[0]), nil
	}
	return "", 0, fmt.Errorf("/v1/models does not list %q", p.names)
}

func modelLen(entry gjson.Result) int {
	n := entry.Get("max_model_len").Int()
	if n < 0 || n > 1<<40 {
		return 0
	}
	return int(n)
}

// token asks for one token. A model that does not generate has no such endpoint; it is asked for an embedding then.
func (p *prober) token(ctx context.Context, model string) error {
	body, err := json.Marshal(map[string]any{"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0})
	if err != nil {
		return fmt.Errorf("encode the probe: %w", err)
	}
	status, answer, err := p.do(ctx, http.MethodPost, "/v1/completions", body)
	if err != nil {
		return err
	}
	if status == http.StatusNotFound {
		return p.embedding(ctx, model)
	}
	if status != http.StatusOK {
		return fmt.Errorf("the one-token request is answered with %d", status)
	}
	if !gjson.GetBytes(answer, "choices.0").Exists() {
		return errors.New("the one-token request is answered without a choice")
	}
	return nil
}

func (p *prober) embedding(ctx context.Context, model string) error {
	body, err := json.Marshal(map[string]any{"model": model, "input": "1"})
	if err != nil {
		return fmt.Errorf("encode the probe: %w", err)
	}
	status, _, err := p.do(ctx, http.MethodPost, "/v1/embeddings", body)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("neither /v1/completions nor /v1/embeddings answers a small request: %d", status)
	}
	return nil
}

// version asks for the engine's version, "" when it does not tell.
func (p *prober) version(ctx context.Context) string {
	for _, path := range []string{"/version", "/server_info"} {
		status, body, err := p.do(ctx, http.MethodGet, path, nil)
		if err == nil && status == http.StatusOK {
			if v := gjson.GetBytes(body, "version").String(); v != "" {
				return limit(plain(v), 64)
			}
		}
	}
	return ""
}

func (p *prober) do(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("ask %s: %w", path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := p.rt.RoundTrip(req)
	if err != nil {
		return 0, nil, fmt.Errorf("ask %s: %w", path, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxProbeBody))
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer of %s: %w", path, err)
	}
	return res.StatusCode, answer, nil
}
