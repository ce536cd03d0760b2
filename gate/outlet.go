package gate

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"admitd/gate/wire"
)

const (
	// maxAhead is how far, in bytes, the relay reads an answer ahead of a caller that reads it slowly.
	maxAhead = 1 << 20
	// outletPiece is how much is written at a time: what a slow caller must take for a write to have got on.
	outletPiece = 4 << 10
	// leastHeld and mostHeld are the sizes of the buffers in which an outlet holds what waits: each is twice the one before.
	leastHeld, mostHeld = 4 << 10, 64 << 10
	// httpBuffer is how many bytes net/http may keep back until the handler returns; a longer body has begun to be sent.
	httpBuffer = 2 << 10
)

var (
	errLeftOver    = errors.New("the caller left before everything was written")
	errStalled     = errors.New("the caller stopped reading")
	errWriterPanic = errors.New("the connection to the caller panicked")
)

// nowWriter is a response writer that can write without waiting. WriteNow sends the status and headers, if they have not
// been, and as much of p as the connection takes at once, and returns how much of p that was; less than all of it is no
// error. It leaves nothing in a buffer but what the connection did not take of the status and headers, which the next
// write sends first.
type nowWriter interface {
	WriteNow(p []byte) (n int, err error)
}

// outlet writes an answer to its caller. While the caller keeps up and can be written to without waiting, put itself
// writes. Whatever would have to wait is written by a goroutine of the outlet's, so that a caller that reads slowly, or not
// at all, does not keep the relay from seeing how the engine ends; that goroutine ends when the caller has caught up.
// put, room, end and stop are for one other goroutine. After start nothing else may write to w until close has returned.
type outlet struct {
	w  http.ResponseWriter
	rc *http.ResponseController
	// now is w where it can write without waiting; nil where it cannot: then the goroutine writes everything.
	now nowWriter
	// shared bounds what all outlets hold together. One chunk each may always be held.
	shared *budget
	// stall is how long a write may make no progress; 0 means for ever. unsent tells how many bytes the kernel has not
	// got rid of, where that is known: it falls while a slow caller reads, long before a write returns.
	stall  time.Duration
	unsent func() (int, bool)
	// eager flushes after everything that is put: for streams.
	eager bool
	// ctx ends when nothing can be written any more; nil is nobody.
	ctx *wire.Context

	started bool
	// The channels are made with the first goroutine. space tells that there may be room again.
	wake  chan struct{}
	space chan struct{}

	mu sync.Mutex
	// running: the goroutine writes; done is closed when it has ended.
	running bool
	done    chan struct{}
	// queue is what waits, in pieces that are never copied again: one buffer that grows would leave several times as much
	// behind. spare is an empty one.
	queue [][]byte
	spare []byte
	held  int64
	total int64
	flush bool
	// ended: nothing more is put. last: what net/http kept back was flushed after that.
	ended   bool
	last    bool
	writing bool
	err     error
	watch   watch
}

func (o *outlet) init(w *writer, shared *budget, stall time.Duration, ctx *wire.Context) {
	o.w, o.shared, o.stall, o.ctx = w, shared, stall, ctx
	o.now, _ = w.ResponseWriter.(nowWriter)
}

// start begins to write, with what there is already; the status has been sent.
func (o *outlet) start(eager bool, data []byte) {
	o.started, o.eager = true, eager
	if o.now != nil && (eager || len(data) > 0) {
		o.put(data)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flush = eager
	if o.now == nil {
		o.spawn()
	}
	o.hold(data)
}

// put writes data, or takes a copy of it to be written. What cannot be written any more is dropped.
func (o *outlet) put(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return
	}
	if o.now != nil && !o.running {
		n, err := o.writeNow(data)
		if err != nil {
			o.fail(err)
			return
		}
		o.total += int64(n)
		if data = data[n:]; len(data) == 0 {
			return
		}
		o.spawn()
	}
	o.hold(data)
}

// hold queues a copy of data for the goroutine. The lock is held.
func (o *outlet) hold(data []byte) {
	if len(data) == 0 || o.err != nil {
		return
	}
	o.enqueue(data)
	o.flush = o.eager || o.now != nil
	o.held += int64(len(data))
	o.shared.owe(int64(len(data)))
	signal(o.wake)
}

// enqueue copies data into the queue. The lock is held.
func (o *outlet) enqueue(data []byte) {
	for len(data) > 0 {
		last := len(o.queue) - 1
		switch {
		case last < 0 && o.spare != nil:
			o.queue, o.spare = append(o.queue, o.spare), nil
			continue
		case last < 0:
			o.queue = append(o.queue, make([]byte, 0, leastHeld))
			continue
		}
		piece := o.queue[last]
		if len(piece) == cap(piece) {
			o.queue = append(o.queue, make([]byte, 0, min(2*cap(piece), mostHeld)))
			continue
		}
		n := min(len(data), cap(piece)-len(piece))
		o.queue[last] = append(piece, data[:n]...)
		data = data[n:]
	}
}

// writeNow writes without waiting. A defect below us must cost this request, not the whole gate.
func (o *outlet) writeNow(data []byte) (n int, err error) {
	defer func() {
		if recover() != nil {
			n, err = 0, errWriterPanic
		}
	}()
	return o.now.WriteNow(data)
}

