package feed

import (
	"math"
	"sort"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"admitd/ui/api"
)

// Message is one encoded frame or event. Data must not be changed.
type Message struct {
	Seq  uint64
	At   time.Time
	Kind string
	Data []byte
	// Strings are those interned with this frame, the first one's index being StringsBase.
	Strings     []string
	StringsBase int

	prepare  sync.Once
	prepared *websocket.PreparedMessage
	err      error
}

// Prepared is the message as websocket bytes, made once for all viewers.
func (m *Message) Prepared() (*websocket.PreparedMessage, error) {
	m.prepare.Do(func() {
		m.prepared, m.err = websocket.NewPreparedMessage(websocket.TextMessage, m.Data)
	})
	return m.prepared, m.err
}

// stored is what the ring keeps of a message: without the websocket form, which only viewers of now need.
type stored struct {
	seq  uint64
	at   time.Time
	kind string
	data []byte
}

// messageRing keeps messages for replay, bounded by age and bytes. Numbers in it have no holes.
type messageRing struct {
	keep     time.Duration
	maxBytes int
	list     []stored
	head     int
	bytes    int
}

func (r *messageRing) add(m *Message) {
	r.list = append(r.list, stored{m.Seq, m.At, m.Kind, m.Data})
	r.bytes += len(m.Data)
	limit := m.At.Add(-r.keep)
	for r.head < len(r.list)-1 && (r.bytes > r.maxBytes || r.list[r.head].at.Before(limit)) {
		r.bytes -= len(r.list[r.head].data)
		r.list[r.head] = stored{}
		r.head++
	}
	if r.head > 1024 && r.head > len(r.list)/2 {
		r.list = append([]stored(nil), r.list[r.head:]...)
		r.head = 0
	}
}

func (r *messageRing) oldest() *Message {
	if r.head >= len(r.list) {
		return nil
	}
	s := r.list[r.head]
	return &Message{Seq: s.seq, At: s.at, Kind: s.kind, Data: s.data}
}

// after returns the messages with numbers above seq, and false when some of them have left the ring already.
func (r *messageRing) after(seq uint64) ([]*Message, bool) {
	live := r.list[r.head:]
	if len(live) == 0 || seq+1 < live[0].seq {
		return nil, false
	}
	i := int(min(seq+1-live[0].seq, uint64(len(live))))
	out := make([]*Message, 0, len(live)-i)
	for _, s := range live[i:] {
		out = append(out, &Message{Seq: s.seq, At: s.at, Kind: s.kind, Data: s.data})
	}
	return out, true
}

// row is one frame's gauges; NaN marks a cell that is not known.
type row struct {
	at    time.Time
	cells []float64
}

type rowRing struct {
	keep time.Duration
	list []row
	head int
}

func (r *rowRing) add(at time.Time, g []*float64) {
	cells := make([]float64, len(g))
	for i, p := range g {
		cells[i] = orNaN(p)
	}
	r.list = append(r.list, row{at, cells})
	limit := at.Add(-r.keep)
	for r.head < len(r.list)-1 && r.list[r.head].at.Before(limit) {
		r.list[r.head] = row{}
		r.head++
	}
	if r.head > 1024 && r.head > len(r.list)/2 {
		r.list = append([]row(nil), r.list[r.head:]...)
		r.head = 0
	}
}

// MaxHistoryRows bounds one answer of History.
const MaxHistoryRows = 10_000

// History returns the gauge rows of from..to, the last row of each step; a step of 0 or less, or one that would
// give more than MaxHistoryRows rows, is widened. A step without any row has none in the answer: it is a gap.
func (f *Feed) History(from, to time.Time, step time.Duration) api.History {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.history(from, to, step)
}

func (f *Feed) history(from, to time.Time, step time.Duration) api.History {
	h := api.History{Gauges: api.Gauges, T: []int64{}, Rows: [][]*float64{}}
	live := f.rows.list[f.rows.head:]
	lo := sort.Search(len(live), func(i int) bool { return !live[i].at.Before(from) })
	hi := sort.Search(len(live), func(i int) bool { return live[i].at.After(to) })
	if lo >= hi {
		return h
	}
	if least := live[hi-1].at.Sub(live[lo].at) / MaxHistoryRows; step < least+time.Millisecond {
		step = least + time.Millisecond
	}
	for i := lo; i < hi; i++ {
		if i+1 < hi && live[i+1].at.UnixNano()/int64(step) == live[i].at.UnixNano()/int64(step) {
			continue
		}
		h.T = append(h.T, live[i].at.UnixMilli())
		h.Rows = append(h.Rows, pointers(live[i].cells))
	}
	return h
}

func pointers(cells []float64) []*float64 {
	out := make([]*float64, len(cells))
	for i := range cells {
		if !math.IsNaN(cells[i]) {
			out[i] = &cells[i]
		}
	}
	return out
}
