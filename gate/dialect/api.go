package dialect

import "net/http"

// Read takes the facts out of a request without re-encoding it. A non-nil Problem means the request must be
// refused; Facts then hold what had been understood until there.
func Read(ep Endpoint, h http.Header, body []byte) (Facts, *Problem) {
	return Facts{Endpoint: ep, BodyBytes: len(body), Sequences: 1, Prompts: 1}, nil
}

// Edits is what may be changed in a request body. The zero value changes nothing.
type Edits struct {
	// Model replaces the top-level model name.
	Model *string
	// IncludeUsage asks for usage at the end of a chat or completions stream; it does nothing elsewhere.
	IncludeUsage bool
	// OutputCap sets the bound on output tokens in the dialect's own field.
	OutputCap *int
	// DropPriority removes the top-level priority.
	DropPriority bool
}

// Splice applies edits to a body byte by byte: all that is not edited stays as it was.
func Splice(ep Endpoint, body []byte, e Edits) ([]byte, error) { return body, nil }

// FilterOptions says what response a Filter reads.
type FilterOptions struct {
	Endpoint Endpoint
	// Stream is true for a text/event-stream response.
	Stream bool
	// Status is the engine's HTTP status.
	Status int
	// StripUsage drops the usage-only chunk that IncludeUsage caused.
	StripUsage bool
	// RewriteModel replaces the model name in the response, "" leaves it.
	RewriteModel string
}

// FirstEvent is the first event of a stream.
type FirstEvent struct {
	IsError bool
	// Code is the status inside the error, 0 when none was given.
	Code    int
	Message string
}

// Filter watches one response and changes what FilterOptions asks for.
type Filter struct{ o FilterOptions }

// NewFilter returns a Filter for one response.
func NewFilter(o FilterOptions) *Filter { return &Filter{o: o} }

// Feed takes the next bytes of the response and returns the bytes to forward now.
func (f *Filter) Feed(p []byte) []byte { return p }

// First reports whether an event with output was seen.
func (f *Filter) First() bool { return false }

// OutputEvents counts events with output so far.
func (f *Filter) OutputEvents() int { return 0 }

// RunningCompletionTokens is the engine's own count so far, if it told one.
func (f *Filter) RunningCompletionTokens() (int, bool) { return 0, false }

// FirstEvent returns the first event of the stream, once it is whole.
func (f *Filter) FirstEvent() (FirstEvent, bool) { return FirstEvent{}, false }

// Close ends the response: rest are the last bytes to forward.
func (f *Filter) Close() (rest []byte, r Result) { return nil, Result{Ending: EndWhole} }
