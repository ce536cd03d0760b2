package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"admitd/gate/policy"
	"admitd/gate/reason"
	"admitd/internal/strict"
	"admitd/ui/api"
)

// problemType begins the type of every problem; the word after it is stable.
const problemType = "urn:admitd:problem:"

type problem struct {
	api.Problem
	header http.Header
}

func newProblem(status int, word, detail string) *problem {
	return &problem{Problem: api.Problem{Type: problemType + word, Title: http.StatusText(status), Status: status, Detail: detail}}
}

func (p *problem) with(key, value string) *problem {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(key, value)
	return p
}

func (p *problem) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), p.header)
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="admitd"`)
	}
	body, err := json.Marshal(p.Problem)
	if err != nil {
		body = []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

func badRequest(word, format string, args ...any) *problem {
	return newProblem(http.StatusBadRequest, word, fmt.Sprintf(format, args...))
}

// fromError turns the errors of Backend and PolicyStore into problems.
func fromError(err error) *problem {
	var (
		bad    *strict.Error
		needs  *policy.NeedsError
		fields *FieldsError
	)
	switch {
	case errors.As(err, &bad):
		p := newProblem(http.StatusBadRequest, "invalid_text", bad.Error())
		for _, at := range bad.Places {
			p.Errors = append(p.Errors, api.Place{File: at.File, Line: at.Line, Column: at.Column, Field: at.Field, Text: at.Text})
		}
		return p
	case errors.As(err, &needs):
		return newProblem(http.StatusUnprocessableEntity, "signals_not_exported", needs.Error())
	case errors.As(err, &fields):
		p := newProblem(http.StatusConflict, "not_hot", fields.Error())
		p.Fields = fields.Fields
		return p
	case errors.Is(err, ErrPrecondition):
		return newProblem(http.StatusPreconditionFailed, "policy_changed", err.Error())
	case errors.Is(err, ErrNoRevision):
		return newProblem(http.StatusNotFound, "no_such_revision", err.Error())
	}
	return newProblem(http.StatusInternalServerError, "failed", err.Error())
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		newProblem(http.StatusInternalServerError, "failed", "encode the answer: "+err.Error()).write(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

func reasons() []reason.Entry { return reason.All() }
