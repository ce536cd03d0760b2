package dialect

import (
	"encoding/json"
	"net/http"

	"admitd/gate/reason"
)

// StatusOverloaded is 529, Anthropic's "overloaded", which admitd uses for a saturated pool.
const StatusOverloaded = 529

// Refusal builds the body of a refused request in the shape that the family's SDKs read. The reason word is the
// error code of the OpenAI shape. message is for people and must hold neither prompt text nor secrets.
func Refusal(f Family, c reason.Code, status int, message, param string) (contentType string, body []byte) {
	const jsonType = "application/json"
	if f == Anthropic {
		return jsonType, encode(anthropicEnvelope{Type: "error", Error: anthropicError{anthropicType(status), message}})
	}
	e := openAIError{Message: message, Type: openAIType(status), Code: c}
	if param != "" {
		e.Param = &param
	}
	return jsonType, encode(openAIEnvelope{e})
}

// StreamError builds what ends a stream that has already begun: an error event in the shape of the operation,
// followed by the terminal mark where the dialect has one. (*Filter).StreamError knows more and is to be preferred
// where a response has begun.
func StreamError(f Family, kind Kind, status int, message string) []byte {
	switch {
	case f == Anthropic:
		e := anthropicEnvelope{Type: "error", Error: anthropicError{anthropicType(status), message}}
		return event("error", encode(e))
	case kind == KindResponses:
		return responsesError(responseIdentity{}, status, message)
	}
	e := openAIEnvelope{openAIError{Message: message, Type: openAIType(status), Code: status}}
	return append(event("", encode(e)), "data: [DONE]\n\n"...)
}

// responsesError sends both an error event, which SDKs raise, and response.failed, which ends the state machine
// of clients that follow the response object. These stop at once when its id is not the one they know.
func responsesError(id responseIdentity, status int, message string) []byte {
	type failure struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	type response struct {
		ID        string      `json:"id,omitempty"`
		Object    string      `json:"object"`
		CreatedAt json.Number `json:"created_at,omitempty"`
		Model     string      `json:"model,omitempty"`
		Status    string      `json:"status"`
		Error     failure     `json:"error"`
	}
	first := event("error", encode(struct {
		Type    string  `json:"type"`
		Code    string  `json:"code"`
		Message string  `json:"message"`
		Param   *string `json:"param"`
	}{"error", openAIType(status), message, nil}))
	return append(first, event("response.failed", encode(struct {
		Type     string   `json:"type"`
		Response response `json:"response"`
	}{"response.failed", response{id.id, "response", json.Number(id.createdAt), id.model, "failed", failure{openAIType(status), message}}}))...)
}

type openAIEnvelope struct {
	Error openAIError `json:"error"`
}

type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    any     `json:"code"`
}

type anthropicEnvelope struct {
	Type  string         `json:"type"`
	Error anthropicError `json:"error"`
}

type anthropicError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func openAIType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable, StatusOverloaded:
		return "overloaded_error"
	}
	if status >= 500 {
		return "server_error"
	}
	return "invalid_request_error"
}

func anthropicType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable, StatusOverloaded:
		return "overloaded_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// encode marshals values of this file, which hold only strings and numbers and therefore cannot fail.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte(`{"error":{"message":"the error could not be written","type":"server_error","param":null,"code":null}}`)
	}
	return b
}

func event(name string, data []byte) []byte {
	var b []byte
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	b = append(append(b, "data: "...), data...)
	return append(b, "\n\n"...)
}
