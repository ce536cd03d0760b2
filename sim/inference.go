package sim

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"admitd/sim/model"
)

// sink writes one answer, streamed or whole. Methods are called by one goroutine.
type sink interface {
	// begin is called once, when the first token of any sequence is out. cached is the number of prompt tokens that
	// came from the prefix cache.
	begin(cached int)
	// piece adds the k-th token (from 1) of sequence i; reason is "" unless it is the last one.
	piece(i, k int, text, reason string)
	// end closes a complete answer.
	end()
	// fail closes an answer with an error.
	fail(e *apiError)
}

// faultTokens is the number of tokens that the stream faults let through; giantBytes the size of a giant event's text.
const (
	faultTokens = 3
	giantBytes  = 8 << 20
)

// errCut means that a fault wants the answer to end without an ending.
var errCut = errors.New("cut by a fault")

// inference handles one generating path.
func (s *Server) inference(k kind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.load.Add(1)
		defer s.load.Add(-1)
		s.faults.request()
		body, bad := s.readBody(w, r)
		if bad == nil {
			var j *job
			if j, bad = s.readJob(k, r, body); bad == nil {
				s.generate(w, r, j)
				return
			}
		}
		if bad.Type == "Bad Request" {
			s.writeError(w, openAI, bad)
			return
		}
		s.writeError(w, k.family(), bad)
	}
}

// generate runs a job and writes its answer.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, j *job) {
	calls, bad := s.submit(j)
	out := bufio.NewWriterSize(w, 16<<10)
	var to sink
	if j.stream {
		to = s.streamSink(j, out)
	} else {
		to = s.wholeSink(w, j)
	}
	if bad != nil {
		if s.overflow(r.Context(), bad) {
			s.refuse(w, j, out, to, bad)
		}
		return
	}
	defer func() {
		if !s.outstays(r.Context()) {
			s.driver.cancel(calls)
		}
	}()
	if j.stream && s.opt.Dialect == VLLM {
		// vLLM sends its headers before there is a token; SGLang holds them.
		s.streamHeaders(w)
	}
	err := s.follow(r.Context(), j, calls, to, func() {
		if s.unblocked(r.Context()) && j.stream {
			s.streamHeaders(w)
			_ = out.Flush() // a client that has left ends the request's context
			flush(w)
		}
	})
	if err == nil && j.stream {
		_ = out.Flush()
	}
}