// spawn starts the goroutine. The lock is held.
func (o *outlet) spawn() {
	if o.wake == nil {
		o.wake, o.space = make(chan struct{}, 1), make(chan struct{}, 1)
		o.rc = http.NewResponseController(o.w)
		if o.ctx != nil && o.unsent == nil {
			o.unsent = unsentOf(o.ctx)
		}
	}
	o.running, o.done = true, make(chan struct{})
	go o.run()
}

// room reports whether more may be put: little is held here, or little everywhere. space tells when to ask again.
func (o *outlet) room() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held == 0 || o.held < maxAhead && o.shared.spare()
}

// behind reports whether something waits to be written.
func (o *outlet) behind() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held > 0
}

// end says that nothing more is put. It returns what is closed when everything is written; nil when it is.
func (o *outlet) end() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	if !o.running {
		return nil
	}
	signal(o.wake)
	return o.done
}

// stop gives up what is not written yet. A write that is under way is cut off, unless it has just succeeded.
func (o *outlet) stop() (done <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held > 0 && !o.writing {
		o.fail(errLeftOver)
	}
	o.ended = true
	if o.writing {
		o.cut()
	}
	if !o.running {
		return nil
	}
	signal(o.wake)
	return o.done
}

// close stops and waits; nothing is written by the outlet once it has returned. It returns why not everything was
// written, or nil.
func (o *outlet) close() error {
	if !o.started {
		return nil
	}
	if done := o.stop(); done != nil {
		<-done
	}
	return o.err
}

// alone reports whether the outlet never had a goroutine: then nothing has it in hand any more once it is closed.
func (o *outlet) alone() bool { return o.wake == nil }

// cut makes the write under way fail. The lock is held.
func (o *outlet) cut() { _ = o.rc.SetWriteDeadline(time.Unix(1, 0)) }

// fail notes the first error and lets go of everything held. The lock is held.
func (o *outlet) fail(err error) {
	if o.err != nil {
		return
	}
	o.err = err
	o.shared.give(o.held)
	o.held, o.queue, o.spare = 0, nil, nil
	if o.ctx != nil {
		o.ctx.Cancel()
	}
}

func (o *outlet) run() {
	done := o.done
	defer close(done)
	defer func() {
		// A defect below us must cost this request, not the whole gate.
		if recover() != nil {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.writing, o.running = false, false
			o.watch.stop()
			o.fail(errWriterPanic)
		}
	}()
	for {
		batch, flush, more := o.next()
		if len(batch) > 0 || flush {
			o.write(batch, flush)
			continue
		}
		if !more {
			return
		}
		<-o.wake
	}
}

// next takes what there is to do; more is false when the goroutine has nothing to wait for.
func (o *outlet) next() (batch [][]byte, flush, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return nil, false, o.rest()
	}
	batch, flush = o.queue, o.flush
	o.queue, o.flush = nil, false
	if len(batch) == 0 && !flush && o.now == nil && o.ended && o.total > httpBuffer && !o.last {
		// net/http would write the last bytes after the handler has returned, where nobody sees them stall.
		o.last, flush = true, true
	}
	if o.writing = len(batch) > 0 || flush; o.writing {
		o.watch.start(o)
		return batch, flush, true
	}
	if o.now != nil || o.ended {
		// The caller has caught up: put writes again.
		return nil, false, o.rest()
	}
	return nil, false, true
}

// rest ends the goroutine's turn; it returns false. The lock is held.
func (o *outlet) rest() bool {
	o.running = false
	o.watch.stop()
	return false
}

// write passes a batch on, piece by piece, under the eyes of the watch.
func (o *outlet) write(batch [][]byte, flush bool) {
	for i, rest := range batch {
		for len(rest) > 0 {
			piece := rest[:min(len(rest), outletPiece)]
			_, err := o.w.Write(piece)
			if rest = rest[len(piece):]; !o.wrote(len(piece), err) {
				return
			}
		}
		if i > 0 {
			batch[i] = nil
		}
	}
	if flush {
		if err := o.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) && !o.wrote(0, err) {
			return
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = false
	if len(batch) > 0 {
		o.spare = batch[0][:0]
	}
}

// wrote notes how a write went, and reports whether to go on.
func (o *outlet) wrote(n int, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		if o.watch.struck {
			err = errStalled
		}
		o.writing = false
		o.fail(err)
		return false
	}
	o.held -= int64(n)
	o.total += int64(n)
	o.shared.give(int64(n))
	signal(o.space)
	return true
}

// watch looks, while an outlet writes, whether it gets on. It is guarded by the outlet's lock.
type watch struct {
	timer *time.Timer
	// total and unsent are what was seen at time at.
	total  int64
	unsent int
	at     time.Time
	struck bool
}

// start looks at a batch from now on. The lock is held.
func (w *watch) start(o *outlet) {
	if o.stall <= 0 {
		return
	}
	w.total, w.unsent, w.at = o.total, 0, time.Now()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.every(o), func() { w.look(o) })
		return
	}
	w.timer.Reset(w.every(o))
}

func (w *watch) every(o *outlet) time.Duration { return max(o.stall/4, time.Millisecond) }

// look cuts a write off that has made no progress for the time allowed.
func (w *watch) look(o *outlet) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.writing {
		return
	}
	now := time.Now()
	unsent := 0
	if o.unsent != nil {
		unsent, _ = o.unsent()
	}
	if o.total != w.total || unsent != w.unsent {
		w.total, w.unsent, w.at = o.total, unsent, now
	}
	if now.Sub(w.at) >= o.stall {
		w.struck = true
		o.cut()
		return
	}
	w.timer.Reset(w.every(o))
}

func (w *watch) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
