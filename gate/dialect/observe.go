package dialect

import (
	"bytes"
	"strconv"
)

// maxChoices bounds how many choices are told apart; above it they are taken as finished when any is.
const maxChoices = 1 << 18

// count is a number that the engine may or may not have said.
type count struct {
	n   int
	set bool
}

// observer gathers what a response says: within one event in ev, over the whole response in the rest.
type observer struct {
	kind   Kind
	status int

	ev eventFacts
	ed *editor // told when an event turns out to stay

	// Usage: the last value of each field wins. Engines repeat and correct them; they never add up.
	prompt, completion, cached, cacheRead, cacheCreation count
	running                                              count
	// told is where the numbers are that the last Result points to.
	told *[3]int
	// usageWithOutput is set when an event with choices carried usage: the engine counts along by itself.
	usageWithOutput bool

	// streaming is true for a stream, in which single events carry output.
	streaming bool
	outputs   int
	first     FirstEvent
	firstSeen bool

	seen, finished choiceSet
	finish         string
	aborted        bool
	finishError    bool
	terminal       bool

	// identity is what a response of the responses dialect is known by, as its first event said.
	identity responseIdentity

	failed       bool
	errorCode    int
	errorMessage string
	unreadable   bool
}

// responseIdentity is what clients hold all events of one response to.
type responseIdentity struct {
	id, model string
	// createdAt is a JSON number as the engine wrote it; "" when it said none.
	createdAt string
}

// maxIdentity bounds each part of an identity in bytes; a longer one is not kept.
const maxIdentity = 256

// eventFacts is what one event says.
type eventFacts struct {
	kind            eventType
	choices         bool // a choices list is there
	items           int  // and holds so many
	usage           bool
	completion      count
	output, delta   bool
	failed, flat    bool
	message, plain  string
	code, plainCode int
	choice          int
	choiceFinished  bool
	// finish is true when a choice of this event has a finish reason; print is its fingerprint as written.
	finish   bool
	print    string
	typeCode int
}

// choiceSet is a set of choice indexes.
type choiceSet struct {
	// first holds the first 64, bits those after them.
	first uint64
	bits  []uint64
	n     int
}

func (c *choiceSet) add(i int) {
	if i < 0 || i >= maxChoices {
		return
	}
	word := &c.first
	if i >= 64 {
		for len(c.bits) < i/64 {
			c.bits = append(c.bits, 0)
		}
		word = &c.bits[i/64-1]
	}
	if bit := uint64(1) << (i % 64); *word&bit == 0 {
		*word |= bit
		c.n++
	}
}

// enter is called when an object or array that matters begins.
func (o *observer) enter(n node) {
	switch n {
	case nodeChoices:
		o.ev.choices = true
	case nodeChoice:
		o.item()
		o.ev.choice, o.ev.choiceFinished = 0, false
	case nodeUsage:
		o.ev.usage = true
	}
}

// item counts what is in the list of choices, whatever it is: an event that has anything there is not one of usage alone.
func (o *observer) item() {
	o.ev.items++
	o.ed.keepEvent()
}

// member is called for each member of an object that matters. An error that says anything at all is one; an empty one
// stands beside good content where an engine writes out fields that it does not use.
func (o *observer) member(n node) {
	if n == nodeError {
		o.ev.failed = true
	}
}

// leave is called when such an object or array ends.
func (o *observer) leave(n node) {
	if n != nodeChoice {
		return
	}
	o.seen.add(o.ev.choice)
	if o.ev.choiceFinished {
		o.finished.add(o.ev.choice)
	}
}

// rootEnd is called at the bracket that ends an event's object. Behind the last finish reason vLLM sends the chunk that
// is dropped, with the fingerprint that would stand here had nobody asked for usage.
func (o *observer) rootEnd(at int) {
	if o.streaming && o.ev.finish && o.ev.print == "" && o.allFinished() {
		o.ed.holdTail(at)
	}
}

