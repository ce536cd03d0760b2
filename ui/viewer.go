package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"admitd/ui/api"
	"admitd/ui/feed"
)

// Close codes of RFC 6455 that we send.
const (
	closeGoingAway = websocket.CloseGoingAway
	closePolicy    = websocket.ClosePolicyViolation
	closeTryAgain  = websocket.CloseTryAgainLater
)

// byeWait bounds the last words to a viewer that may not be reading any more.
const byeWait = 2 * time.Second

// viewer is one websocket. The feed offers it messages; they wait in its slot until its writer takes them all at
// once. A full slot loses its oldest messages, which the next delivery tells with one gap.
type viewer struct {
	o    HubOptions
	conn *websocket.Conn
	drop func(n int)
	// last is the latest number known to the viewer's writer.
	last uint64

	mu        sync.Mutex // after the feed's lock where both are held
	queue     []*feed.Message
	bytes     int
	gap       lostSpan
	losing    time.Time // since when every delivery had a gap; zero when the last had none
	rate      int
	farewell  *farewell
	wake      chan struct{} // capacity 1
	rateSet   chan struct{} // capacity 1
	endOffer  chan struct{} // closed by end
	readEnded chan struct{} // closed when the reader has ended
}

// lostSpan is what has been dropped since the last delivery: one unbroken range.
type lostSpan struct {
	from, to uint64
	strings  []string
	base     int
}

// farewell is how a connection is to end.
type farewell struct {
	code  int
	text  string
	cause string
	bye   bool
}

// maxRate is the number of deliveries a second that a viewer gets unless it asks for fewer.
const maxRate = int(time.Second / FrameInterval)

func newViewer(o HubOptions, conn *websocket.Conn, drop func(int)) *viewer {
	return &viewer{o: o, conn: conn, drop: drop, rate: maxRate, wake: make(chan struct{}, 1),
		rateSet: make(chan struct{}, 1), endOffer: make(chan struct{}), readEnded: make(chan struct{})}
}

// Offer implements feed.Sink. It never waits for the viewer.
func (v *viewer) Offer(m *feed.Message) {
	v.mu.Lock()
	v.queue = append(v.queue, m)
	v.bytes += len(m.Data)
	lost := 0
	for len(v.queue) > v.o.SlotFrames || v.bytes > v.o.SlotBytes {
		v.lose(v.queue[0])
		v.queue[0] = nil
		v.queue = v.queue[1:]
		lost++
	}
	v.mu.Unlock()
	if lost > 0 {
		v.drop(lost)
	}
	nudge(v.wake)
}

func (v *viewer) lose(m *feed.Message) {
	v.bytes -= len(m.Data)
	if v.gap.from == 0 {
		v.gap.from = m.Seq
	}
	v.gap.to = m.Seq
	if len(m.Strings) > 0 {
		if len(v.gap.strings) == 0 {
			v.gap.base = m.StringsBase
		}
		v.gap.strings = append(v.gap.strings, m.Strings...)
	}
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// end asks the writer to close the connection; the first call counts.
func (v *viewer) end(f farewell) {
	v.mu.Lock()
	first := v.farewell == nil
	if first {
		v.farewell = &f
	}
	v.mu.Unlock()
	if first {
		// A write that hangs now would keep the farewell waiting.
		_ = v.conn.NetConn().SetWriteDeadline(time.Now().Add(byeWait))
		close(v.endOffer)
	}
}

// take empties the slot. slow is true when the viewer has been losing messages for too long.
func (v *viewer) take(now time.Time) (batch []*feed.Message, gap lostSpan, slow bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	batch, gap = v.queue, v.gap
	v.queue, v.bytes, v.gap = nil, 0, lostSpan{}
	switch {
	case gap.from == 0:
		v.losing = time.Time{}
	case v.losing.IsZero():
		v.losing = now
	default:
		slow = now.Sub(v.losing) >= v.o.LoseFor
	}
	return batch, gap, slow
}

func (v *viewer) interval() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.rate >= maxRate {
		return 0
	}
	return time.Second / time.Duration(v.rate)
}

