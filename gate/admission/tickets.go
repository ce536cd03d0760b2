package admission

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sort"
	"strings"
	"time"
)

const (
	ticketPrefix = "t1."
	ticketBody   = 24
	ticketMAC    = 16
	leastWindow  = 2 * time.Second
	// reserveFor is how long after its slot a promise keeps room free. An obedient caller is a rounding of at most a
	// second late; one that never comes back must not keep a slot idle for the whole of a long window.
	reserveFor = 2 * time.Second
	// reserveShare is the part of the slots that promises may keep free.
	reserveShare = 0.3
	sweepEvery   = time.Second
)

// promise is one slot in time given to a refused caller.
type promise struct {
	seq  uint64
	slot time.Time
	// end is when the promise lapses.
	end  time.Time
	seqs int
	// tenant and body recognise the attempt of a caller whose SDK does not send the ticket back.
	tenant string
	body   uint64
}

func (p *promise) due(now time.Time) bool { return !now.Before(p.slot) && !now.After(p.end) }

func (p *promise) reserves(now time.Time) bool {
	return !now.Before(p.slot) && !now.After(p.slot.Add(reserveFor))
}

// ticketBook signs tickets and remembers the promises behind them. The table is the truth: a ticket whose promise
// is not in it any more (used, lapsed, of another life) is worth nothing, however well signed.
type ticketBook struct {
	key      []byte
	nonce    uint64
	most     int
	seq      uint64
	promises []*promise // by slot, then seq
	bySeq    map[uint64]*promise
	// beyond is the end of the schedule of those who got a time while the table was full.
	beyond time.Time
	swept  time.Time

	honoured, early, ignored uint64
}

func newTicketBook(cfg Config) ticketBook {
	b := ticketBook{key: append([]byte(nil), cfg.TicketKey...), nonce: cfg.PoolNonce, most: cfg.MaxPromises, bySeq: map[uint64]*promise{}}
	if b.nonce == 0 {
		b.nonce = binary.BigEndian.Uint64(b.mac([]byte("pool nonce")))
	}
	return b
}

func (b *ticketBook) mac(body []byte) []byte {
	h := hmac.New(sha256.New, b.key)
	h.Write([]byte("admitd ticket v1\x00"))
	h.Write(body)
	return h.Sum(nil)[:ticketMAC]
}

// encode gives the ticket of a promise, "" when no key was configured.
func (b *ticketBook) encode(p *promise) string {
	if len(b.key) == 0 {
		return ""
	}
	raw := make([]byte, ticketBody, ticketBody+ticketMAC)
	binary.BigEndian.PutUint64(raw[0:], uint64(p.slot.UnixMilli()))
	binary.BigEndian.PutUint64(raw[8:], b.nonce)
	binary.BigEndian.PutUint64(raw[16:], p.seq)
	raw = append(raw, b.mac(raw)...)
	return ticketPrefix + base64.RawURLEncoding.EncodeToString(raw)
}