// text is called for a string that matters: its beginning as written and its whole length.
func (o *observer) text(n node, raw []byte, length int) {
	switch n {
	case nodeChoice:
		o.item()
	case nodeOutput:
		o.ev.output = o.ev.output || length > 0
	case nodeEventDelta:
		o.ev.delta = o.ev.delta || length > 0
	case nodeObject:
		o.ev.flat = o.ev.flat || string(raw) == "error"
	case nodeType:
		o.ev.kind = eventTypeOf(raw)
	case nodeFingerprint:
		if length <= maxIdentity {
			o.ev.print = string(raw)
		}
	case nodeFinish:
		o.ev.choiceFinished, o.ev.finish = true, true
		o.setFinish(raw)
	case nodeStop:
		o.setFinish(raw)
	case nodeReason:
		o.setFinish(raw)
		if o.kind == KindResponses && o.finish != "max_output_tokens" {
			o.aborted = true
		}
	case nodeResponseID:
		o.identity.id = keep(o.identity.id, raw, length)
	case nodeModel:
		o.identity.model = keep(o.identity.model, raw, length)
	case nodeStatus:
		if o.kind == KindResponses {
			o.setStatus(raw)
		}
	case nodeErrorMessage:
		o.ev.message = unescape(raw)
	case nodeError:
		if length > 0 {
			o.ev.failed, o.ev.message = true, unescape(raw)
		}
	case nodeErrorType:
		o.ev.typeCode = codeOfType(raw)
	case nodeErrorCode:
		o.ev.code = codeOfWord(raw)
	case nodeCode:
		o.ev.plainCode = codeOfWord(raw)
	case nodeMessage, nodeDetail:
		o.ev.plain = unescape(raw)
	}
}

// literal is called for a number, true, false or null that matters.
func (o *observer) literal(n node, raw []byte) {
	if n == nodeChoice {
		o.item()
	}
	value := number(raw)
	if !value.set {
		return
	}
	switch n {
	case nodeCreatedAt:
		o.identity.createdAt = strconv.Itoa(value.n)
	case nodeIndex:
		o.ev.choice = value.n
	case nodeErrorCode:
		o.ev.code = asStatus(value)
	case nodeCode:
		o.ev.plainCode = asStatus(value)
	case nodePromptTokens:
		o.prompt = value
	case nodeCompletionTokens:
		o.ev.completion = value
	case nodeCachedTokens:
		o.cached = value
	case nodeCacheRead:
		o.cacheRead = value
	case nodeCacheCreation:
		o.cacheCreation = value
	}
}

// keep is the string raw of the given length as written, or what was kept before when there is one.
func keep(before string, raw []byte, length int) string {
	if before != "" || length > maxIdentity {
		return before
	}
	return unescape(raw)
}

// number reads a count; anything but a whole number from 0 to 2^31 is no count.
func number(raw []byte) count {
	n := 0
	for _, c := range raw {
		if c < '0' || c > '9' || n > 1<<31 {
			return count{}
		}
		n = 10*n + int(c-'0')
	}
	if len(raw) == 0 || n > 1<<31 {
		return count{}
	}
	return count{n, true}
}

func (o *observer) setFinish(raw []byte) {
	if string(raw) == o.finish {
		return
	}
	o.finish = unescape(raw[:min(len(raw), 64)])
	switch o.finish {
	case "abort":
		o.aborted = true
	case "error":
		o.finishError = true
	}
}

// setStatus reads the status of a response object. The reason inside incomplete_details says more and wins. A missing
// reason leaves a response whole: engines that give none mean that the output cap was reached.
func (o *observer) setStatus(raw []byte) {
	switch string(raw) {
	case "completed":
		o.finish = "completed"
	case "incomplete":
		if o.finish == "" {
			o.finish = "incomplete"
		}
	case "failed":
		o.finishError = true
	case "cancelled":
		o.aborted = true
	}
}

