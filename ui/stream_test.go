package ui

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/supervisor"
	"admitd/ui/api"
)

// socket is a viewer of a rig's stream.
type socket struct {
	t testing.TB
	*websocket.Conn
}

func (r *rig) dial(query string, protocols ...string) *socket {
	r.t.Helper()
	d := websocket.Dialer{Subprotocols: append([]string{api.StreamProtocol}, protocols...), HandshakeTimeout: deadline}
	conn, resp, err := d.DialContext(r.t.Context(), "ws"+strings.TrimPrefix(r.srv.URL, "http")+"/api/v1/stream"+query, nil)
	if err != nil {
		r.t.Fatalf("%v (%+v)", err, resp)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return &socket{r.t, conn}
}

// next reads one message and its envelope.
func (s *socket) next() (api.Envelope, []byte) {
	s.t.Helper()
	e, data, err := s.try()
	if err != nil {
		s.t.Fatal(err)
	}
	return e, data
}

func (s *socket) try() (api.Envelope, []byte, error) {
	var e api.Envelope
	if err := s.SetReadDeadline(time.Now().Add(deadline)); err != nil {
		return e, nil, err
	}
	_, data, err := s.ReadMessage()
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	return e, data, err
}

// want reads a message that must be of one kind.
func want[T any](s *socket, kind string) T {
	s.t.Helper()
	e, data := s.next()
	if e.Kind != kind {
		s.t.Fatalf("a %s came instead of a %s: %.200s", e.Kind, kind, data)
	}
	return strictly[T](s.t, data)
}

// open connects afresh and reads hello and snap.
func (r *rig) open(query string) (*socket, api.Hello, api.Snap) {
	r.t.Helper()
	s := r.dial(query)
	return s, want[api.Hello](s, api.KindHello), want[api.Snap](s, api.KindSnap)
}

// closeCode reads until the connection ends and returns how.
func (s *socket) closeCode() (int, string) {
	s.t.Helper()
	for {
		if _, _, err := s.try(); err != nil {
			var ce *websocket.CloseError
			if !errors.As(err, &ce) {
				s.t.Fatalf("ended without a close frame: %v", err)
			}
			return ce.Code, ce.Text
		}
	}
}

func TestR1_EveryMessageHasTheEnvelopeAndHelloHasEverything(t *testing.T) {
	r := newRig(t)
	r.admit("a")
	r.step()
	s, hello, snap := r.open("")
	if hello.V != 1 || hello.BootID != "boot-1" || hello.Version != "v1" || hello.Pool != "m1" || len(hello.Pools) != 2 || hello.Policy.Rev == "" ||
		len(hello.Gauges) != len(api.Gauges) || len(hello.Reasons) != len(reason.All()) || len(hello.Verdicts) != 3 || hello.FrameMS != 100 ||
		!hello.Simulated || *hello.SLOTTFTMS != 2000 || hello.SLOTPOTMS != nil || hello.RingFrom != hello.RingTo || hello.RingTo != hello.Seq {
		t.Errorf("%+v", hello)
	}
	if len(hello.Strings) < 3 {
		t.Errorf("strings %q", hello.Strings)
	}
	if snap.Status.Pools[0].Model != "m1" || len(snap.History.T) != 1 || len(snap.Decisions) != 1 || snap.Seq != hello.Seq {
		t.Errorf("snap of %d rows, %d decisions", len(snap.History.T), len(snap.Decisions))
	}
	r.journal.Append(journal.Entry{At: t0, Kind: journal.KindEvent, Event: &journal.Event{Name: "policy_reload", Level: "info", Text: "x"}})
	r.admit("b")
	r.step()
	ev := want[api.EventMessage](s, api.KindEvent)
	fr := want[api.Frame](s, api.KindFrame)
	if ev.Seq != snap.Seq+1 || fr.Seq != snap.Seq+2 || ev.Name != "policy_reload" || fr.D[0][0] != "b" || fr.N[0] != 1 {
		t.Errorf("event %+v, frame %+v", ev, fr)
	}
}

func TestR2_AFrameIsSmall(t *testing.T) {
	r := newRig(t)
	s, _, _ := r.open("")
	r.step()
	want[api.Frame](s, api.KindFrame)
	for i := range 200 {
		r.admit(fmt.Sprintf("01hq%06d", i))
	}
	r.step()
	_, data := s.next()
	t.Logf("a frame of 200 decisions is %d bytes", len(data))
	if len(data) > 200*110+400 {
		t.Errorf("a frame of 200 decisions is %d bytes", len(data))
	}
}

func TestR4_ReconnectBackfillsFromTheRing(t *testing.T) {
	r := newRig(t)
	s, hello, _ := r.open("")
	r.admit("a")
	r.step()
	seen := want[api.Frame](s, api.KindFrame)
	_ = s.Close()
	for i := range 3 {
		r.admit(fmt.Sprint("missed ", i))
		r.step()
	}
	s = r.dial(fmt.Sprintf("?resume=%d", seen.Seq))
	if again := want[api.Hello](s, api.KindHello); again.BootID != hello.BootID || again.RingTo != seen.Seq+3 {
		t.Errorf("%+v", again)
	}
	for i := range 3 {
		if fr := want[api.Frame](s, api.KindFrame); fr.Seq != seen.Seq+uint64(i)+1 || fr.D[0][0] != fmt.Sprint("missed ", i) {
			t.Errorf("frame %d: %+v", i, fr)
		}
	}
	r.admit("live again")
	r.step()
	if fr := want[api.Frame](s, api.KindFrame); fr.Seq != seen.Seq+4 || fr.D[0][0] != "live again" {
		t.Errorf("%+v", fr)
	}
}

func TestR4_ReconnectOutOfReachGetsSnapAndGap(t *testing.T) {
	r := newRig(t)
	r.step()
	first, _ := r.s.pools[0].feed.Bounds()
	r.admit("lost")
	r.step()
	// The ring keeps 15 minutes.
	r.clock.advance(time.Hour)
	r.step()
	r.step()
	s := r.dial(fmt.Sprintf("?resume=%d", first))
	hello := want[api.Hello](s, api.KindHello)
	snap := want[api.Snap](s, api.KindSnap)
	gap := want[api.GapMessage](s, api.KindGap)
	if hello.RingFrom <= first+1 || gap.From != first+1 || gap.To != snap.Seq {
		t.Errorf("ring %d to %d, gap %d to %d after %d", hello.RingFrom, hello.RingTo, gap.From, gap.To, first)
	}
}

func TestR5_ARestartIsSeenAndAnOldNumberIsNotResumed(t *testing.T) {
	before := newRig(t)
	before.step()
	_, old, _ := before.open("")
	// The new one has started a minute later.
	after := newRig(t, func(o *Options) { o.BootID = "boot-2"; o.Clock = func() time.Time { return t0.Add(time.Minute) } })
	after.s.pools[0].step(t0.Add(time.Minute))
	s := after.dial(fmt.Sprintf("?resume=%d", old.Seq))
	hello := want[api.Hello](s, api.KindHello)
	if hello.BootID == old.BootID || hello.RingFrom <= old.Seq {
		t.Errorf("boot %s, ring from %d; before: boot %s, last %d", hello.BootID, hello.RingFrom, old.BootID, old.Seq)
	}
	want[api.Snap](s, api.KindSnap)
}

func TestR6_TooManyViewersAreToldSo(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hub.MaxViewers = 2 })
	a, _, _ := r.open("")
	r.open("?pool=m2")
	d := websocket.Dialer{}
	_, resp, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(r.srv.URL, "http")+"/api/v1/stream", nil)
	if err == nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Fatalf("%v %+v", err, resp)
	}
	if st := fetch[api.Status](r, "/api/v1/status"); st.WebsocketClients != 2 {
		t.Errorf("%d clients", st.WebsocketClients)
	}
	_ = a.Close()
	eventually(t, "a place is free", func() bool { return r.s.hub.count() == 1 })
	eventually(t, "a place can be had", func() bool {
		c, _, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(r.srv.URL, "http")+"/api/v1/stream", nil)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func TestR6_StreamRefusesOtherOriginsAndHosts(t *testing.T) {
	r := newRig(t)
	for _, h := range []http.Header{{"Origin": {"http://evil.example"}}, {"Host": {"evil.example"}}} {
		_, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(r.srv.URL, "http")+"/api/v1/stream", h)
		if err == nil || resp == nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("%v: %v %+v", h, err, resp)
		}
	}
	own := http.Header{"Origin": {r.srv.URL}}
	c, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(r.srv.URL, "http")+"/api/v1/stream", own)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

