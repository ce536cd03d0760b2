package gate

import (
	"context"
	"net"
	"net/http"
	"time"

	"admitd/gate/reason"
	"admitd/gate/wire"
)

// PrepareWire sets what the gate needs of the wire.Server in front of it, before it serves: its handler, a look at how far
// a slow caller has read, and that what is no request is answered, counted and recorded like every other refusal.
func (s *Server) PrepareWire(srv *wire.Server) {
	before := srv.ConnContext
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if before != nil {
			ctx = before(ctx, c)
		}
		return context.WithValue(ctx, connKey{}, c)
	}
	srv.BadRequest = s.malformed
	if srv.Handler == nil {
		srv.Handler = s
	}
}

// malformed answers what could not be read as a request. Nothing is known of it but what is wrong.
func (s *Server) malformed(w http.ResponseWriter, p *wire.Problem) {
	now := s.now()
	a := &arrival{s: s, w: &writer{ResponseWriter: w}, r: &http.Request{}, id: s.o.NewID(), began: now, decideAt: now}
	defer a.finish()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	s.o.Logger.Debug("no request that can be read", "request_id", a.id, "remote", p.Remote, "code", p.Code)
	a.refuse(refusal{code: reason.BadRequest, status: p.Status, message: p.Message})
}
