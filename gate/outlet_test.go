package gate

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"admitd/gate/wire"
)

// slowCaller takes a write after a delay, and none at all when the delay is 0, until its deadline cuts it off.
type slowCaller struct {
	http.ResponseWriter
	delay time.Duration
	mu    sync.Mutex
	got   bytes.Buffer
	cut   chan struct{}
	once  sync.Once
}

func (s *slowCaller) Write(p []byte) (int, error) {
	var taken <-chan time.Time
	if s.delay > 0 {
		taken = time.After(s.delay)
	}
	select {
	case <-taken:
	case <-s.cut:
		return 0, os.ErrDeadlineExceeded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Write(p)
}

func (s *slowCaller) FlushError() error { return nil }

func (s *slowCaller) SetWriteDeadline(t time.Time) error {
	if t.Before(time.Now()) {
		s.once.Do(func() { close(s.cut) })
	}
	return nil
}

func newOutlet(w http.ResponseWriter, shared *budget, stall time.Duration, unsent func() (int, bool)) *outlet {
	o := &outlet{}
	o.init(&writer{ResponseWriter: w}, shared, stall, nil)
	o.unsent = unsent
	return o
}

func TestSlowCallerThatReadsIsNeverCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowCaller{delay: 59 * time.Second, cut: make(chan struct{})}
		shared := &budget{max: 1 << 20}
		o := newOutlet(w, shared, time.Minute, nil)
		o.start(true, nil)
		text := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
		o.put(text)
		o.end()
		<-o.done
		if err := o.close(); err != nil || !bytes.Equal(w.got.Bytes(), text) {
			t.Errorf("%v after %d of %d bytes", err, w.got.Len(), len(text))
		}
		if shared.used != 0 || o.behind() {
			t.Errorf("%d bytes still held", shared.used)
		}
	})
}

// A write returns only when the kernel has room for all of it; a caller of a few bytes a second is seen by what the
// kernel gets rid of.
func TestVerySlowCallerIsSeenByWhatTheKernelGetsRidOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := &slowCaller{delay: 20 * time.Minute, cut: make(chan struct{})}
		unsent := func() (int, bool) { return 1<<20 - int(time.Since(began)/time.Second), true }
		o := newOutlet(w, &budget{max: 1 << 20}, time.Minute, unsent)
		o.start(true, nil)
		o.put([]byte("hello"))
		o.end()
		<-o.done
		if err := o.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestCallerThatReadsNothingIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := &slowCaller{cut: make(chan struct{})}
		shared := &budget{max: 1 << 20}
		o := newOutlet(w, shared, time.Minute, func() (int, bool) { return 4096, true })
		o.ctx = wire.NewContext(t.Context())
		defer o.ctx.Cancel()
		o.start(true, nil)
		o.put([]byte("hello"))
		<-o.ctx.Done()
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute {
			t.Errorf("cut off after %s", took)
		}
		o.put([]byte("more"))
		if err := o.close(); !errors.Is(err, errStalled) || shared.used != 0 {
			t.Errorf("%v, %d bytes still held", err, shared.used)
		}
	})
}

func TestReadingAheadIsBoundedAloneAndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &budget{max: 3 * maxAhead / 2}
		var all []*outlet
		for range 3 {
			o := newOutlet(&slowCaller{cut: make(chan struct{})}, shared, 0, nil)
			o.start(true, nil)
			for o.room() {
				o.put(make([]byte, pumpBytes))
			}
			all = append(all, o)
		}
		synctest.Wait()
		for i, want := range []int64{maxAhead, maxAhead / 2, pumpBytes} {
			if all[i].held != want {
				t.Errorf("outlet %d holds %d bytes, want %d", i, all[i].held, want)
			}
		}
		for _, o := range all {
			if err := o.close(); err == nil {
				t.Error("what was not written is not missed")
			}
		}
		if shared.used != 0 {
			t.Errorf("%d bytes still held", shared.used)
		}
	})
}

func TestPanicOfTheConnectionCostsItsRequestOnly(t *testing.T) {
	o := newOutlet(panicking{}, &budget{max: 1 << 20}, 0, nil)
	o.start(false, nil)
	o.put([]byte("x"))
	<-o.done
	if err := o.close(); !errors.Is(err, errWriterPanic) {
		t.Error(err)
	}
}

type panicking struct{ http.ResponseWriter }

func (panicking) Write([]byte) (int, error) { panic("no") }
