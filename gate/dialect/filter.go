package dialect

// FilterOptions says what response a Filter reads and what it changes.
type FilterOptions struct {
	Endpoint Endpoint
	// Stream is true for a text/event-stream response.
	Stream bool
	// Status is the engine's HTTP status; 0 means 200.
	Status int
	// StripUsage drops the chunk that holds nothing but usage, for callers who did not ask for it. It is for chat
	// and completions streams whose request was changed by Edits.IncludeUsage. The chunk's system_fingerprint goes back
	// to the chunk with the last finish reason, where vLLM sends it when not asked for usage. (With several choices
	// vLLM then sends it with each of their finish reasons; those before the last one stay without.)
	StripUsage bool
	// RewriteModel replaces the model name in bodies and events; "" leaves it.
	RewriteModel string
}

// FirstEvent is the first event of a stream, or the whole body of a response that is none.
type FirstEvent struct {
	IsError bool
	// Code is the HTTP status that the error stands for, 0 when it does not say.
	Code int
	// Message is the engine's message, without echoed input and at most 300 bytes.
	Message string
}

// Filter watches the bytes of one response and changes what FilterOptions asks for. It reads the stream in
// pieces of any size with a fixed amount of memory, and never stops it: what it cannot read it forwards. Not
// safe for use by two goroutines.
type Filter struct {
	o      FilterOptions
	mode   filterMode
	obs    observer
	skim   skimmer
	sse    sseReader
	ed     *editor
	done   bool // the body's JSON value is complete and evaluated
	closed bool
}

type filterMode uint8

const (
	modeUnknown filterMode = iota // only white space so far
	modeSSE
	modeJSON
	modeOpaque // neither: forwarded, not read
)

// NewFilter returns a Filter for one response.
func NewFilter(o FilterOptions) *Filter {
	f := &Filter{}
	f.Init(o)
	return f
}

// Init makes the zero Filter one for a response. A Filter must not be copied after that.
func (f *Filter) Init(o FilterOptions) {
	if o.Status == 0 {
		o.Status = 200
	}
	if o.Endpoint.Kind != KindChat && o.Endpoint.Kind != KindCompletions {
		o.StripUsage = false
	}
	f.o = o
	f.obs.kind, f.obs.status = o.Endpoint.Kind, o.Status
	if o.StripUsage || o.RewriteModel != "" {
		f.ed = &editor{hold: o.StripUsage, held: -1}
		if o.RewriteModel != "" {
			f.ed.model = quote(o.RewriteModel)
		}
		f.obs.ed = f.ed
	}
	f.skim.obs, f.skim.ed = &f.obs, f.ed
}

// Feed takes the next bytes of the response and returns those to forward now. When neither StripUsage nor
// RewriteModel is set that is p itself, untouched; otherwise a slice that is valid until the next call. At most
// 64 KiB are held back, and only of an event that may have to be dropped, with the closing bracket before it.
func (f *Filter) Feed(p []byte) []byte {
	if f.closed || len(p) == 0 {
		return p
	}
	if f.ed == nil {
		f.read(p)
		return p
	}
	f.ed.begin(p)
	f.read(p)
	return f.ed.end()
}

func (f *Filter) read(p []byte) {
	from := 0
	if f.mode == modeUnknown {
		if from = f.sniff(p); from == len(p) {
			return
		}
	}
	switch f.mode {
	case modeSSE:
		f.readSSE(p, from)
	case modeJSON:
		f.skim.feed(p[from:], from)
		if f.skim.state == skimDone && !f.done {
			f.done = true
			f.obs.dispatch(nil, true)
		}
	}
}

// sniff finds out what the response is from its first byte that is no white space: engines answer a stream's
// request with a plain JSON error, too.
func (f *Filter) sniff(p []byte) int {
	for i, c := range p {
		switch c {
		case ' ', '\t', '\r', '\n', 0xEF, 0xBB, 0xBF: // white space and the byte order mark
			continue
		}
		switch {
		case c == '{', c == '[' && !f.o.Stream:
			f.mode = modeJSON
		case f.o.Stream:
			f.mode, f.obs.streaming = modeSSE, true
		default:
			f.mode = modeOpaque
		}
		return i
	}
	return len(p)
}

// First reports whether an event with output was seen: content, reasoning or a tool call, not a mere role.
func (f *Filter) First() bool { return f.obs.outputs > 0 }

// OutputEvents counts events with output so far.
func (f *Filter) OutputEvents() int { return f.obs.outputs }

// RunningCompletionTokens is the engine's own count of output tokens so far, and false while it has not told one
// that counts along.
func (f *Filter) RunningCompletionTokens() (int, bool) { return f.obs.running.n, f.obs.running.set }

// FirstEvent returns the first event of the stream once it is whole; pings and comments are none.
func (f *Filter) FirstEvent() (FirstEvent, bool) { return f.obs.first, f.obs.firstSeen }

// Close ends the response: rest are the last bytes to forward, r is what was seen. Whoever knows that the caller
// went away overrides r.Ending with EndCaller. Calls after the first return no rest.
func (f *Filter) Close() (rest []byte, r Result) {
	if !f.closed {
		f.closed = true
		rest = f.finish()
	}
	return rest, f.Result()
}

// StreamError is the package's StreamError for this response: where the dialect's clients hold all events to the identity
// that the first one told, the error has it.
func (f *Filter) StreamError(status int, message string) []byte {
	if f.o.Endpoint.Kind != KindResponses {
		return StreamError(f.o.Endpoint.Family, f.o.Endpoint.Kind, status, message)
	}
	id := f.obs.identity
	if f.o.RewriteModel != "" && id.model != "" {
		id.model = f.o.RewriteModel
	}
	return responsesError(id, status, message)
}

// finish evaluates an event that lacks its blank line, as some engines' last one does, and returns what was held.
func (f *Filter) finish() []byte {
	if f.ed != nil {
		f.ed.begin(nil)
	}
	switch f.mode {
	case modeSSE:
		if f.sse.state != lineStart {
			f.endLine(0)
		}
		f.endEvent(0)
	case modeJSON:
		if !f.done {
			f.obs.dispatch(nil, false)
		}
	}
	if f.ed == nil {
		return nil
	}
	f.ed.keepEvent()
	return f.ed.end()
}