func TestR17_StreamTakesTheTokenAsSubprotocol(t *testing.T) {
	const odd = "a token, with spaces!"
	for _, token := range []string{testToken, odd} {
		r := newRig(t, func(o *Options) { o.Addr = "0.0.0.0:8081"; o.Token = token })
		_, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(r.srv.URL, "http")+"/api/v1/stream?token="+testToken, nil)
		if err == nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("token in the URL: %v %+v", err, resp)
		}
		s := r.dial("", api.TokenProtocol+base64.RawURLEncoding.EncodeToString([]byte(token)))
		if s.Subprotocol() != api.StreamProtocol {
			t.Errorf("subprotocol %q: the token must not come back", s.Subprotocol())
		}
		want[api.Hello](s, api.KindHello)
	}
	r := newRig(t, func(o *Options) { o.Addr = "0.0.0.0:8081" })
	want[api.Hello](r.dial("", api.TokenProtocol+testToken), api.KindHello)
}

func TestR6_ViewersMaySayLittle(t *testing.T) {
	for _, c := range []struct {
		name string
		kind int
		text string
		code int
	}{
		{"not JSON", websocket.TextMessage, "hello", websocket.ClosePolicyViolation},
		{"unknown field", websocket.TextMessage, `{"rate":1,"x":2}`, websocket.ClosePolicyViolation},
		{"rate out of range", websocket.TextMessage, `{"rate":1000}`, websocket.ClosePolicyViolation},
		{"binary", websocket.BinaryMessage, `{"rate":1}`, websocket.ClosePolicyViolation},
		{"too big", websocket.TextMessage, `{"rate":1` + strings.Repeat(" ", 5000) + `}`, websocket.CloseMessageTooBig},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			s, _, _ := r.open("")
			if err := s.WriteMessage(c.kind, []byte(c.text)); err != nil {
				t.Fatal(err)
			}
			if code, text := s.closeCode(); code != c.code {
				t.Errorf("closed with %d %s", code, text)
			}
			eventually(t, "counted", func() bool { return r.s.hub.ended[endProtocol].Load() == 1 })
		})
	}
}

