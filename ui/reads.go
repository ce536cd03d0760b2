package ui

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"admitd/gate/journal"
	"admitd/gate/reason"
	"admitd/supervisor"
	"admitd/ui/api"
	"admitd/ui/feed"
	"admitd/ui/filter"
)

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) *problem {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
	return nil
}

// serving says whether a pool lets requests in, and if not, why.
func (p *pool) serving() (ok bool, why string) {
	if st := p.b.Engine.Status(); st.State != supervisor.Ready {
		if st.Text == "" {
			return false, "engine " + string(st.State)
		}
		return false, "engine " + string(st.State) + ": " + st.Text
	}
	if p.b.Serving == nil {
		return true, ""
	}
	return p.b.Serving()
}

// readyz is 200 when every pool lets requests in.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) *problem {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, p := range s.pools {
		if ok, why := p.serving(); !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintf(w, "%s: %s\n", p.b.Model, why)
			return nil
		}
	}
	_, _ = w.Write([]byte("ready\n"))
	return nil
}

func (s *Server) status(now time.Time) api.Status {
	st := api.Status{
		Version: s.o.Version, BootID: s.o.BootID, Now: now, StartedAt: s.started, GateAddress: s.o.Backend.GateAddress(),
		Ready: true, Config: s.o.Backend.Config(), WebsocketClients: s.hub.count(), FramesDropped: s.hub.framesDropped(),
	}
	for _, p := range s.pools {
		ps := p.status(now)
		serving, _ := p.serving()
		st.Ready = st.Ready && serving
		st.Pools = append(st.Pools, ps)
	}
	return st
}

func (s *Server) getStatus(w http.ResponseWriter, _ *http.Request) *problem {
	for _, p := range s.pools {
		p.catchUp()
	}
	writeJSON(w, http.StatusOK, s.status(s.clock()))
	return nil
}

func (s *Server) getSignals(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	now, snap := s.clock(), p.b.Snapshot()
	writeJSON(w, http.StatusOK, api.Signals{Pool: p.b.Model, Scrape: p.scrape(snap, now), Signals: signalViews(snap, now)})
	return nil
}

// Limits of one answer of GET decisions.
const (
	defaultDecisions = 100
	maxDecisions     = 1000
)

func (s *Server) getDecisions(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	v := r.URL.Query()
	limit, err := whole(v, "limit", defaultDecisions, 1, maxDecisions)
	if err != nil {
		return badRequest("bad_parameter", "%s", err)
	}
	after, err := whole(v, "after", 0, 0, 1<<53)
	if err != nil {
		return badRequest("bad_parameter", "%s", err)
	}
	f, err := filter.Parse(v.Get("filter"))
	if err != nil {
		return badRequest("bad_filter", "%s", err)
	}
	p.catchUp()
	writeJSON(w, http.StatusOK, p.feed.Decisions(feed.Query{
		After: uint64(after), Newest: !v.Has("after"), Limit: int(limit), Match: f.Match,
	}))
	return nil
}

// whole reads a whole number from the query.
func whole(v url.Values, name string, def, least, most int64) (int64, error) {
	text := v.Get(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s=%s: give a whole number from %d to %d", name, cutText(text), least, most)
	}
	return n, nil
}

func (s *Server) getDecision(w http.ResponseWriter, r *http.Request) *problem {
	id := r.PathValue("id")
	for _, p := range s.pools {
		p.catchUp()
		if it, ok := p.feed.Find(id); ok {
			writeJSON(w, http.StatusOK, it)
			return nil
		}
		if it, ok := fromJournal(p.b.Journal, id); ok {
			writeJSON(w, http.StatusOK, it)
			return nil
		}
	}
	return newProblem(http.StatusNotFound, "no_such_decision",
		fmt.Sprintf("No decision %q is kept in memory; older ones are in the journal's files.", cutText(id)))
}

func fromJournal(j *journal.Journal, id string) (api.DecisionItem, bool) {
	d, o := j.Find(id)
	if d == nil || d.Decision == nil {
		return api.DecisionItem{}, false
	}
	it := api.DecisionItem{Seq: d.Seq, At: d.At, Decision: *d.Decision}
	if o != nil {
		it.Outcome = o.Outcome
	}
	it.Reason, _ = reason.Lookup(d.Decision.Reason)
	return it, true
}

func (s *Server) getSessions(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	p.catchUp()
	out := p.feed.Sessions()
	out.Pool = p.b.Model
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *Server) getTenants(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	p.catchUp()
	out := p.feed.Tenants()
	out.Pool = p.b.Model
	writeJSON(w, http.StatusOK, out)
	return nil
}

// defaultHistory is how far back GET history goes when nothing is asked for.
const defaultHistory = 5 * time.Minute

func (s *Server) getHistory(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	now, v := s.clock(), r.URL.Query()
	to, err1 := instant(v, "to", now)
	from, err2 := instant(v, "from", to.Add(-defaultHistory))
	step, err3 := span(v, "step", 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		return badRequest("bad_parameter", "%s", err)
	}
	if to.Before(from) {
		return badRequest("bad_parameter", "from=%s lies after to=%s", from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	writeJSON(w, http.StatusOK, p.feed.History(from, to, step))
	return nil
}

// endOfYears is the year 10000 in Unix milliseconds, which RFC 3339 cannot write.
const endOfYears = 253_402_300_800_000

// instant reads a time: RFC 3339, or milliseconds since the Unix epoch.
func instant(v url.Values, name string, def time.Time) (time.Time, error) {
	text := v.Get(name)
	if text == "" {
		return def, nil
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms >= 0 && ms < endOfYears {
		return time.UnixMilli(ms), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%s=%s: give a time as RFC 3339 or in Unix milliseconds", name, cutText(text))
}

// span reads a duration: 1s, 500ms, or plain milliseconds. It must not be negative nor above a day.
func span(v url.Values, name string, def time.Duration) (time.Duration, error) {
	text := v.Get(name)
	if text == "" {
		return def, nil
	}
	d, err := time.ParseDuration(text)
	if ms, e := strconv.ParseInt(text, 10, 32); e == nil {
		d, err = time.Duration(ms)*time.Millisecond, nil
	}
	if err != nil || d < 0 || d > 24*time.Hour {
		return 0, fmt.Errorf("%s=%s: give a duration such as 1s or 500ms, at most a day", name, cutText(text))
	}
	return d, nil
}