func flush(w http.ResponseWriter) {
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

func (s *Server) streamHeaders(w http.ResponseWriter) {
	if w.Header().Get("Content-Type") != "" {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	flush(w)
}

// submit hands the job to the model, or says with which error the engine refuses it.
func (s *Server) submit(j *job) ([]*call, *apiError) {
	switch {
	case s.draining.Load():
		return nil, &apiError{Status: 500, Type: "InternalServerError", Message: drainingText}
	case s.faults.on(FaultInBand503) || s.faults.on(FaultReal503):
		return nil, s.queueFull()
	}
	reqs := make([]model.Request, len(j.seqs))
	for i, q := range j.seqs {
		reqs[i] = q.req
	}
	calls, err := s.driver.submit(reqs, j.rid, params{n: j.n, maxTokens: j.limit, stream: j.stream})
	var api *apiError
	switch {
	case err == nil:
		return calls, nil
	case errors.As(err, &api):
		return nil, api
	case errors.Is(err, model.ErrQueueFull), errors.Is(err, model.ErrPrefillFull):
		return nil, s.queueFull()
	}
	return nil, &apiError{Status: 500, Type: "InternalServerError", Message: err.Error()}
}

func (s *Server) queueFull() *apiError {
	e := &apiError{Status: http.StatusServiceUnavailable, Type: "Service Unavailable"}
	if s.opt.Dialect == SGLang {
		e.Type, e.Message = "SERVICE_UNAVAILABLE", "The request queue is full."
		return e
	}
	e.Message = "The engine has too many requests in flight. Please try again later."
	return e
}

// refuse answers a request that the model did not take. Both engines report a full queue to a streaming caller as an
// error inside a 200.
func (s *Server) refuse(w http.ResponseWriter, j *job, out *bufio.Writer, to sink, bad *apiError) {
	inBand := j.stream && bad.Status == http.StatusServiceUnavailable && !s.faults.on(FaultReal503)
	if !inBand {
		s.writeError(w, j.kind.family(), bad)
		return
	}
	s.streamHeaders(w)
	to.fail(bad)
	_ = out.Flush()
}

// follow turns the calls' progress into pieces until all have ended. push sends what is written so far.
func (s *Server) follow(ctx context.Context, j *job, calls []*call, to sink, push func()) error {
	f := follower{s: s, j: j, to: to, done: make([]int, len(calls)), ended: make([]bool, len(calls))}
	for {
		open, moved := 0, false
		for i, c := range calls {
			st := c.load()
			if st.err != nil {
				to.fail(st.err)
				push()
				return st.err
			}
			m, err := f.catchUp(i, st)
			if err != nil {
				push()
				return err
			}
			moved = moved || m
			if !f.ended[i] {
				open++
			}
		}
		if open == 0 {
			to.end()
			push()
			return nil
		}
		if moved {
			push()
		}
		select {
		case <-calls[0].wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follower is how far an answer has been written.
type follower struct {
	s     *Server
	j     *job
	to    sink
	done  []int
	ended []bool
	begun bool
	total int
}

// catchUp writes the pieces of sequence i that are new.
func (f *follower) catchUp(i int, st callState) (moved bool, err error) {
	for f.done[i] < st.tokens {
		if f.total == 0 && f.s.faults.on(FaultCounterRaises) {
			f.to.fail(&apiError{Status: 500, Type: "InternalServerError", Message: counterText})
			return true, errCut
		}
		f.begin(st)
		if err := f.fault(i); err != nil {
			return true, err
		}
		k := f.done[i]
		text, reason := f.j.seqs[i].text(f.j, k), ""
		if k+1 == st.tokens && st.reason != "" && st.reason != model.Abort {
			reason = string(st.reason)
			f.ended[i] = true
		}
		if f.total == 1 && f.j.stream && f.s.faults.on(FaultGiantEvent) {
			text = strings.Repeat("x", giantBytes)
		}
		f.done[i]++
		f.total++
		f.to.piece(i, k+1, text, reason)
		moved = true
	}
	if st.reason == model.Abort && !f.ended[i] {
		f.ended[i] = true
		f.begin(st)
		f.to.piece(i, f.done[i], "", string(st.reason))
		moved = true
	}
	return moved, nil
}

func (f *follower) begin(st callState) {
	if !f.begun {
		f.begun = true
		f.to.begin(st.cached)
	}
}

// fault ends the answer early where a fault asks for it.
func (f *follower) fault(i int) error {
	if f.total < faultTokens {
		return nil
	}
	switch {
	case f.s.faults.on(FaultAbortStream):
		f.to.piece(i, f.done[i], "", string(model.Abort))
		f.to.end()
	case f.j.stream && f.s.faults.on(FaultErrorStream):
		f.to.fail(&apiError{Status: 500, Type: "InternalServerError", Message: engineDeadText})
	case f.j.stream && f.s.faults.on(FaultCutStream):
	default:
		return nil
	}
	return errCut
}

func (s *Server) unix() int64 { return time.Now().Unix() }

func (s *Server) streamSink(j *job, out *bufio.Writer) sink {
	if s.opt.Dialect == SGLang {
		return &sglangStream{s: s, j: j, out: out, tokens: make([]int, len(j.seqs))}
	}
	switch j.kind {
	case kindMessages:
		return &messagesStream{s: s, j: j, out: out}
	case kindResponses:
		return &responsesStream{s: s, j: j, out: out}
	}
	return &openAIStream{s: s, j: j, out: out, tokens: make([]int, len(j.seqs))}
}

func (s *Server) wholeSink(w http.ResponseWriter, j *job) sink {
	return &whole{s: s, j: j, w: w, text: make([]strings.Builder, len(j.seqs)), tokens: make([]int, len(j.seqs)), reasons: make([]string, len(j.seqs))}
}
