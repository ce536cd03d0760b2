package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/tidwall/gjson"
)

// maxProbeBody bounds what a probe reads, in bytes.
const maxProbeBody = 1 << 20

// prober asks the engine how it is. It never asks twice at once: its user calls one method at a time.
type prober struct {
	rt http.RoundTripper
	// at is the URL of an external engine without a slash at its end, for people; "" for ours. keyed tells whether it is given a
	// key.
	at    string
	keyed bool
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
	// costly is true when /health is known to be a real request.
	costly bool
	// err says why the engine is not ready, nil when it is.
	err error
}

// ready runs the three checks of readiness: /health answers, the model is listed, one token comes out.
func (p *prober) ready(ctx context.Context) readiness {
	var r readiness
	if r.err = p.health(ctx); r.err != nil {
		return r
	}
	facts := p.facts(ctx)
	facts.alive = true
	if facts.err == nil {
		facts.err = p.token(ctx, facts.model)
	}
	return facts
}

// facts asks what the engine serves, and which one it is.
func (p *prober) facts(ctx context.Context) readiness {
	var r readiness
	if r.model, r.maxModelLen, r.costly, r.err = p.models(ctx); r.err != nil {
		return r
	}
	version, costly := p.version(ctx)
	r.version, r.costly = version, r.costly || costly
	return r
}

// errNoModel is why an engine without the wanted model is not ready; errNoKey, one that does not take our key.
var (
	errNoModel = errors.New("model not served")
	errNoKey   = errors.New("key refused")
)

// probeError is a probe that failed, in words for people.
type probeError struct {
	text string
	err  error
}

// Error implements error.
func (e *probeError) Error() string { return e.text }

// Unwrap returns the cause, nil when the words are all.
func (e *probeError) Unwrap() error { return e.err }

// complain says what was tried and what came of it.
func (p *prober) complain(path, what string, err error) error {
	if p.at == "" {
		return &probeError{path + " " + what, err}
	}
	return &probeError{p.at + path + ": " + what, err}
}

// refused says what a status other than 200 means, and to whoever gave the URL of an external engine what can be done.
func (p *prober) refused(path string, status int) error {
	external := p.at != ""
	denied := status == http.StatusUnauthorized || status == http.StatusForbidden
	switch {
	case external && (status == http.StatusNotFound || denied && path == "/health") && strings.HasSuffix(p.at, "/v1"):
		// An engine with a key guards everything under /v1, also what is not there.
		return p.complain(path, strconv.Itoa(status)+": give the base URL without /v1", nil)
	case external && denied:
		what := "the engine wants a key: set engine.key_env"
		if p.keyed {
			what = "the engine does not take the key of engine.key_env"
		}
		return p.complain(path, fmt.Sprintf("%d: %s", status, what), errNoKey)
	}
	var cause error
	if denied {
		cause = errNoKey
	}
	return p.complain(path, fmt.Sprintf("answers %d", status), cause)
}

// plainReason says why a request failed without the stack of words that the network puts before it.
func plainReason(err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host"
	}
	return err.Error()
}

// unreachable reports whether a probe failed because nobody listens there: one such failure says enough.
func unreachable(err error) bool {
	var dns *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) ||
		errors.As(err, &dns) && dns.IsNotFound
}

// health asks /health.
func (p *prober) health(ctx context.Context) error {
	status, _, err := p.do(ctx, http.MethodGet, "/health", nil)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return p.refused("/health", status)
	}
	return nil
}

// models looks for the model in /v1/models; sgl tells whether it is SGLang that answers.
func (p *prober) models(ctx context.Context) (name string, maxLen int, sgl bool, err error) {
	status, body, err := p.do(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return "", 0, false, err
	}
	if status != http.StatusOK {
		return "", 0, false, p.refused("/v1/models", status)
	}
	if !gjson.ValidBytes(body) {
		return "", 0, false, p.complain("/v1/models", "answers something that is not JSON", nil)
	}
	entries := gjson.GetBytes(body, "data").Array()
	var listed []string
	for _, e := range entries {
		listed = append(listed, limit(plain(e.Get("id").String()), 128))
		sgl = sgl || e.Get("owned_by").String() == string(SGLang)
	}
	for _, want := range p.names {
		for _, e := range entries {
			if e.Get("id").String() == want {
				return want, modelLen(e), sgl, nil
			}
		}
	}
	if len(p.names) == 0 && len(entries) > 0 && entries[0].Get("id").String() != "" {
		return entries[0].Get("id").String(), modelLen(entries[0]), sgl, nil
	}
	return "", 0, false, p.complain("/v1/models", fmt.Sprintf("does not list %q but %q", p.names, listed[:min(len(listed), 5)]), errNoModel)
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
	if status == http.StatusUnauthorized {
		return p.refused("/v1/completions", status)
	}
	if status != http.StatusOK {
		return &tokenStatusError{status}
	}
	if !gjson.GetBytes(answer, "choices.0").Exists() {
		return errors.New("the one-token request is answered without a choice")
	}
	return nil
}

// tokenStatusError is an answer to the one-token request that is not a token.
type tokenStatusError struct{ status int }

// Error implements error.
func (e *tokenStatusError) Error() string {
	return fmt.Sprintf("the one-token request is answered with %d", e.status)
}

// refusal reports whether a token did not come because the engine chose so: it does not like the request, or is full. That proves
// neither life nor death.
func refusal(err error) bool {
	e, ok := errors.AsType[*tokenStatusError](err)
	return ok && (e.status < http.StatusInternalServerError || e.status == http.StatusServiceUnavailable)
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

// version asks for the engine's version, "" when it does not tell; sgl tells whether it is SGLang that answers: vLLM has the
// first of the paths.
func (p *prober) version(ctx context.Context) (version string, sgl bool) {
	for i, path := range []string{"/version", "/server_info"} {
		status, body, err := p.do(ctx, http.MethodGet, path, nil)
		if err == nil && status == http.StatusOK {
			if v := gjson.GetBytes(body, "version").String(); v != "" {
				return limit(plain(v), 64), i > 0
			}
		}
	}
	return "", false
}

func (p *prober) do(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, p.complain(path, err.Error(), err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := p.rt.RoundTrip(req)
	if err != nil {
		return 0, nil, p.complain(path, plainReason(err), err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxProbeBody))
	if err != nil {
		return 0, nil, p.complain(path, "the answer broke off: "+plainReason(err), err)
	}
	return res.StatusCode, answer, nil
}
