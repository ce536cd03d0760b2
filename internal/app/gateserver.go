package app

import (
	"log/slog"
	"net/http"

	"admitd/gate"
	"admitd/gate/wire"
)

// gateServer is what serves the gate's listener: our own HTTP on plain sockets, which costs less, net/http's behind TLS.
func (a *instance) gateServer() server {
	l := a.o.Config.Limits
	handler := a.lastCall(crossOrigin(a.o.Config.CORS.Origins, a.gate))
	if a.certs != nil {
		s := &http.Server{
			Handler: handler, ReadHeaderTimeout: l.HeaderTimeout, IdleTimeout: l.IdleTimeout, MaxHeaderBytes: int(l.MaxHeader),
			ErrorLog: slog.NewLogLogger(a.o.Logger.Handler(), slog.LevelDebug),
		}
		gate.Prepare(s)
		return s
	}
	s := &wire.Server{
		Handler: handler, ReadHeaderTimeout: l.HeaderTimeout, IdleTimeout: l.IdleTimeout, MaxHeaderBytes: int(l.MaxHeader),
		Logger: a.o.Logger.With("component", "gate"),
	}
	a.gate.PrepareWire(s)
	return s
}
