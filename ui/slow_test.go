package ui

import (
	"fmt"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"admitd/ui/api"
	"admitd/ui/feed"
)

// offered is a message as the feed makes it.
func offered(seq uint64, size int, words ...string) *feed.Message {
	return &feed.Message{Seq: seq, Kind: api.KindFrame, Data: make([]byte, size), Strings: words, StringsBase: int(seq) * 10}
}

func seqs(batch []*feed.Message) []uint64 {
	var out []uint64
	for _, m := range batch {
		out = append(out, m.Seq)
	}
	return out
}

func TestR3_AFullSlotLosesItsOldestAndTellsOneGap(t *testing.T) {
	lost := 0
	v := newViewer(HubOptions{SlotFrames: 3}.withDefaults(), nil, func(n int) { lost += n })
	for i := range uint64(8) {
		v.Offer(offered(i+1, 10, fmt.Sprint("w", i+1)))
	}
	batch, gap, slow := v.take(t0)
	if diff := cmp.Diff([]uint64{6, 7, 8}, seqs(batch)); diff != "" {
		t.Error(diff)
	}
	if gap.from != 1 || gap.to != 5 || gap.base != 10 || len(gap.strings) != 5 || slow || lost != 5 {
		t.Errorf("gap %+v, slow %v, lost %d", gap, slow, lost)
	}
	if batch, gap, _ := v.take(t0); len(batch) != 0 || gap.from != 0 {
		t.Errorf("the slot was not emptied: %v %+v", seqs(batch), gap)
	}
}

func TestR3_ASlotIsBoundedInBytesToo(t *testing.T) {
	v := newViewer(HubOptions{SlotBytes: 100}.withDefaults(), nil, func(int) {})
	v.Offer(offered(1, 60))
	v.Offer(offered(2, 60))
	v.Offer(offered(3, 30))
	if batch, gap, _ := v.take(t0); len(batch) != 2 || gap.from != 1 || gap.to != 1 {
		t.Errorf("batch %v, gap %+v", seqs(batch), gap)
	}
	v.Offer(offered(4, 101))
	if batch, gap, _ := v.take(t0); len(batch) != 0 || gap.from != 4 || gap.to != 4 {
		t.Errorf("a message larger than the slot: batch %v, gap %+v", seqs(batch), gap)
	}
}

func TestR3_OnlyLosingAllTheTimeCountsAsSlow(t *testing.T) {
	v := newViewer(HubOptions{SlotFrames: 1}.withDefaults(), nil, func(int) {})
	seq := uint64(0)
	take := func(after time.Duration, messages int) bool {
		for range messages {
			seq++
			v.Offer(offered(seq, 1))
		}
		_, _, slow := v.take(t0.Add(after))
		return slow
	}
	for _, c := range []struct {
		after    time.Duration
		messages int
		slow     bool
	}{
		{0, 2, false}, {5 * time.Second, 2, false}, {9 * time.Second, 1, false}, // one without a loss
		{10 * time.Second, 2, false}, {15 * time.Second, 2, false}, {20 * time.Second, 2, true},
	} {
		if slow := take(c.after, c.messages); slow != c.slow {
			t.Errorf("after %v: slow %v", c.after, slow)
		}
	}
}

func TestR3_AViewerThatAlwaysLosesIsClosedWithTryAgainLater(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hub.SlotBytes = 10; o.Hub.LoseFor = time.Nanosecond })
	s, _, snap := r.open("")
	r.step()
	if gap := want[api.GapMessage](s, api.KindGap); gap.From != snap.Seq+1 || gap.To != snap.Seq+1 || len(gap.S) == 0 {
		t.Errorf("%+v", gap)
	}
	r.admit("x")
	r.step()
	if code, text := s.closeCode(); code != websocket.CloseTryAgainLater || text == "" {
		t.Errorf("closed with %d %q", code, text)
	}
	eventually(t, "counted", func() bool { return r.s.hub.ended[endSlow].Load() == 1 && r.s.hub.count() == 0 })
	if st := fetch[api.Status](r, "/api/v1/status"); st.FramesDropped != 2 {
		t.Errorf("%d frames dropped", st.FramesDropped)
	}
}

