package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"admitd/gate/admission"
	"admitd/gate/dialect"
	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/internal/handover"
	"admitd/internal/sockets"
	"admitd/supervisor"
)

// heir is the successor's side of an upgrade. nil where admitd was started by anybody else.
type heir struct {
	link  *handover.Link
	hello handover.Message
	// open says that the predecessor's gate was open, so that ours has to be before it leaves.
	open    bool
	serving atomic.Bool

	mu sync.Mutex
	// theirs are the predecessor's requests that have not ended.
	theirs map[admission.ID]bool
	ended  bool
}

// errCalledOff: the predecessor goes on, or is gone.
var errCalledOff = errors.New("the upgrade was called off by the admitd that serves, or that one has ended")

// meet opens the talk with the predecessor, if there is one.
func meet(in *sockets.Inherited) (*heir, error) {
	if !in.FromAdmitd() {
		return nil, nil
	}
	f := in.Take(sockets.Control)
	if f == nil {
		return nil, errors.New("the admitd that started this one handed no control socket down")
	}
	link, err := handover.Open(f)
	if err != nil {
		return nil, err
	}
	h := &heir{link: link, theirs: map[admission.ID]bool{}}
	if h.hello, err = link.Expect(handover.Hello); err != nil {
		link.Close()
		return nil, fmt.Errorf("%w: %w", errCalledOff, err)
	}
	return h, nil
}

// failed tells the predecessor why nothing came of us. Once we serve it does nothing.
func (h *heir) failed(err error) {
	if h == nil {
		return
	}
	if err != nil && !h.serving.Load() {
		// A predecessor that is gone needs no reason.
		_ = h.link.Send(handover.Message{Kind: handover.Failed, Text: err.Error()})
	}
	h.link.Close()
}

// Decline tells an admitd that started this one why nothing comes of it, before Run.
func Decline(in *sockets.Inherited, why error) {
	if h, err := meet(in); err == nil {
		h.failed(why)
	}
}

// prepare says that everything is read and taken, and waits for the engine.
func (a *instance) prepare(ctx context.Context) error {
	h := a.heir
	defer context.AfterFunc(ctx, h.link.Close)()
	if err := a.sameEngine(); err != nil {
		return err
	}
	if err := h.link.Send(handover.Message{Kind: handover.Prepared}); err != nil {
		return fmt.Errorf("%w: %w", errCalledOff, err)
	}
	m, err := h.link.Expect(handover.Take)
	if err != nil {
		return fmt.Errorf("%w: %w", errCalledOff, err)
	}
	h.open = m.Open
	a.pool.swap.AdoptOnly(m.PID)
	return nil
}

// inherit waits until we can serve, takes books and record over, and serves; then it hears what becomes of the predecessor's
// requests until that one has ended. An error means that we do not serve.
func (a *instance) inherit(ctx, parts context.Context, serve func()) error {
	h := a.heir
	off := context.AfterFunc(ctx, h.link.Close)
	defer off()
	if err := a.untilFit(ctx); err != nil {
		return err
	}
	if err := h.link.Send(handover.Message{Kind: handover.Ready}); err != nil {
		return fmt.Errorf("%w: %w", errCalledOff, err)
	}
	m, err := h.link.Expect(handover.Commit)
	if err != nil {
		return fmt.Errorf("%w: %w", errCalledOff, err)
	}
	if !off() {
		return ctx.Err()
	}
	defer context.AfterFunc(parts, h.link.Close)()
	a.pool.journal.Recall(m.Past)
	a.adopt(m.Flights)
	h.serving.Store(true)
	serve()
	a.locks.sign()
	if err := a.dropped(); err != nil {
		a.o.Logger.Warn("a socket that is not listened on any more stays", "error", err)
	}
	if err := h.link.Send(handover.Message{Kind: handover.Serving}); err != nil {
		// It ends us if it lives; if not, we are the one that serves.
		a.o.Logger.Warn("the earlier admitd did not hear that this one serves", "error", err)
	}
	a.hear()
	return nil
}

