package sim

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// armed is a fault that was asked for.
type armed struct {
	// after is the delay counted from ready; requests the number of the inference request from which on it holds.
	after    time.Duration
	requests int
	// lasts is how long it holds; 0 means for ever.
	lasts time.Duration
}

// ParseFault reads "name" or "name:when", where when is a duration after ready ("5s") or "req=N", the number of the
// inference request with which it begins. Either may say how long it lasts: "5s+20s", "req=3+20s".
func ParseFault(s string) (Fault, error) {
	name, _, err := parseFault(s)
	return name, err
}

func parseFault(s string) (Fault, armed, error) {
	name, when, timed := strings.Cut(s, ":")
	if _, known := faultInfo(Fault(name)); !known {
		return "", armed{}, fmt.Errorf("unknown fault %q: `admitd sim --faults` lists them", name)
	}
	if !timed {
		return Fault(name), unsaid(Fault(name)), nil
	}
	var a armed
	when, length, limited := strings.Cut(when, "+")
	if limited {
		d, err := time.ParseDuration(length)
		if err != nil || d <= 0 {
			return "", armed{}, fmt.Errorf("fault %q: after the + must come how long it lasts, such as 20s, not %q", s, length)
		}
		a.lasts = d
	}
	if count, ok := strings.CutPrefix(when, "req="); ok {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return "", armed{}, fmt.Errorf("fault %q: %q is not a request number: use req=1 or more", s, count)
		}
		a.requests = n
		return Fault(name), a, nil
	}
	d, err := time.ParseDuration(when)
	if err != nil || d < 0 {
		return "", armed{}, fmt.Errorf("fault %q: %q is neither a duration such as 5s nor req=N", s, when)
	}
	a.after = d
	return Fault(name), a, nil
}

// unsaid is when a fault begins that was given no time.
func unsaid(name Fault) armed {
	if name == FaultLateHang {
		return armed{requests: lateHangRequests}
	}
	return armed{}
}

// faultSet holds what was asked for. It is safe for use by several goroutines.
type faultSet struct {
	mu       sync.Mutex
	armed    map[Fault]armed
	ready    time.Time
	requests int
	// reached is when the request came with which a fault began; tripped are faults whose occasion has come.
	reached map[int]time.Time
	tripped map[Fault]bool
	// changed is closed and replaced when a fault may have begun or ended.
	changed chan struct{}
}

// newFaultSet reads a list of faults for an engine of the given face.
func newFaultSet(list []string, face string) (*faultSet, error) {
	f := &faultSet{
		armed: make(map[Fault]armed), reached: make(map[int]time.Time), tripped: make(map[Fault]bool), changed: make(chan struct{}),
	}
	for _, s := range list {
		name, a, err := parseFault(s)
		if err != nil {
			return nil, err
		}
		if info, _ := faultInfo(name); !info.On(face) {
			return nil, fmt.Errorf("fault %q is one of %s: use --dialect %s", name, info.Face, info.Face)
		}
		f.armed[name] = a
	}
	return f, nil
}

// setReady starts the clock of timed faults.
func (f *faultSet) setReady(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready = t
	f.signal()
}

func (f *faultSet) signal() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// request counts one inference request.
func (f *faultSet) request() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	for _, a := range f.armed {
		if a.requests == f.requests {
			f.reached[f.requests] = time.Now()
		}
	}
	if len(f.armed) > 0 {
		f.signal()
	}
}

// on reports whether a fault holds now.
func (f *faultSet) on(name Fault) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, ok := f.armed[name]
	return ok && f.holds(a)
}

func (f *faultSet) holds(a armed) bool {
	begun := f.requests >= a.requests && (a.after == 0 || f.left(a) <= 0)
	return begun && (a.lasts == 0 || f.remains(a) > 0)
}

// remains is how long a fault that has begun and does not last for ever still holds.
func (f *faultSet) remains(a armed) time.Duration {
	began := f.ready.Add(a.after)
	if a.requests > 0 {
		began = f.reached[a.requests]
	}
	if f.ready.IsZero() {
		return a.lasts
	}
	return a.lasts - time.Since(began)
}

// wait returns nil once a fault holds, or the context's error.
func (f *faultSet) wait(ctx context.Context, name Fault) error {
	for {
		f.mu.Lock()
		a, ok := f.armed[name]
		holds, changed, left := ok && f.holds(a), f.changed, f.left(a)
		f.mu.Unlock()
		if holds {
			return nil
		}
		if !ok || left <= 0 {
			left = time.Hour
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-changed:
		case <-ctx.Done():
		}
		t.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// left is the time until a fault's delay is over; the longest possible before ready.
func (f *faultSet) left(a armed) time.Duration {
	if f.ready.IsZero() {
		return time.Duration(1<<63 - 1)
	}
	return a.after - time.Since(f.ready)
}

// asked returns a fault's parameters whether or not it holds yet.
func (f *faultSet) asked(name Fault) (armed, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, ok := f.armed[name]
	return a, ok
}

// nextDue is the shortest time until a fault begins or ends that the owner of the model must notice.
func (f *faultSet) nextDue() (time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next, due := time.Duration(0), false
	for _, name := range stalling() {
		a, ok := f.armed[name]
		if !ok || f.ready.IsZero() {
			continue
		}
		d := time.Duration(0)
		switch {
		case a.after > 0 && f.left(a) > 0:
			d = f.left(a)
		case a.lasts > 0 && f.holds(a):
			d = f.remains(a)
		}
		if d > 0 && (!due || d < next) {
			next, due = d, true
		}
	}
	return next, due
}

// stalls reports whether the engine is to stand still.
func (f *faultSet) stalls() bool {
	return slices.ContainsFunc(stalling(), f.on) || f.has(FaultQueueHang)
}

// trip notes that the occasion of a fault has come, if it was asked for; has reports that.
func (f *faultSet) trip(name Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.armed[name]; ok {
		f.tripped[name] = true
		f.signal()
	}
}

func (f *faultSet) has(name Fault) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tripped[name]
}

// over returns nil once a fault does not hold any more, or the context's error.
func (f *faultSet) over(ctx context.Context, name Fault) error {
	for {
		f.mu.Lock()
		a, ok := f.armed[name]
		holds, changed, left := ok && f.holds(a), f.changed, time.Hour
		if holds && a.lasts > 0 {
			left = f.remains(a)
		}
		f.mu.Unlock()
		if !holds {
			return ctx.Err()
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-changed:
		case <-ctx.Done():
		}
		t.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (f *faultSet) set(name Fault, a armed, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.signal()
	if on {
		f.armed[name] = a
		return
	}
	delete(f.armed, name)
	delete(f.tripped, name)
}

// names lists what was asked for, sorted.
func (f *faultSet) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for n := range f.armed {
		out = append(out, string(n))
	}
	sort.Strings(out)
	return out
}
