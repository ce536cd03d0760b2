package handover

import (
	"errors"
	"fmt"
	"sync"

	"admitd/gate/journal"
)

// Forwarder sends entries of the record to the successor, keeps them until they are acknowledged, and gives back what was
// not. It is safe for concurrent use.
type Forwarder struct {
	link *Link
	mu   sync.Mutex
	// wait are entries not yet sent, sent those not yet acknowledged, both oldest first.
	wait, sent []journal.Entry
	more       chan struct{}
	ended      bool
	// quiet is closed when everything is acknowledged after Finish.
	quiet chan struct{}
	once  sync.Once
}

// NewForwarder makes one over a link that has just seen Commit.
func NewForwarder(l *Link) *Forwarder {
	return &Forwarder{link: l, more: make(chan struct{}, 1), quiet: make(chan struct{})}
}

// Take queues an entry; it never waits. It is what Journal.Divert wants.
func (f *Forwarder) Take(e journal.Entry) {
	f.mu.Lock()
	f.wait = append(f.wait, e)
	f.mu.Unlock()
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// Run sends and takes acknowledgements until Finish has been called and all is acknowledged, which gives nil, or the
// successor is gone, which is an error.
func (f *Forwarder) Run() error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer f.link.Close() // which ends the other goroutine
	acks := make(chan error, 1)
	wg.Go(func() { acks <- f.acknowledge() })
	for {
		if err := f.flush(); err != nil {
			return err
		}
		select {
		case err := <-acks:
			return err
		case <-f.more:
		case <-f.quiet:
			return f.link.Send(Message{Kind: End})
		}
	}
}

func (f *Forwarder) flush() error {
	for {
		f.mu.Lock()
		if len(f.wait) == 0 {
			f.mu.Unlock()
			return nil
		}
		e := f.wait[0]
		f.wait, f.sent = f.wait[1:], append(f.sent, e)
		f.mu.Unlock()
		if err := f.link.Send(Message{Kind: Entry, Entry: &e, Seq: e.Seq}); err != nil {
			return err
		}
	}
}

func (f *Forwarder) acknowledge() error {
	for {
		m, err := f.link.Receive()
		if err != nil {
			return fmt.Errorf("the successor is gone: %w", err)
		}
		if m.Kind != Ack {
			return errors.New("the successor sent " + string(m.Kind) + " where only acknowledgements belong")
		}
		f.mu.Lock()
		for len(f.sent) > 0 && f.sent[0].Seq <= m.Seq {
			f.sent = f.sent[1:]
		}
		f.settle()
		f.mu.Unlock()
	}
}

// settle tells Run that nothing is left, once nothing more will come. The lock is held.
func (f *Forwarder) settle() {
	if f.ended && len(f.wait) == 0 && len(f.sent) == 0 {
		f.once.Do(func() { close(f.quiet) })
	}
}

// Finish says that nothing more will be taken.
func (f *Forwarder) Finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.settle()
}

// Left are the entries that were not acknowledged, oldest first: they are the predecessor's to write when Run has failed.
func (f *Forwarder) Left() []journal.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(append([]journal.Entry(nil), f.sent...), f.wait...)
}
