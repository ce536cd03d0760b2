package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gorilla/websocket"

	"admitd/gate/reason"
	"admitd/ui/api"
)

// Stream is an open websocket. Next must be called by one goroutine; Close by any.
type Stream struct {
	conn *websocket.Conn
	stop func() bool
	over func() error // the context's error
	// LastSeq is the number of the last message read; pass it to resume.
	LastSeq uint64
	// words are the strings interned so far; Word reads them.
	words                         []string
	verdicts                      []string
	reasons                       []reason.Entry
	decisionFields, outcomeFields []string
}

// Message is one message of the stream. The pointer that belongs to Kind is set, the others are nil; a kind of a later
// version has none set.
type Message struct {
	api.Envelope
	Hello *api.Hello
	Snap  *api.Snap
	Frame *api.Frame
	Gap   *api.GapMessage
	Event *api.EventMessage
	Bye   *api.Bye
}

// ErrStreamEnded: the server closed the stream in an orderly way; Next's error says why.
var ErrStreamEnded = errors.New("stream ended")

// silence is how long the stream may be silent before it counts as dead: frames come at least every second.
const silence = 90 * time.Second

// Stream opens the websocket. resume is the last number that the caller has, 0 to start afresh. The stream ends when
// ctx does. Errors as for the other calls.
func (c *Client) Stream(ctx context.Context, resume uint64) (*Stream, error) {
	q := url.Values{}
	if resume > 0 {
		q.Set("resume", strconv.FormatUint(resume, 10))
	}
	u, err := url.Parse(c.url("/api/v1/stream", q))
	if err != nil {
		return nil, fmt.Errorf("make the stream's address: %w", err)
	}
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	d := websocket.Dialer{Subprotocols: []string{api.StreamProtocol}, HandshakeTimeout: 15 * time.Second,
		NetDialContext: c.dial}
	if c.token != "" {
		d.Subprotocols = append(d.Subprotocols, api.TokenProtocol+base64.RawURLEncoding.EncodeToString([]byte(c.token)))
	}
	conn, resp, err := d.DialContext(ctx, u.String(), http.Header{})
	if err != nil {
		if resp != nil && errors.Is(err, websocket.ErrBadHandshake) {
			defer func() { _ = resp.Body.Close() }()
			return nil, problemOf(resp)
		}
		return nil, c.unreachable(ctx, err)
	}
	s := &Stream{conn: conn, over: ctx.Err}
	s.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	conn.SetReadLimit(maxAnswer)
	ping := conn.PingHandler()
	conn.SetPingHandler(func(data string) error {
		_ = conn.SetReadDeadline(time.Now().Add(silence))
		return ping(data)
	})
	return s, nil
}

// Next waits for the next message. After an error the stream is of no more use; ErrStreamEnded wraps an orderly end,
// and the context's own error tells its end.
func (s *Stream) Next() (Message, error) {
	var m Message
	_ = s.conn.SetReadDeadline(time.Now().Add(silence)) // fails only when the read will
	_, data, err := s.conn.ReadMessage()
	var ce *websocket.CloseError
	switch {
	case errors.As(err, &ce):
		return m, fmt.Errorf("%w: %s (code %d)", ErrStreamEnded, ce.Text, ce.Code)
	case err != nil && s.over() != nil:
		return m, s.over()
	case err != nil:
		return m, fmt.Errorf("read the stream: %w", err)
	}
	if err := m.decode(data); err != nil {
		return m, fmt.Errorf("read the stream: %w", err)
	}
	s.LastSeq = max(s.LastSeq, m.Seq)
	s.learn(&m)
	return m, nil
}

func (m *Message) decode(data []byte) error {
	if err := json.Unmarshal(data, &m.Envelope); err != nil {
		return err
	}
	if m.V != api.StreamVersion {
		return fmt.Errorf("the server speaks version %d of the stream, this program version %d", m.V, api.StreamVersion)
	}
	into := func(v any) error { return json.Unmarshal(data, v) }
	switch m.Kind {
	case api.KindHello:
		m.Hello = new(api.Hello)
		return into(m.Hello)
	case api.KindSnap:
		m.Snap = new(api.Snap)
		return into(m.Snap)
	case api.KindFrame:
		m.Frame = new(api.Frame)
		return into(m.Frame)
	case api.KindGap:
		m.Gap = new(api.GapMessage)
		return into(m.Gap)
	case api.KindEvent:
		m.Event = new(api.EventMessage)
		return into(m.Event)
	case api.KindBye:
		m.Bye = new(api.Bye)
		return into(m.Bye)
	}
	return nil
}

// maxWords bounds the interned strings, whatever a server sends.
const maxWords = 1 << 16

func (s *Stream) learn(m *Message) {
	switch {
	case m.Hello != nil:
		s.words = m.Hello.Strings[:min(len(m.Hello.Strings), maxWords)]
		s.verdicts, s.reasons = m.Hello.Verdicts, m.Hello.Reasons
		s.decisionFields, s.outcomeFields = m.Hello.DecisionFields, m.Hello.OutcomeFields
	case m.Frame != nil:
		s.intern(m.Frame.SBase, m.Frame.S)
	case m.Gap != nil:
		s.intern(m.Gap.SBase, m.Gap.S)
	}
}

func (s *Stream) intern(base int, words []string) {
	if base < 0 || base > maxWords-len(words) {
		return
	}
	for len(s.words) < base+len(words) {
		s.words = append(s.words, "")
	}
	copy(s.words[base:], words)
}

// Word is the interned string that a cell of a frame points to; "" when it is not known.
func (s *Stream) Word(cell any) string {
	if i, ok := index(cell, len(s.words)); ok {
		return s.words[i]
	}
	return ""
}

// index reads a cell that points into a list of n; false for one that points elsewhere.
func index(cell any, n int) (int, bool) {
	v, ok := cell.(float64)
	if !ok || v < 0 || v >= float64(n) {
		return 0, false
	}
	return int(v), true
}

// Rate asks for fewer deliveries a second, 1 to 10.
func (s *Stream) Rate(n int) error {
	if err := s.conn.WriteJSON(api.ViewerMessage{Rate: n}); err != nil {
		return fmt.Errorf("write to the stream: %w", err)
	}
	return nil
}

// Close ends the stream.
func (s *Stream) Close() error {
	s.stop()
	_ = s.conn.WriteControl(websocket.CloseMessage,
		websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
	return s.conn.Close()
}
