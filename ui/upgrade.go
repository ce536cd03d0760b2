package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"admitd/ui/api"
)

// upgrade replaces the running admitd. The answer has a line for each step and a last one with Done.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request) *problem {
	body, prob := readBody(r)
	if prob != nil {
		return prob
	}
	var req api.UpgradeRequest
	if len(bytes.TrimSpace(body)) > 0 {
		if prob := decodeStrict(body, &req); prob != nil {
			return prob
		}
	}
	lines := &stepWriter{w: w, flush: http.NewResponseController(w)}
	pid, err := s.o.Backend.Upgrade(req.Binary, func(step string) { lines.write(api.UpgradeStep{Text: step}) })
	switch {
	case errors.Is(err, ErrNoUpgrade) && !lines.begun:
		return newProblem(http.StatusConflict, "no_upgrade", err.Error())
	case err != nil:
		lines.write(api.UpgradeStep{Text: err.Error(), Done: true})
	default:
		s.log.Info("upgraded over the admin API", "pid", pid)
		lines.write(api.UpgradeStep{Text: "upgraded", Done: true, OK: true, PID: pid})
	}
	return nil
}

// stepWriter writes JSON lines, each at once. Whoever does not read them changes nothing about the upgrade.
type stepWriter struct {
	mu    sync.Mutex
	w     http.ResponseWriter
	flush *http.ResponseController
	begun bool
}

func (l *stepWriter) write(step api.UpgradeStep) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.Header().Set("Cache-Control", "no-store")
		l.w.WriteHeader(http.StatusOK)
	}
	if json.NewEncoder(l.w).Encode(step) == nil {
		_ = l.flush.Flush()
	}
}
