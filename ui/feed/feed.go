// Package feed folds one pool's journal into what a viewer wants: frames of gauges and decisions, sliding counts,
// and the decisions of the recent past joined with their outcomes.
//
// Goal: everything that the dashboard and the admin API show of the past comes from here, computed once, however
// many viewers there are.
//
// Non-goals: clocks, sockets, the journal itself (entries are handed in), deciding anything.
//
// Invariants: time is an argument; memory is bounded by Options whatever the load; frames and events are numbered
// together without holes; a sink is called under the feed's lock in the order of numbers and must not block; a
// gauge that is not known is nil, never 0.
package feed

import (
	"math/rand/v2"
	"sync"
	"time"

	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/ui/api"
)

// Options bounds a Feed. Zero fields take the defaults named.
type Options struct {
	// Keep is how far history and frames reach back; 15 min.
	Keep time.Duration
	// Heartbeat is the longest time without a frame; 1 s.
	Heartbeat time.Duration
	// Decisions is the number of decisions kept; 20000.
	Decisions int
	// FrameBytes bounds the encoded frames kept for replay; 32 MiB.
	FrameBytes int
	// FrameDecisions is the number of decisions (and of outcomes) in one frame above which a sample of
	// SampleDecisions is sent instead; 500 and 200.
	FrameDecisions  int
	SampleDecisions int
	// Seed makes the sampling repeatable.
	Seed uint64
	// FirstSeq is the number of the first message; 1. Numbers of one Feed never repeat.
	FirstSeq uint64
}

func (o Options) withDefaults() Options {
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	if o.Keep <= 0 {
		o.Keep = 15 * time.Minute
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = time.Second
	}
	def(&o.Decisions, 20_000)
	def(&o.FrameBytes, 32<<20)
	def(&o.FrameDecisions, 500)
	def(&o.SampleDecisions, 200)
	if o.FirstSeq == 0 {
		o.FirstSeq = 1
	}
	return o
}

// Sink receives messages as they are made. Offer is called under the feed's lock and must return at once.
type Sink interface {
	Offer(*Message)
}

// Feed is safe for concurrent use.
type Feed struct {
	o Options

	mu      sync.Mutex
	strings interner
	reasons map[reason.Code]int
	items   items
	windows windows
	frames  messageRing
	rows    rowRing
	pending pending
	// past is what new viewers are told of, oldest first.
	past    []api.PastEvent
	seq     uint64 // of the last message made
	frameAt time.Time
	framed  uint64 // journal number of the last decision that a frame has carried
	lastRow []*float64
	engine  string
	rev     string
	lost    uint64
	sinks   map[Sink]struct{}
}

// New returns an empty feed.
func New(o Options) *Feed {
	o = o.withDefaults()
	rng := rand.New(rand.NewPCG(o.Seed, 0x9e3779b97f4a7c15))
	f := &Feed{o: o, seq: o.FirstSeq - 1, sinks: map[Sink]struct{}{}}
	f.strings = newInterner()
	f.reasons = reasonIndexes()
	f.items = newItems(o.Decisions)
	f.windows = newWindows()
	f.frames = messageRing{maxBytes: o.FrameBytes, keep: o.Keep}
	f.rows = rowRing{keep: o.Keep}
	f.pending.decisions = newReservoir[*item](o.FrameDecisions, o.SampleDecisions, rng)
	f.pending.outcomes = newReservoir[*journal.Outcome](o.FrameDecisions, o.SampleDecisions, rng)
	return f
}

// maxPendingEvents bounds events between two steps; older ones give way.
const maxPendingEvents = 100

// maxPastEvents bounds the events that a new viewer is told of.
const maxPastEvents = 100

type pending struct {
	decisions reservoir[*item]
	outcomes  reservoir[*journal.Outcome]
	n         [3]int
	events    []journal.Entry
	lost      bool
}

// Fold takes journal entries, oldest first. lost says that entries before them had already left the journal.
func (f *Feed) Fold(entries []journal.Entry, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if lost {
		f.lost++
		f.pending.lost = true
	}
	for i := range entries {
		f.fold(&entries[i])
	}
}

func (f *Feed) fold(e *journal.Entry) {
	switch {
	case e.Decision != nil:
		it := f.items.addDecision(e)
		f.windows.decision(e.At, e.Decision)
		f.pending.decisions.add(it)
		if v := verdictIndex(e.Decision.Verdict); v >= 0 {
			f.pending.n[v]++
		}
	case e.Outcome != nil:
		f.windows.outcome(e.At, f.items.addOutcome(e), e.Outcome)
		f.pending.outcomes.add(e.Outcome)
	case e.Event != nil:
		if len(f.pending.events) == maxPendingEvents {
			f.pending.events = append(f.pending.events[:0], f.pending.events[1:]...)
			f.pending.lost = true
		}
		f.pending.events = append(f.pending.events, *e)
	}
}

// Lost counts how often the journal had dropped entries before they were folded.
func (f *Feed) Lost() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// Verdicts are the words that the verdict cells point into.
func Verdicts() []string {
	return []string{reason.VerdictAdmit, reason.VerdictDefer, reason.VerdictReject}
}

func verdictIndex(v string) int {
	switch v {
	case reason.VerdictAdmit:
		return 0
	case reason.VerdictDefer:
		return 1
	case reason.VerdictReject:
		return 2
	}
	return -1
}

// Windows returns the counts over the last minute and the last five, shortest first.
func (f *Feed) Windows(now time.Time) []api.Window {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []api.Window{f.windows.over(now, time.Minute), f.windows.over(now, 5*time.Minute)}
}

// Bounds are the numbers of the oldest message that can be replayed and of the last one made. from is last+1 when
// nothing can be.
func (f *Feed) Bounds() (from, last uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bounds()
}

func (f *Feed) bounds() (from, last uint64) {
	if m := f.frames.oldest(); m != nil {
		return m.Seq, f.seq
	}
	return f.seq + 1, f.seq
}