// decode returns the sequence number in a ticket of this book's own making.
func (b *ticketBook) decode(s string) (seq uint64, ok bool) {
	text, found := strings.CutPrefix(s, ticketPrefix)
	if !found || len(b.key) == 0 || len(text) != base64.RawURLEncoding.EncodedLen(ticketBody+ticketMAC) {
		return 0, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	// The decoder skips line breaks, so the text's length alone does not tell that of what it holds.
	if err != nil || len(raw) != ticketBody+ticketMAC || !hmac.Equal(raw[ticketBody:], b.mac(raw[:ticketBody])) {
		return 0, false
	}
	if binary.BigEndian.Uint64(raw[8:]) != b.nonce {
		return 0, false
	}
	return binary.BigEndian.Uint64(raw[16:]), true
}

// find returns the promise that an arrival comes back for, nil when there is none. bad is true when a ticket was
// shown and is worth nothing.
func (b *ticketBook) find(now time.Time, a Arrival) (p *promise, bad bool) {
	if a.Facts.Ticket != "" {
		if seq, ok := b.decode(a.Facts.Ticket); ok {
			if p := b.bySeq[seq]; p != nil && p.tenant == a.Tenant && !now.After(p.end) {
				return p, false
			}
		}
		return nil, true
	}
	if a.Facts.Attempt == 0 || a.Facts.BodyHash == 0 {
		return nil, false
	}
	for _, p := range b.promises {
		if p.body == a.Facts.BodyHash && p.tenant == a.Tenant && !now.After(p.end) {
			return p, false
		}
	}
	return nil, false
}

// gap is the first time, not before first, at which seqs sequences find room between the promises still to come, each
// of which fills the given time from its slot on. The promise except is left out.
func (b *ticketBook) gap(now, first time.Time, takes func(seqs int) time.Duration, seqs int, except *promise) time.Time {
	need, slot := takes(seqs), first
	for _, p := range b.ahead(now) {
		if p == except {
			continue
		}
		if !slot.Add(need).After(p.slot) {
			return slot
		}
		slot = later(slot, p.slot.Add(takes(p.seqs)))
	}
	if b.full(now) {
		slot = later(slot, b.beyond)
	}
	return slot
}

// ahead lists the promises whose slot is still to come.
func (b *ticketBook) ahead(now time.Time) []*promise {
	i := sort.Search(len(b.promises), func(i int) bool { return b.promises[i].slot.After(now) })
	return b.promises[i:]
}

// full reports whether there is no room for a promise even without the lapsed ones.
func (b *ticketBook) full(now time.Time) bool {
	lapsed := 0
	if len(b.promises) >= b.most {
		for _, p := range b.promises {
			if now.After(p.end) {
				lapsed++
			}
		}
	}
	return len(b.promises)-lapsed >= b.most
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// promise enters a slot; nil when the table is full.
func (b *ticketBook) promise(now, slot time.Time, a Arrival, seqs int) *promise {
	if b.full(now) {
		b.beyond = slot.Add(leastSpacing)
		return nil
	}
	if len(b.promises) >= b.most {
		b.swept = time.Time{}
	}
	b.sweep(now)
	b.seq++
	p := &promise{seq: b.seq, slot: slot, end: windowEnd(now, slot), seqs: seqs, tenant: a.Tenant, body: a.Facts.BodyHash}
	b.insert(p)
	b.bySeq[p.seq] = p
	return p
}

// windowEnd is when a promise made now for slot lapses.
func windowEnd(now, slot time.Time) time.Time { return slot.Add(max(leastWindow, slot.Sub(now)/2)) }

func (b *ticketBook) insert(p *promise) {
	i := sort.Search(len(b.promises), func(i int) bool { return b.promises[i].slot.After(p.slot) })
	b.promises = append(b.promises, nil)
	copy(b.promises[i+1:], b.promises[i:])
	b.promises[i] = p
}

// move gives a promise another slot. Its window does not shrink: the holder may have been told the first time only.
func (b *ticketBook) move(now time.Time, p *promise, slot time.Time) {
	b.take(p)
	p.slot, p.end = slot, later(p.end, windowEnd(now, slot))
	b.insert(p)
}

// stands reports whether a promise is still in the table: two copies of one request can hold the same, and only the first
// of them has it.
func (b *ticketBook) stands(p *promise) bool { return b.bySeq[p.seq] == p }

// use takes a promise out of the table: it counts once.
func (b *ticketBook) use(p *promise) {
	if !b.stands(p) {
		return
	}
	delete(b.bySeq, p.seq)
	b.take(p)
}

// take removes a promise from the order.
func (b *ticketBook) take(p *promise) {
	for i, q := range b.promises {
		if q == p {
			b.promises = append(b.promises[:i], b.promises[i+1:]...)
			return
		}
	}
}

// sweep forgets lapsed promises, at most once a second.
func (b *ticketBook) sweep(now time.Time) {
	if now.Before(b.swept.Add(sweepEvery)) {
		return
	}
	b.swept = now
	keep := b.promises[:0]
	for _, p := range b.promises {
		if now.After(p.end) {
			delete(b.bySeq, p.seq)
			continue
		}
		keep = append(keep, p)
	}
	clear(b.promises[len(keep):])
	b.promises = keep
}

// reserve is the number of sequences to keep free at the time now for ticket holders whose time has just come, bounded
// to a share of the slots and at least one.
func (b *ticketBook) reserve(now time.Time, slots int) int {
	most := max(1, int(reserveShare*float64(slots)))
	n := 0
	for _, p := range b.promises {
		if p.slot.After(now) || n >= most {
			break
		}
		if p.reserves(now) {
			n += p.seqs
		}
	}
	return min(n, most)
}

// nextLapse is when the first promise that keeps room free now ceases to; zero when none does.
func (b *ticketBook) nextLapse(now time.Time) time.Time {
	var at time.Time
	for _, p := range b.promises {
		if p.slot.After(now) {
			break
		}
		if end := p.slot.Add(reserveFor); p.reserves(now) && (at.IsZero() || end.Before(at)) {
			at = end
		}
	}
	return at
}
