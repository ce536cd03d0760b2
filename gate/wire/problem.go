package wire

import "net/http"

// Problem is why a request was refused before any handler saw it. Message says what is wrong and what to do; it quotes
// nothing of what came.
type Problem struct {
	// Status is the HTTP status of the answer, 400 to 505.
	Status int
	// Code is a stable word for metrics and tests.
	Code    string
	Message string
	// Remote is the address of the caller.
	Remote string
}

func bad(code, message string) *Problem {
	return &Problem{Status: http.StatusBadRequest, Code: code, Message: message}
}

func problem(status int, code, message string) *Problem {
	return &Problem{Status: status, Code: code, Message: message}
}
