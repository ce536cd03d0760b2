package gate

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"admitd/gate/dialect"
	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/supervisor"
)

// own answers the paths that are the gate's. They reach no engine and take nothing, so that they are no decision:
// the journal has only what was refused of them.
func (a *arrival) own() {
	switch a.ep.Kind {
	case dialect.KindModels:
		a.models()
	case dialect.KindHealth:
		a.health()
	case dialect.KindAdmit:
		a.dryRun()
	default:
		a.refuse(refusal{code: reason.PathUnknown})
	}
}

func (a *arrival) writeJSON(status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		// Only our own plain types come here; a failure is a defect, and finish answers for it.
		panic(err)
	}
	a.w.Header().Set("Content-Type", "application/json")
	a.w.Header().Set("X-Admitd-Request-Id", a.id)
	a.answer(status, append(body, '\n'))
}

// modelItem is one entry of OpenAI's model list, with the context length as vLLM writes it.
type modelItem struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// Root is the name that an alias leads to.
	Root        string `json:"root"`
	MaxModelLen *int   `json:"max_model_len"`
}

// models lists what this key may use, aliases included; with an id, that one alone.
func (a *arrival) models() {
	escaped, one := strings.CutPrefix(a.r.URL.EscapedPath(), "/v1/models/")
	if !one {
		items := []modelItem{}
		for _, p := range a.s.o.Pools {
			if !a.s.allowed(a.grant, p) {
				continue
			}
			for _, name := range append([]string{p.Model}, p.Aliases...) {
				items = append(items, item(name, p))
			}
		}
		a.writeJSON(http.StatusOK, map[string]any{"object": "list", "data": items})
		return
	}
	name, err := url.PathUnescape(escaped)
	p := a.s.byName[name]
	if err != nil || p == nil || !a.s.allowed(a.grant, p) {
		// A model that this key may not use looks like one that is not there.
		a.refuse(refusal{code: reason.ModelUnknown, param: "model"})
		return
	}
	a.writeJSON(http.StatusOK, item(name, p))
}

func item(name string, p *Pool) modelItem {
	st := p.Engine.Status()
	m := modelItem{ID: name, Object: "model", OwnedBy: "admitd", Root: p.Model}
	if !st.ReadyAt.IsZero() {
		m.Created = st.ReadyAt.Unix()
	}
	if st.MaxModelLen > 0 {
		m.MaxModelLen = &st.MaxModelLen
	}
	return m
}

// health is 200 while any pool takes requests, else 503 with the state of each.
func (a *arrival) health() {
	now, status := a.s.now(), http.StatusServiceUnavailable
	pools := map[string]string{}
	for _, p := range a.s.o.Pools {
		st := p.Engine.Status()
		pools[p.Model] = string(st.State)
		if a.s.notReady(p, now) == nil {
			status = http.StatusOK
		} else if st.State == supervisor.Ready {
			pools[p.Model] = string(supervisor.Draining)
		}
	}
	word := "ok"
	if status != http.StatusOK {
		word = "unavailable"
		if _, ref := a.s.noneReady(now); ref != nil {
			setRetry(a.w.Header(), a.complete(*ref).retryAfter)
		}
	}
	a.writeJSON(status, map[string]any{"status": word, "pools": pools})
}

// dryAnswer is what POST /v1/admit tells.
type dryAnswer struct {
	// Decision is admit, hold, defer or reject.
	Decision     string      `json:"decision"`
	Reason       reason.Code `json:"reason"`
	Status       int         `json:"status,omitempty"`
	RetryAfterMS *int64      `json:"retry_after_ms"`
	Message      string      `json:"message,omitempty"`
	Policy       string      `json:"policy,omitempty"`
}

// dryRun answers whether the body would be admitted now on the path that ?path= names, chat completions if none.
// Nothing is reserved, held or promised.
func (a *arrival) dryRun() {
	path := a.r.URL.Query().Get("path")
	if path == "" {
		path = "/v1/chat/completions"
	}
	ep := a.s.paths.Classify(http.MethodPost, path)
	if ep.Class != dialect.Inference {
		a.refuse(refusal{code: reason.BadRequest, param: "path", message: "The path parameter must be one of the inference paths, for instance /v1/chat/completions."})
		return
	}
	if limit := a.s.o.Limits.MaxBodyBytes; a.r.ContentLength > limit {
		a.refuse(*tooLarge(limit))
		return
	}
	if ref := a.readBody(); ref != nil {
		a.refuse(*ref)
		return
	}
	a.writeJSON(http.StatusOK, a.dryVerdict(ep))
}

func (a *arrival) dryVerdict(ep dialect.Endpoint) dryAnswer {
	ref := a.read(ep)
	if ref == nil {
		ref = a.s.notReady(a.pool, a.s.now())
	}
	if ref != nil {
		return a.dryRefusal(*ref)
	}
	q := a.question()
	q.DryRun = true
	v := a.pool.Admission.decide(a.r.Context(), q)
	a.verdict, a.by = &v.Verdict, v.by
	switch v.Decision.Verdict {
	case policy.Admit, policy.Hold:
		name, rev := a.judge()
		return dryAnswer{Decision: string(v.Decision.Verdict), Reason: v.Decision.Reason, Message: v.Decision.Message, Policy: mark(name, rev)}
	case policy.Defer, policy.Reject:
	}
	return a.dryRefusal(refusalOf(v.Verdict))
}

func (a *arrival) dryRefusal(ref refusal) dryAnswer {
	ref = a.complete(ref)
	name, rev := a.judge()
	d := dryAnswer{Decision: ref.verdict, Reason: ref.code, Status: ref.status, Message: ref.message, Policy: mark(name, rev)}
	if ref.retryAfter > 0 {
		ms := int64((ref.retryAfter + time.Millisecond - 1) / time.Millisecond)
		d.RetryAfterMS = &ms
	}
	return d
}

func mark(name, rev string) string {
	if name == "" {
		return ""
	}
	return name + "@" + rev
}
