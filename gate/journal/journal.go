package journal

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// DefaultRing is the number of entries kept in memory when Options.Ring is 0.
const DefaultRing = 20_000

// Options configures a Journal. The zero value keeps DefaultRing entries in memory and writes nothing.
type Options struct {
	// Ring is how many entries stay in memory; 0 means DefaultRing. Negative is an error.
	Ring int
	// Dir is the folder for JSON Lines files, made with mode 0700 if it is not there; "" means memory only.
	Dir string
	// MaxBytes is the size at which a file is closed and the next one begun; 0 means 64 MiB. Negative is an error.
	MaxBytes int64
	// MaxAge is how long a file is written to before the next one is begun; 0 means without limit. Negative is an error.
	MaxAge time.Duration
	// KeepBytes is how much stays in Dir in all: when a new file is begun, the oldest ones beyond it are removed. 0 means
	// 16 times MaxBytes. Negative is an error.
	KeepBytes int64
	// KeepAge is how long a file stays after its last line; 0 means without limit. Negative is an error.
	KeepAge time.Duration
	// Restore takes up the newest entries of Dir's files into memory, and numbers on after them.
	Restore bool
	// CloseOpen writes an outcome with Ending EndLost for each restored admission that has none: the admitd that served
	// it has died. Not for a folder whose last writer still serves.
	CloseOpen bool
	// Queue is how many entries may wait for the disk before further ones are dropped from it; 0 means 8192.
	Queue int
	// Logger receives disk trouble; nil discards it.
	Logger *slog.Logger
}

// Stats says how the disk side is doing. Memory never drops.
type Stats struct {
	// Dropped counts entries that are not on disk: the queue was full, the disk failed, or they could not be encoded.
	Dropped uint64 `json:"dropped"`
	// Written counts entries handed to the operating system.
	Written uint64 `json:"written"`
	// Queued is the number of entries that wait for the disk now.
	Queued int `json:"queued"`
}

// Journal is safe for concurrent use. Entries are immutable once appended: neither the writer nor a reader may
// change what their pointers lead to.
type Journal struct {
	mu   sync.Mutex
	ring []Entry
	// first and last are the numbers of the first and the newest entry this journal has seen; first is 0 while there is none.
	first uint64
	last  uint64
	index map[string]place
	// changed is closed at the next entry; nil while nobody waits for it.
	changed chan struct{}
	closed  bool
	disk    *disk
	// divert takes what is appended in the disk's place, nil for the disk itself.
	divert func(Entry)
}

// place holds the sequence numbers of an arrival's two entries; 0 where there is none.
type place struct{ decision, outcome uint64 }

