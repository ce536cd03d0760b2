package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"admitd/ui/api"
)

// maxNote bounds the note kept with a policy revision, in bytes.
const maxNote = 500

func (s *Server) getPolicy(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	c, info := p.b.Policy.Current()
	if c == nil {
		return newProblem(http.StatusServiceUnavailable, "no_policy", "No policy is running yet.")
	}
	etag := `"` + info.Rev + `"`
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	now, snap := s.clock(), p.b.Snapshot()
	doc := api.PolicyDocument{PolicyInfo: info, Text: string(c.Source), Spec: c.Spec, Needs: []api.PolicyNeed{}}
	for _, n := range c.Policy.Needs() {
		doc.Needs = append(doc.Needs, api.PolicyNeed{Signal: string(n.Signal), Why: n.Why, State: string(snap.Get(n.Signal, now).State)})
	}
	writeJSON(w, http.StatusOK, doc)
	return nil
}

// putPolicy swaps the policy. If-Match says which revision the caller started from; * skips the check.
func (s *Server) putPolicy(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	rev, prob := ifMatch(r)
	if prob != nil {
		return prob
	}
	text, note, prob := policyText(r)
	if prob != nil {
		return prob
	}
	res, err := p.b.Policy.Apply(r.Context(), text, rev, "api", note)
	if err != nil {
		_, info := p.b.Policy.Current()
		return fromError(err).with("ETag", `"`+info.Rev+`"`)
	}
	w.Header().Set("ETag", `"`+res.Rev+`"`)
	writeJSON(w, http.StatusOK, res)
	return nil
}

// ifMatch reads the revision that a write starts from, "" for any.
func ifMatch(r *http.Request) (string, *problem) {
	h := strings.TrimSpace(r.Header.Get("If-Match"))
	switch {
	case h == "":
		return "", newProblem(http.StatusPreconditionRequired, "if_match_missing",
			`Send If-Match with the ETag of GET /api/v1/policy, or If-Match: * to overwrite whatever runs.`)
	case h == "*":
		return "", nil
	case len(h) >= 3 && h[0] == '"' && h[len(h)-1] == '"' && !strings.ContainsAny(h[1:len(h)-1], `", `):
		return h[1 : len(h)-1], nil
	}
	return "", badRequest("bad_if_match", "If-Match %s is not one quoted revision, nor *.", cutText(h))
}

// policyText reads the body: the YAML text itself, or JSON that holds it.
func policyText(r *http.Request) (text []byte, note string, prob *problem) {
	body, prob := readBody(r)
	if prob != nil {
		return nil, "", prob
	}
	text, note = body, r.URL.Query().Get("note")
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == typeJSON {
		var in api.PolicyText
		if prob := decodeStrict(body, &in); prob != nil {
			return nil, "", prob
		}
		text, note = []byte(in.Text), in.Note
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, "", badRequest("empty_policy", "The policy text is empty; send YAML.")
	}
	if len(note) > maxNote {
		return nil, "", badRequest("note_too_long", "The note is %d bytes long; at most %d are kept.", len(note), maxNote)
	}
	return text, note, nil
}

func readBody(r *http.Request) ([]byte, *problem) {
	body, err := io.ReadAll(r.Body)
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, newProblem(http.StatusRequestEntityTooLarge, "body_too_large",
			fmt.Sprintf("The body is larger than %d bytes.", tooLarge.Limit))
	}
	if err != nil {
		return nil, badRequest("body_unreadable", "read the body: %s", err)
	}
	return body, nil
}

// decodeStrict reads one JSON object with no unknown fields and nothing after it.
func decodeStrict(body []byte, into any) *problem {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return badRequest("bad_json", "The body is not the JSON expected here: %s", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badRequest("bad_json", "The body goes on after its JSON object.")
	}
	return nil
}

// drained requires that a write which takes no body has none, or an empty object.
func drained(r *http.Request) *problem {
	body, prob := readBody(r)
	if prob != nil {
		return prob
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	return decodeStrict(body, &struct{}{})
}

func (s *Server) revertPolicy(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	body, prob := readBody(r)
	if prob != nil {
		return prob
	}
	var in api.RevertRequest
	if len(bytes.TrimSpace(body)) > 0 {
		if prob := decodeStrict(body, &in); prob != nil {
			return prob
		}
	}
	res, err := p.b.Policy.Revert(r.Context(), in.Rev)
	if err != nil {
		return fromError(err)
	}
	w.Header().Set("ETag", `"`+res.Rev+`"`)
	writeJSON(w, http.StatusOK, res)
	return nil
}

func (s *Server) policyHistory(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	h := p.b.Policy.History()
	if h.Revisions == nil {
		h.Revisions = []api.PolicyRevision{}
	}
	writeJSON(w, http.StatusOK, h)
	return nil
}

func (s *Server) dryRun(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	window, err := span(r.URL.Query(), "window", defaultHistory)
	if err != nil {
		return badRequest("bad_parameter", "%s", err)
	}
	text, _, prob := policyText(r)
	if prob != nil {
		return prob
	}
	draft, err := p.b.Policy.Compile(text)
	if err != nil {
		return fromError(err)
	}
	p.catchUp()
	writeJSON(w, http.StatusOK, judgeAgain(p.feed.Recorded(s.clock().Add(-window)), draft))
	return nil
}
