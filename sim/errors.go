package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// Texts that a real vLLM 0.32 sends; clients and supervisors recognise them.
const (
	engineDeadText = "EngineCore encountered an issue. See stack trace (above) for the root cause."
	counterText    = "Counters can only be incremented by non-negative amounts."
	drainingText   = "cannot schedule new futures after shutdown"
)

// apiError is an error answer before it takes a dialect's shape.
type apiError struct {
	Status  int
	Type    string
	Message string
	// Param is the field at fault, "" for none.
	Param string
}

func (e *apiError) Error() string { return e.Message }

// family is the shape of error bodies.
type family int

const (
	openAI family = iota
	anthropic
	flat // SGLang outside streams
)

func badRequest(param, format string, a ...any) *apiError {
	return &apiError{Status: http.StatusBadRequest, Type: "BadRequestError", Message: fmt.Sprintf(format, a...), Param: param}
}

// schemaError is what the validation layer answers; it always has the OpenAI shape.
func schemaError(param, message string) *apiError {
	return &apiError{Status: http.StatusBadRequest, Type: "Bad Request", Message: message, Param: param}
}

// body renders an error for a whole response.
func (e *apiError) body(f family) []byte {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	}
	in := inner{Message: e.Message, Type: e.Type, Code: e.Status}
	if e.Param != "" {
		in.Param = &e.Param
	}
	switch {
	case f == anthropic && e.Type != "Bad Request":
		type short struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		}
		return encode(struct {
			Type  string `json:"type"`
			Error short  `json:"error"`
		}{"error", short{e.Type, e.Message}})
	case f == flat:
		return encode(struct {
			Object string `json:"object"`
			inner
		}{"error", in})
	}
	return encode(struct {
		Error inner `json:"error"`
	}{in})
}

// line renders an error for inside a stream, spaced as Python's json.dumps does it.
func (e *apiError) line() []byte {
	param := "null"
	if e.Param != "" {
		param = strconv.Quote(e.Param)
	}
	return fmt.Appendf(nil, `{"error": {"message": %s, "type": %s, "param": %s, "code": %d}}`,
		encode(e.Message), encode(e.Type), param, e.Status)
}

// encode is JSON without HTML escapes.
func encode(v any) []byte {
	b, err := marshal(v)
	if err != nil {
		// Only values of this package are encoded, and all of them can be.
		return []byte("null")
	}
	return b
}

func marshal(v any) ([]byte, error) {
	w := &sliceWriter{}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return w.b[:len(w.b)-1], nil
}

type sliceWriter struct{ b []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}
