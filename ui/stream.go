package ui

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"admitd/ui/api"
	"admitd/ui/feed"
)

// stream is the websocket. ?resume= is the last number that the viewer has.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	resume, err := whole(r.URL.Query(), "resume", 0, 0, 1<<53)
	if err != nil {
		return badRequest("bad_parameter", "%s", err)
	}
	if !websocket.IsWebSocketUpgrade(r) {
		return newProblem(http.StatusUpgradeRequired, "upgrade_required",
			"This is a websocket; GET /api/v1/frame answers the same by polling.").with("Upgrade", "websocket")
	}
	release, prob := s.hub.reserve()
	if prob != nil {
		return prob
	}
	defer release()
	up := websocket.Upgrader{
		Subprotocols: []string{api.StreamProtocol},
		// The guard has refused other origins already; this keeps the rule even if the order of checks changes.
		CheckOrigin: func(r *http.Request) bool { return s.guard.origin(r) == nil },
		Error: func(w http.ResponseWriter, _ *http.Request, status int, reason error) {
			newProblem(status, "upgrade_refused", reason.Error()).write(w)
		},
	}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return nil // answered by Error above
	}
	s.view(p, conn, uint64(resume))
	return nil
}

// view serves one viewer until its connection ends: this goroutine reads, one more writes.
func (s *Server) view(p *pool, conn *websocket.Conn, resume uint64) {
	v := newViewer(s.hub.o, conn, func(n int) { s.hub.dropped.Add(uint64(n)) })
	defer func() { _ = conn.Close() }()
	if !s.hub.enter(v) {
		return
	}
	defer s.hub.leave(v)
	now := s.clock()
	p.catchUp()
	start := p.feed.Subscribe(now, resume, v)
	defer p.feed.Unsubscribe(v)
	first, err := s.opening(p, now, start)
	if err != nil {
		s.log.Error("the first messages to a viewer could not be encoded", "error", err)
		return
	}
	v.last = start.Last
	written := make(chan string, 1)
	go func() {
		cause := v.write(first)
		_ = conn.Close() // ends the reader
		written <- cause
	}()
	v.read()
	cause := <-written
	s.hub.ended[cause].Add(1)
	s.log.Debug("a viewer has left", "pool", p.b.Model, "cause", cause)
}

// opening is what a viewer gets first: hello, then what it missed, or a snap and what is lost to it.
func (s *Server) opening(p *pool, now time.Time, start feed.Start) ([][]byte, error) {
	messages := []any{s.hello(p, now, start)}
	if start.Snap != nil {
		messages = append(messages, s.snap(now, start))
	}
	if start.Gap[1] != 0 {
		messages = append(messages, api.GapMessage{
			Envelope: api.Envelope{V: api.StreamVersion, Seq: start.Last, T: now.UnixMilli(), Kind: api.KindGap},
			From:     start.Gap[0], To: start.Gap[1],
		})
	}
	var out [][]byte
	for _, m := range messages {
		b, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	for _, m := range start.Replay {
		out = append(out, m.Data)
	}
	return out, nil
}

func (s *Server) snap(now time.Time, start feed.Start) api.Snap {
	return api.Snap{
		Envelope: api.Envelope{V: api.StreamVersion, Seq: start.Last, T: now.UnixMilli(), Kind: api.KindSnap},
		Status:   s.status(now), History: start.Snap.History, Decisions: start.Snap.Decisions,
		Events: start.Snap.Events,
	}
}

// Limits of one answer of GET frame.
const (
	maxPollMessages = 300
	maxPollBytes    = 1 << 20
)

// getFrame is the stream by polling, for where websockets are blocked.
func (s *Server) getFrame(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	since, err := whole(r.URL.Query(), "since", 0, 0, 1<<53)
	if err != nil {
		return badRequest("bad_parameter", "%s", err)
	}
	now := s.clock()
	p.catchUp()
	start := p.feed.Subscribe(now, uint64(since), nil)
	out := api.Poll{Messages: []json.RawMessage{}, Next: start.Last}
	if !start.Resumed {
		first, err := s.opening(p, now, start)
		if err != nil {
			return newProblem(http.StatusInternalServerError, "failed", "encode the answer: "+err.Error())
		}
		for _, b := range first {
			out.Messages = append(out.Messages, b)
		}
		writeJSON(w, http.StatusOK, out)
		return nil
	}
	size := 0
	for _, m := range start.Replay {
		if size += len(m.Data); len(out.Messages) > 0 && (size > maxPollBytes || len(out.Messages) >= maxPollMessages) {
			out.More = true
			break
		}
		out.Messages = append(out.Messages, m.Data)
		out.Next = m.Seq
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}