func TestR2_AHiddenTabGetsFewerDeliveriesButEveryFrame(t *testing.T) {
	r := newRig(t)
	s, _, snap := r.open("")
	if err := s.WriteMessage(websocket.TextMessage, []byte(`{"rate":1}`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rate is known", func() bool {
		r.s.hub.mu.Lock()
		defer r.s.hub.mu.Unlock()
		for v := range r.s.hub.viewers {
			return v.interval() == time.Second
		}
		return false
	})
	for i := range 8 {
		r.admit(strconv.Itoa(i))
		r.step()
	}
	for i := range 8 {
		if fr := want[api.Frame](s, api.KindFrame); fr.Seq != snap.Seq+uint64(i)+1 {
			t.Errorf("frame %d after %d", fr.Seq, snap.Seq)
		}
	}
}

func TestRunMakesFramesAndSaysByeAtTheEnd(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Clock = time.Now })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.s.Run(ctx) }()
	s := r.dial("")
	want[api.Hello](s, api.KindHello)
	want[api.Snap](s, api.KindSnap)
	want[api.Frame](s, api.KindFrame)
	r.engine.set(func(s *supervisor.Status) { s.State = supervisor.Draining })
	for fr := (api.Frame{}); fr.Engine != "draining"; {
		fr = want[api.Frame](s, api.KindFrame)
	}
	cancel()
	var bye api.Bye
	for bye.Why == "" {
		e, data := s.next()
		if e.Kind == api.KindBye {
			bye = strictly[api.Bye](t, data)
		}
	}
	if code, text := s.closeCode(); code != websocket.CloseGoingAway || text != bye.Why {
		t.Errorf("closed with %d %s after bye %q", code, text, bye.Why)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	_, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(r.srv.URL, "http")+"/api/v1/stream", nil)
	if err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a viewer after the end: %v %+v", err, resp)
	}
}

func TestR7_PollingGivesWhatTheStreamGives(t *testing.T) {
	r := newRig(t)
	r.step()
	s, _, snap := r.open("")
	first := fetch[api.Poll](r, "/api/v1/frame")
	if len(first.Messages) != 2 || first.Next != snap.Seq || first.More {
		t.Fatalf("%d messages, next %d", len(first.Messages), first.Next)
	}
	strictly[api.Hello](t, first.Messages[0])
	strictly[api.Snap](t, first.Messages[1])
	r.journal.Append(journal.Entry{At: t0, Kind: journal.KindEvent, Event: &journal.Event{Name: "start", Level: "info", Text: "x"}})
	for i := range 400 {
		r.admit(strconv.Itoa(i))
		r.step()
		if i == 0 {
			s.next() // the event
		}
		s.next()
	}
	next, got := first.Next, 0
	for more := true; more; {
		p := fetch[api.Poll](r, fmt.Sprintf("/api/v1/frame?since=%d", next))
		for _, m := range p.Messages {
			var e api.Envelope
			if err := json.Unmarshal(m, &e); err != nil || e.Seq != first.Next+uint64(got)+1 {
				t.Fatalf("message %d is number %d (%v)", got, e.Seq, err)
			}
			got++
		}
		next, more = p.Next, p.More
	}
	if got != 401 {
		t.Errorf("%d messages by polling, 401 by the stream", got)
	}
	if p := fetch[api.Poll](r, fmt.Sprintf("/api/v1/frame?since=%d", next)); len(p.Messages) != 0 || p.Messages == nil || p.Next != next {
		t.Errorf("%+v", p)
	}
	if p := fetch[api.Poll](r, "/api/v1/frame?since=5"); len(p.Messages) != 3 {
		t.Errorf("%d messages for a number of another life", len(p.Messages))
	} else {
		strictly[api.GapMessage](t, p.Messages[2])
	}
}

// smallBuffers makes sockets that are full soon.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		_ = c.(*net.TCPConn).SetWriteBuffer(4096)
	}
	return c, err
}
