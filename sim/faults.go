package sim

import (
	"context"
	"fmt"
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
}

// ParseFault reads "name" or "name:when", where when is a duration after ready ("5s") or "req=N", the number of the
// inference request with which it begins.
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
		return Fault(name), armed{}, nil
	}
	if count, ok := strings.CutPrefix(when, "req="); ok {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return "", armed{}, fmt.Errorf("fault %q: %q is not a request number: use req=1 or more", s, count)
		}
		return Fault(name), armed{requests: n}, nil
	}
	d, err := time.ParseDuration(when)
	if err != nil || d < 0 {
		return "", armed{}, fmt.Errorf("fault %q: %q is neither a duration such as 5s nor req=N", s, when)
	}
	return Fault(name), armed{after: d}, nil
}

// faultSet holds what was asked for. It is safe for use by several goroutines.
type faultSet struct {
	mu       sync.Mutex
	armed    map[Fault]armed
	ready    time.Time
	requests int
	// changed is closed and replaced when a fault may have begun or ended.
	changed chan struct{}
}

// newFaultSet reads a list of faults for an engine of the given face.
func newFaultSet(list []string, face string) (*faultSet, error) {
	f := &faultSet{armed: make(map[Fault]armed), changed: make(chan struct{})}
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
	return f.requests >= a.requests && (a.after == 0 || f.left(a) <= 0)
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

// nextDue is the shortest time until a fault that the owner of the model must notice begins.
func (f *faultSet) nextDue() (time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, ok := f.armed[FaultStall]
	if !ok || a.after == 0 || f.ready.IsZero() {
		return 0, false
	}
	d := f.left(a)
	return d, d > 0
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
