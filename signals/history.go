package signals

import (
	"fmt"
	"time"
)

// counters are the shares of each counter on one page, by wire name.
type counters map[string]map[string]float64

// point is the counters at the time of one scrape.
type point struct {
	at     time.Time
	values counters
}

// history keeps the counters of past scrapes of one engine life, thinned, oldest first.
type history struct {
	points []point
	// last is what each series was last seen at, also of those that the last page lacked.
	last counters
}

// Thinning and keeping: the longest window needs a point about as old as itself, and no point closer than this
// to the one before. A point older than two windows is too old to call a rate recent.
const (
	pointGap  = 250 * time.Millisecond
	windowMax = slowWindow
)

// fell reports whether a counter of the page is lower than on the last page, which only a new engine life does.
func (h *history) fell(now counters) bool {
	for name, shares := range now {
		for key, v := range shares {
			if old, ok := h.last[name][key]; ok && v < old {
				return true
			}
		}
	}
	return false
}

// add records a page's counters.
func (h *history) add(at time.Time, now counters) {
	h.note(now)
	if n := len(h.points); n > 0 && at.Sub(h.points[n-1].at) < pointGap {
		return
	}
	keep := 0
	for keep < len(h.points) && at.Sub(h.points[keep].at) > 2*windowMax {
		keep++
	}
	h.points = append(h.points[keep:len(h.points):len(h.points)], point{at: at, values: now})
}

// note takes a page as the last one seen. Where a counter has lost a series since, its past is of no use any more: measured from
// it, no growth could be told for as long as the window reaches back.
func (h *history) note(now counters) {
	if h.last == nil {
		h.last = counters{}
	}
	for name, shares := range now {
		for key := range h.last[name] {
			if _, still := shares[key]; !still {
				for _, p := range h.points {
					delete(p.values, name)
				}
				break
			}
		}
		h.last[name] = shares
	}
}

// growth tells by how much a counter, summed over its shares, grew within about the window before at, and over
// what time. It starts from the newest point that is at least as old as the window, else from the oldest.
// why is set where nothing can be told.
func (h *history) growth(name string, now map[string]float64, at time.Time, window time.Duration) (grew float64, span time.Duration, why string) {
	base, ok := h.base(name, at, window)
	if !ok {
		return 0, 0, fmt.Sprintf("needs two scrapes at most %s apart", 2*window)
	}
	from := base.values[name]
	for key := range from {
		if _, still := now[key]; !still {
			return 0, 0, "a series of it disappeared since the last scrape"
		}
	}
	for key, v := range now {
		// A share that was not there yet starts at 0: engines create labelled counters at their first event.
		d := v - from[key]
		if d < 0 {
			return 0, 0, "fell since the last scrape"
		}
		grew += d
	}
	return grew, at.Sub(base.at), ""
}

// base finds the point that a window's growth is measured from.
func (h *history) base(name string, at time.Time, window time.Duration) (point, bool) {
	var found point
	ok := false
	for _, p := range h.points {
		age := at.Sub(p.at)
		if _, has := p.values[name]; !has || age <= 0 || age > 2*window {
			continue
		}
		if ok && age < window {
			break
		}
		found, ok = p, true
	}
	return found, ok
}

// motion watches whether a reading moves when load does.
type motion struct {
	seen       bool
	value      [2]float64
	changedAt  time.Time
	loadThen   int
	differFrom time.Time
	busyFrom   time.Time
}

// see takes one more reading with the load at that time.
func (m *motion) see(at time.Time, value [2]float64, load int) {
	switch {
	case !m.seen || value != m.value:
		*m = motion{seen: true, value: value, changedAt: at, loadThen: load, busyFrom: m.busyFrom}
	case load == m.loadThen:
		m.differFrom = time.Time{}
	case m.differFrom.IsZero():
		m.differFrom = at
	}
	switch {
	case load == 0:
		m.busyFrom = time.Time{}
	case m.busyFrom.IsZero():
		m.busyFrom = at
	}
}

// stuck says that load has been another than it was at the reading's last change for at least after; "" otherwise.
func (m *motion) stuck(at time.Time, load int, after time.Duration) string {
	if m.differFrom.IsZero() || at.Sub(m.differFrom) < after {
		return ""
	}
	return fmt.Sprintf("has not moved for %s while requests in flight went from %d to %d",
		at.Sub(m.changedAt).Round(time.Second), m.loadThen, load)
}

// idleUnderLoad says that a counter has not grown for at least after although there was load all that time.
func (m *motion) idleUnderLoad(at time.Time, load int, after time.Duration) string {
	if m.busyFrom.IsZero() {
		return ""
	}
	from := m.busyFrom
	if m.changedAt.After(from) {
		from = m.changedAt
	}
	if at.Sub(from) < after {
		return ""
	}
	return fmt.Sprintf("no token counter has moved for %s with %d requests in flight", at.Sub(from).Round(time.Second), load)
}