// dispatch takes the event that has been read. name is what the stream's event line said, complete whether its
// data was one whole JSON object.
func (o *observer) dispatch(name []byte, complete bool) {
	ev := &o.ev
	if ev.kind == eventOther && len(name) > 0 {
		ev.kind = eventTypeOf(name)
	}
	if !complete {
		o.unreadable = true
	}
	o.takeError()
	if ev.output && o.namesEvents() && ev.kind != eventDelta {
		ev.output = false
	}
	if o.streaming && (ev.output || ev.delta && ev.kind == eventDelta) {
		o.outputs++
	}
	if ev.completion.set && ev.kind != eventStart {
		o.completion = ev.completion
	}
	if ev.usage {
		o.usageWithOutput = o.usageWithOutput || ev.items > 0
		if !o.namesEvents() || ev.kind == eventUsage || ev.kind == eventCompleted {
			o.running = o.completion
		}
	}
	switch ev.kind {
	case eventStop, eventCompleted, eventFailed:
		o.terminal = true
	}
	if !o.firstSeen && ev.kind != eventPing {
		o.firstSeen = true
		o.first = FirstEvent{IsError: o.failed, Code: o.errorCode, Message: o.errorMessage}
	}
	o.ev = eventFacts{}
}

// namesEvents reports whether the dialect tells by an event's type what is in it.
func (o *observer) namesEvents() bool {
	return o.kind == KindMessages || o.kind == KindResponses
}

// takeError notes an error object: wrapped, a bare string, SGLang's flat one, the event of the responses
// dialect, or FastAPI's own under an error status.
func (o *observer) takeError() {
	ev := &o.ev
	flat := ev.flat || ev.kind == eventError || o.status >= 400
	if !ev.failed && !flat && ev.kind != eventFailed || o.failed {
		return
	}
	o.failed = true
	message := ev.message
	if message == "" && flat {
		message = ev.plain
	}
	code := ev.code
	if code == 0 && flat {
		code = ev.plainCode
	}
	if code == 0 {
		code = ev.typeCode
	}
	if code == 0 && o.status >= 400 {
		code = o.status
	}
	o.errorCode, o.errorMessage = code, scrub(message)
}

// asStatus takes a number as an HTTP error status; 0 for one that is none.
func asStatus(c count) int {
	if c.n < 400 || c.n > 599 {
		return 0
	}
	return c.n
}

// codeOfWord reads an error code that is a string: a status in digits, or a word.
func codeOfWord(raw []byte) int {
	if status := asStatus(number(raw)); status != 0 {
		return status
	}
	return codeOfType(raw)
}

// codeOfType reads the status that an error's type or word stands for, in the words of OpenAI, Anthropic, vLLM
// and SGLang; 0 for a word that says nothing.
func codeOfType(raw []byte) int {
	word := bytes.ToLower(raw)
	for _, c := range []byte("_ -") {
		word = bytes.ReplaceAll(word, []byte{c}, nil)
	}
	for _, known := range errorWords {
		if bytes.Contains(word, []byte(known.word)) {
			return known.code
		}
	}
	return 0
}

var errorWords = []struct {
	word string
	code int
}{
	{"overloaded", StatusOverloaded}, {"serviceunavailable", 503}, {"ratelimit", 429}, {"toomanyrequests", 429},
	{"badrequest", 400}, {"invalidrequest", 400}, {"unprocessable", 422}, {"notfound", 404}, {"authentication", 401},
	{"unauthorized", 401}, {"permission", 403}, {"toolarge", 413}, {"timeout", 504}, {"notimplemented", 501},
	{"internalserver", 500}, {"apierror", 500}, {"servererror", 500},
}

// usage returns the tokens as admitd counts them: prompt tokens include cached ones in every dialect.
func (o *observer) usage() Usage {
	prompt, cached := o.prompt, o.cached
	if o.kind == KindMessages {
		cached = o.cacheRead
		if prompt.set {
			prompt.n += o.cacheRead.n + o.cacheCreation.n
		}
	}
	if n := [3]int{prompt.n, cached.n, o.completion.n}; o.told == nil || *o.told != n {
		told := n // what is kept is made here, and only here
		o.told = &told
	}
	n, u := o.told, Usage{}
	if prompt.set {
		u.PromptTokens = &n[0]
	}
	if cached.set {
		u.CachedTokens = &n[1]
	}
	if o.completion.set {
		u.CompletionTokens = &n[2]
	}
	return u
}