// untilFit waits until the gate is open, or, where the predecessor's was not, until the engine is known.
func (a *instance) untilFit(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		open, _ := a.pool.serving()
		if open || !a.heir.open && a.pool.engine.Status().State != supervisor.Stopped {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (a *instance) adopt(flights []admission.Reservation) {
	a.heir.mu.Lock()
	for _, r := range flights {
		a.heir.theirs[r.ID] = true
	}
	a.heir.mu.Unlock()
	a.pool.admission.With(func(now time.Time, _ admission.Controlling) { a.pool.controller.Adopt(now, flights) })
}

// hear takes the predecessor's news until it says End. When it dies before, its requests have died with it.
func (a *instance) hear() {
	h := a.heir
	defer func() {
		h.link.Close()
		h.mu.Lock()
		h.ended = true
		h.mu.Unlock()
	}()
	for {
		m, err := h.link.Receive()
		switch {
		case err != nil:
			if !errors.Is(err, io.EOF) {
				a.o.Logger.Error("the earlier admitd cannot be understood", "error", err)
			}
			a.lost()
			return
		case m.Kind == handover.End:
			a.lost()
			a.o.Logger.Info("the earlier admitd has finished")
			return
		case m.Kind == handover.Flights:
			for _, r := range m.Flights {
				a.pool.admission.Progress(r.ID, r.Generated)
			}
		case m.Kind == handover.Entry && m.Entry != nil:
			a.takeEntry(*m.Entry)
			// A predecessor that is gone has nothing to write a second time.
			_ = h.link.Send(handover.Message{Kind: handover.Ack, Seq: m.Seq})
		}
	}
}

// takeEntry puts one entry of the predecessor into record and books.
func (a *instance) takeEntry(e journal.Entry) {
	switch {
	case e.Decision != nil && e.Decision.Verdict == string(policy.Admit) && e.Decision.ReservedTokens+e.Decision.PromptTokens > 0:
		d := e.Decision
		a.adopt([]admission.Reservation{{
			ID: admission.ID(d.ID), Tenant: d.Tenant, AdmittedAt: e.At, PromptTokens: d.PromptTokens, ReservedTokens: d.ReservedTokens, Sequences: d.Sequences,
		}})
	case e.Outcome != nil:
		a.settleTheirs(e.Outcome)
	}
	a.pool.journal.Append(e)
}

func (a *instance) settleTheirs(o *journal.Outcome) {
	id := admission.ID(o.ID)
	a.heir.mu.Lock()
	ours := a.heir.theirs[id]
	delete(a.heir.theirs, id)
	a.heir.mu.Unlock()
	if !ours {
		return // a helper call, or settled before we heard of it
	}
	s := admission.Settlement{ID: id, Ending: dialect.Ending(o.Ending), Estimated: o.Estimated || o.PromptTokens == nil || o.CompletionTokens == nil}
	if o.PromptTokens != nil {
		s.PromptTokens = *o.PromptTokens
	}
	if o.CompletionTokens != nil {
		s.CompletionTokens = *o.CompletionTokens
	}
	if err := a.pool.admission.Settle(s); err != nil {
		a.o.Logger.Error("a reservation of the earlier admitd could not be settled", "request_id", o.ID, "error", err)
	}
}

// lost ends those of the predecessor's requests whose ending it did not tell.
func (a *instance) lost() {
	a.heir.mu.Lock()
	var left []admission.ID
	for id := range a.heir.theirs {
		left = append(left, id)
	}
	a.heir.mu.Unlock()
	if len(left) > 0 {
		a.o.Logger.Error("the earlier admitd ended without telling how its requests ended", "requests", len(left))
	}
	for _, id := range left {
		o := &journal.Outcome{ID: string(id), Ending: journal.EndLost, Error: "admitd died before this request ended"}
		a.settleTheirs(o)
		a.pool.journal.Append(journal.Entry{At: time.Now(), Kind: journal.KindOutcome, Outcome: o})
	}
}

// finished reports that nothing more comes from the predecessor.
func (h *heir) finished() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// locks are the folders that are ours alone.
type locks struct{ state, journal *supervisor.DirLock }

// bequeath hands copies down.
func (l locks) bequeath(b *sockets.Bequest) error {
	for name, lock := range map[string]*supervisor.DirLock{sockets.StateLock: l.state, sockets.JournalLock: l.journal} {
		if lock == nil {
			continue
		}
		if err := b.Add(name, lock); err != nil {
			return err
		}
	}
	return nil
}

func (l locks) sign() {
	for _, lock := range []*supervisor.DirLock{l.state, l.journal} {
		if lock != nil {
			lock.Sign()
		}
	}
}

func (l locks) release() {
	for _, lock := range []*supervisor.DirLock{l.state, l.journal} {
		if lock != nil {
			lock.Release()
		}
	}
}

// hold takes a folder's lock, or the one that was handed down when it is that folder's. The state folder has to be the
// predecessor's: the engine belongs to it.
func hold(dir string, in *sockets.Inherited, name string) (*supervisor.DirLock, error) {
	if f := in.Take(name); f != nil {
		lock, err := supervisor.Inherit(dir, f)
		if err == nil {
			return lock, nil
		}
		// Another folder than before: then it must be free.
	}
	if in.FromAdmitd() && name == sockets.StateLock {
		return nil, fmt.Errorf("%s %w", dir, errOtherFolder)
	}
	return supervisor.Hold(dir)
}
