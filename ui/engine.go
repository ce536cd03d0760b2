package ui

import (
	"encoding/json"
	"net/http"
	"time"

	"admitd/supervisor"
	"admitd/ui/api"
)

func (s *Server) getEngine(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	writeJSON(w, http.StatusOK, p.b.Engine.Status())
	return nil
}

func (s *Server) restartEngine(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	if p.b.Restart == nil || p.b.Engine.Status().Kind == supervisor.External {
		return newProblem(http.StatusConflict, "not_ours", "This engine is run by somebody else; admitd cannot restart it.")
	}
	if err := p.b.Restart(r.Context()); err != nil {
		return newProblem(http.StatusConflict, "restart_refused", "restart the engine: "+err.Error())
	}
	s.log.Info("engine restart asked for over the admin API", "pool", p.b.Model)
	writeJSON(w, http.StatusAccepted, api.Accepted{Text: "The engine is being restarted; open requests are drained first."})
	return nil
}

// Limits of GET engine/logs.
const (
	defaultLogLines = 200
	maxLogLines     = 2000
	// followInterval is the time between two looks for new lines.
	followInterval = 250 * time.Millisecond
	maxFollowers   = 32
)

func (s *Server) engineLogs(w http.ResponseWriter, r *http.Request) *problem {
	p, prob := s.pool(r)
	if prob != nil {
		return prob
	}
	v := r.URL.Query()
	limit, err := whole(v, "limit", defaultLogLines, 1, maxLogLines)
	if err != nil {
		return badRequest("bad_parameter", "%s", err)
	}
	after, err := whole(v, "after", 0, 0, 1<<53)
	if err != nil {
		return badRequest("bad_parameter", "%s", err)
	}
	switch v.Get("follow") {
	case "1", "true":
		return s.followLogs(w, r, p.b.Engine, uint64(after), int(limit))
	case "", "0", "false":
	default:
		return badRequest("bad_parameter", "follow=%s: give 1 or 0", cutText(v.Get("follow")))
	}
	lines, lost := p.b.Engine.Logs(uint64(after), int(limit))
	if !v.Has("after") {
		lines, lost = newestLines(p.b.Engine, lines, lost, int(limit))
	}
	out := api.EngineLogs{Lines: append([]supervisor.Line{}, lines...), Lost: lost, Next: uint64(after)}
	if n := len(lines); n > 0 {
		out.Next = lines[n-1].Seq
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// newestLines goes on from the oldest lines to the newest ones. An engine that writes faster than this reads is left
// behind after a bounded number of steps.
func newestLines(e supervisor.Engine, lines []supervisor.Line, lost bool, limit int) ([]supervisor.Line, bool) {
	for range 1000 {
		if len(lines) == 0 {
			break
		}
		more, _ := e.Logs(lines[len(lines)-1].Seq, limit)
		if len(more) == 0 {
			break
		}
		lines = append(lines, more...)
		lines = lines[max(len(lines)-limit, 0):]
		lost = lost || lines[0].Seq > 1
	}
	return lines, lost
}

// followLogs writes one JSON object a line until the caller goes away or the server stops.
func (s *Server) followLogs(w http.ResponseWriter, r *http.Request, e supervisor.Engine, after uint64, limit int) *problem {
	if s.followers.Add(1) > maxFollowers {
		s.followers.Add(-1)
		return newProblem(http.StatusTooManyRequests, "too_many_followers", "32 callers follow the log already; close one of them.")
	}
	defer s.followers.Add(-1)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	t := time.NewTicker(followInterval)
	defer t.Stop()
	for {
		// A caller that stops reading must not keep us here for ever, and one that reads may stay for ever.
		_ = flush.SetWriteDeadline(time.Now().Add(s.hub.o.WriteWait))
		lines, lost := e.Logs(after, limit)
		if lost {
			if enc.Encode(api.LogEvent{Seq: after, At: s.clock(), Lost: true}) != nil {
				return nil
			}
		}
		for _, l := range lines {
			after = l.Seq
			if enc.Encode(api.LogEvent{Seq: l.Seq, At: l.At, Text: l.Text}) != nil {
				return nil
			}
		}
		if flush.Flush() != nil {
			return nil
		}
		if len(lines) == limit {
			continue
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-s.stopping:
			return nil
		case <-t.C:
		}
	}
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) *problem {
	if prob := drained(r); prob != nil {
		return prob
	}
	res, err := s.o.Backend.Reload(r.Context(), "api")
	if err != nil {
		return fromError(err)
	}
	writeJSON(w, http.StatusOK, res)
	return nil
}