// narrow serves a rig over sockets that are full soon.
func (r *rig) narrow() {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.srv.Close()
	r.srv = httptest.NewUnstartedServer(r.s.Handler())
	_ = r.srv.Listener.Close()
	r.srv.Listener = smallBuffers{l}
	r.srv.Start()
}

func TestR3_AStalledViewerHoldsUpNobody(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hub.WriteWait = 500 * time.Millisecond })
	r.narrow()
	d := websocket.Dialer{NetDial: func(network, addr string) (net.Conn, error) {
		c, err := net.Dial(network, addr)
		if err == nil {
			_ = c.(*net.TCPConn).SetReadBuffer(4096)
		}
		return c, err
	}}
	// Ten viewers connect and never read.
	for range 10 {
		c, _, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(r.srv.URL, "http")+"/api/v1/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	eventually(t, "all are there", func() bool { return r.s.hub.count() == 10 })
	healthy, _, snap := r.open("")
	last, frames := snap.Seq, 0
	for r.s.hub.ended[endStalled].Load() < 10 {
		for i := range 200 {
			r.admit(fmt.Sprintf("%d-%d", frames, i))
		}
		r.step() // would hang here if a viewer could hold up the feed
		frames++
		// The healthy viewer gets every frame while the others get none.
		fr := want[api.Frame](healthy, api.KindFrame)
		if fr.Seq != last+1 || len(fr.D) != 200 {
			t.Fatalf("frame %d with %d decisions after frame %d", fr.Seq, len(fr.D), last)
		}
		last = fr.Seq
	}
	// A viewer's end is counted before it has left the hub.
	eventually(t, "only the healthy one is left", func() bool { return r.s.hub.count() == 1 })
	t.Logf("%d frames until the stalled ones were gone, %d dropped", frames, r.s.hub.framesDropped())
}

func TestASilentViewerIsGivenUp(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hub.PongWait = 50 * time.Millisecond })
	s := r.dial("")
	// It neither reads nor, therefore, answers pings.
	eventually(t, "it is gone", func() bool { return r.s.hub.ended[endGone].Load() == 1 && r.s.hub.count() == 0 })
	_ = s
}

func TestPingsKeepAQuietViewer(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hub.PingEvery = 5 * time.Millisecond })
	s := r.dial("")
	pinged := make(chan struct{}, 100)
	pong := s.PingHandler()
	s.SetPingHandler(func(data string) error {
		select {
		case pinged <- struct{}{}:
		default:
		}
		return pong(data)
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, _, err := s.try(); err != nil {
				return
			}
		}
	}()
	for range 3 {
		select {
		case <-pinged:
		case <-time.After(deadline):
			t.Fatal("no ping")
		}
	}
	r.s.Close("over")
	<-ended
}

func TestCloseWaitsForNoStalledViewer(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hub.WriteWait = time.Hour })
	r.narrow()
	c, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(r.srv.URL, "http")+"/api/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	eventually(t, "it is there", func() bool { return r.s.hub.count() == 1 })
	for range 200 {
		for i := range 200 {
			r.admit(strconv.Itoa(i))
		}
		r.step()
	}
	// The write in progress has an hour, the farewell two seconds.
	closed := make(chan struct{})
	go func() { r.s.Close("over"); close(closed) }()
	select {
	case <-closed:
	case <-time.After(deadline):
		t.Fatal("closing waits for a viewer that does not read")
	}
	if r.s.hub.ended[endShutdown].Load() != 1 {
		t.Error("not counted as a shutdown")
	}
}

func FuzzViewerMessage(f *testing.F) {
	for _, s := range []string{`{"rate":1}`, `{"rate":10}`, `{}`, `{"rate":0}`, `{"rate":1e1}`, `[]`, `null`, `{"rate":1}{}`, `{"Rate":5}`, "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseViewerMessage(data)
		if err == nil && (m.Rate < 1 || m.Rate > maxRate) {
			t.Errorf("%q gave rate %d", data, m.Rate)
		}
		if err != nil && len(err.Error()) > 120 {
			t.Errorf("%q: the error does not fit a close frame: %v", data, err)
		}
	})
}