// write sends first and then whatever is offered, until the connection ends. It returns why it ended.
func (v *viewer) write(first [][]byte) string {
	for _, b := range first {
		if err := v.send(func() error { return v.conn.WriteMessage(websocket.TextMessage, b) }); err != nil {
			return v.broken(err)
		}
	}
	ping := time.NewTicker(v.o.PingEvery)
	defer ping.Stop()
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	next := time.Now()
	for {
		select {
		case <-v.readEnded:
			// The reader may have ended because it asked for a farewell.
			select {
			case <-v.endOffer:
				return v.sayFarewell()
			default:
				return endGone
			}
		case <-v.endOffer:
			return v.sayFarewell()
		case <-ping.C:
			if err := v.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(v.o.WriteWait)); err != nil {
				return v.broken(err)
			}
			continue
		case <-v.rateSet:
			next = time.Now()
		case <-due.C:
		case <-v.wake:
		}
		if wait := time.Until(next); wait > 0 {
			due.Reset(wait)
			continue
		}
		next = time.Now().Add(v.interval())
		if err := v.deliver(); err != nil {
			return v.broken(err)
		}
	}
}

func (v *viewer) deliver() error {
	batch, gap, slow := v.take(time.Now())
	if slow {
		v.end(farewell{code: closeTryAgain, text: "this viewer cannot keep up; reconnect later", cause: endSlow})
		return nil
	}
	if gap.from != 0 {
		m := api.GapMessage{From: gap.from, To: gap.to, S: gap.strings, SBase: gap.base}
		m.Envelope = api.Envelope{V: api.StreamVersion, Seq: gap.to, T: time.Now().UnixMilli(), Kind: api.KindGap}
		if err := v.send(func() error { return v.conn.WriteJSON(m) }); err != nil {
			return err
		}
	}
	for _, m := range batch {
		pm, err := m.Prepared()
		if err != nil {
			return err
		}
		if err := v.send(func() error { return v.conn.WritePreparedMessage(pm) }); err != nil {
			return err
		}
		v.last = m.Seq
	}
	return nil
}

func (v *viewer) send(write func() error) error {
	wait := v.o.WriteWait
	select {
	case <-v.endOffer:
		wait = byeWait
	default:
	}
	if err := v.conn.SetWriteDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	return write()
}

// broken names the end of a connection whose write failed. After that nothing can be said on it any more.
func (v *viewer) broken(err error) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.farewell != nil {
		return v.farewell.cause
	}
	var timeout net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return endStalled
	}
	return endGone
}

// sayFarewell is the orderly end.
func (v *viewer) sayFarewell() string {
	v.mu.Lock()
	f := *v.farewell
	v.mu.Unlock()
	if f.bye {
		m := api.Bye{Why: f.text}
		m.Envelope = api.Envelope{V: api.StreamVersion, Seq: v.last, T: time.Now().UnixMilli(), Kind: api.KindBye}
		if err := v.send(func() error { return v.conn.WriteJSON(m) }); err != nil {
			return f.cause
		}
	}
	_ = v.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(f.code, f.text), time.Now().Add(byeWait))
	return f.cause
}

// read takes the viewer's messages until the connection ends.
func (v *viewer) read() {
	defer close(v.readEnded)
	v.conn.SetReadLimit(v.o.ReadLimit)
	alive := func(string) error { return v.conn.SetReadDeadline(time.Now().Add(v.o.PongWait)) }
	v.conn.SetPongHandler(alive)
	if alive("") != nil {
		return
	}
	for {
		kind, data, err := v.conn.ReadMessage()
		if errors.Is(err, websocket.ErrReadLimit) {
			v.end(farewell{code: websocket.CloseMessageTooBig, text: "message too big", cause: endProtocol})
			return
		}
		if err != nil {
			return
		}
		if kind != websocket.TextMessage {
			v.end(farewell{code: closePolicy, text: "only text messages are understood", cause: endProtocol})
			return
		}
		m, err := parseViewerMessage(data)
		if err != nil {
			v.end(farewell{code: closePolicy, text: cutText(err.Error()), cause: endProtocol})
			return
		}
		v.mu.Lock()
		v.rate = m.Rate
		v.mu.Unlock()
		nudge(v.rateSet)
	}
}

// parseViewerMessage reads what a viewer may send, strictly.
func parseViewerMessage(data []byte) (api.ViewerMessage, error) {
	var m api.ViewerMessage
	if !json.Valid(data) {
		return m, errors.New("the message is not JSON")
	}
	if prob := decodeStrict(data, &m); prob != nil {
		return m, errors.New(`the message is not of the form {"rate":10}`)
	}
	if m.Rate < 1 || m.Rate > maxRate {
		return m, fmt.Errorf("rate %d is not from 1 to %d", m.Rate, maxRate)
	}
	return m, nil
}