// New opens a journal. With a Dir it starts a new file there and one goroutine that Close ends.
func New(o Options) (*Journal, error) {
	if o.Ring < 0 || o.MaxBytes < 0 || o.KeepBytes < 0 || o.Queue < 0 || o.MaxAge < 0 || o.KeepAge < 0 {
		return nil, fmt.Errorf("journal: ring %d, max bytes %d, keep bytes %d, queue %d, max age %s and keep age %s must not be negative",
			o.Ring, o.MaxBytes, o.KeepBytes, o.Queue, o.MaxAge, o.KeepAge)
	}
	if o.Ring == 0 {
		o.Ring = DefaultRing
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	j := &Journal{ring: make([]Entry, o.Ring), index: map[string]place{}}
	if o.Dir == "" {
		return j, nil
	}
	var open []Entry
	if o.Restore {
		open = j.restore(o)
	}
	d, err := openDisk(o)
	if err != nil {
		return nil, err
	}
	j.disk = d
	if o.CloseOpen {
		j.closeOpen(open)
	}
	return j, nil
}

// Append numbers the entry, keeps it and offers it to the disk writer; it never waits. It returns the number.
// An entry without a time gets the present one only if its maker forgot: makers should set At.
func (j *Journal) Append(e Entry) uint64 {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	e = j.keep(e)
	switch {
	case j.divert != nil:
		if e.Decision != nil {
			e.Decision.Complete()
		}
		j.divert(e)
	case j.disk != nil && !j.closed:
		j.disk.offer(e)
	}
	j.tell()
	return e.Seq
}

// tell wakes those who wait for the next entry. The lock is held.
func (j *Journal) tell() {
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

// keep numbers an entry and puts it into the ring. The lock is held.
func (j *Journal) keep(e Entry) Entry {
	j.last++
	e.Seq = j.last
	if j.first == 0 {
		j.first = e.Seq
	}
	slot := &j.ring[(e.Seq-1)%uint64(len(j.ring))]
	j.forget(*slot)
	*slot = e
	j.remember(e)
	return e
}

func (e Entry) arrival() string {
	switch {
	case e.Decision != nil:
		return e.Decision.ID
	case e.Outcome != nil:
		return e.Outcome.ID
	}
	return ""
}

func (j *Journal) remember(e Entry) {
	id := e.arrival()
	if id == "" {
		return
	}
	p := j.index[id]
	if e.Decision != nil {
		p.decision = e.Seq
	} else {
		p.outcome = e.Seq
	}
	j.index[id] = p
}

func (j *Journal) forget(e Entry) {
	id := e.arrival()
	if id == "" {
		return
	}
	p := j.index[id]
	if p.decision == e.Seq {
		p.decision = 0
	}
	if p.outcome == e.Seq {
		p.outcome = 0
	}
	if p == (place{}) {
		delete(j.index, id)
		return
	}
	j.index[id] = p
}

// Read returns entries with Seq > after, oldest first, at most limit (0 or less means all), with the numbers of
// the oldest entry still in memory and of the last one; both are 0 while the journal is empty. A reader whose
// after+1 is below oldest has missed what lies between. Decisions are as they were appended: see Decision.Complete.
func (j *Journal) Read(after uint64, limit int) (entries []Entry, oldest, last uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.first == 0 {
		return nil, 0, 0
	}
	oldest = j.first
	if n := uint64(len(j.ring)); j.last-j.first >= n {
		oldest = j.last - n + 1
	}
	from := max(after+1, oldest)
	if from > j.last || after >= j.last {
		return nil, oldest, j.last
	}
	n := j.last - from + 1
	if limit > 0 {
		n = min(n, uint64(limit))
	}
	entries = make([]Entry, 0, n)
	for seq := from; seq < from+n; seq++ {
		entries = append(entries, *j.at(seq))
	}
	return entries, oldest, j.last
}

// ReadWhole is Read with every decision complete, for entries that leave the process.
func (j *Journal) ReadWhole(after uint64, limit int) (entries []Entry, oldest, last uint64) {
	entries, oldest, last = j.Read(after, limit)
	for _, e := range entries {
		if e.Decision != nil {
			e.Decision.Complete()
		}
	}
	return entries, oldest, last
}

func (j *Journal) at(seq uint64) *Entry { return &j.ring[(seq-1)%uint64(len(j.ring))] }

// Changed returns a channel that is closed at the next Append. Take it before Read, or an entry can be missed.
func (j *Journal) Changed() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.changed == nil {
		j.changed = make(chan struct{})
	}
	return j.changed
}

// Find returns copies of the decision and the outcome of one arrival; nil where it is not in memory.
func (j *Journal) Find(id string) (decision, outcome *Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, ok := j.index[id]
	if !ok {
		return nil, nil
	}
	if p.decision != 0 {
		e := *j.at(p.decision)
		decision = &e
	}
	if p.outcome != 0 {
		e := *j.at(p.outcome)
		outcome = &e
	}
	return decision, outcome
}

// OnDisk reports whether there is a disk side.
func (j *Journal) OnDisk() bool { return j.disk != nil }

// Stats tells how the disk side is doing; all zero for a journal in memory only.
func (j *Journal) Stats() Stats {
	if j.disk == nil {
		return Stats{}
	}
	return j.disk.stats()
}

// Close writes what is queued and closes the file. Later appends go to memory only. A second Close does nothing.
// It waits at most five seconds for the disk and says how many entries were left behind.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	if j.disk != nil {
		close(j.disk.queue)
		close(j.disk.closing)
	}
	j.mu.Unlock()
	if j.disk == nil {
		return nil
	}
	return j.disk.wait(closeWait)
}
