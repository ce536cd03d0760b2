package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sort"
	"time"
)

// ErrCrashed means that the fault exit0-crash ended the engine; the real one then exits with status 0.
var ErrCrashed = errors.New("the simulated engine's core died")

// stopGrace is how long open connections get to write their endings once everything has been cut.
const stopGrace = 2 * time.Second

// Run loads, listens with the given function and serves until the context ends (the stop was asked for) or a fault
// ends the engine. The address is printed. It closes the server.
func (s *Server) Run(ctx context.Context, address string, listen func() (net.Listener, error)) error {
	defer func() { _ = s.Close() }()
	if err := s.Load(ctx); err != nil {
		return err
	}
	l, err := listen()
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	s.listening(address)
	return s.Serve(ctx, l)
}

// Serve answers on the listener until the context ends, then stops as the engine does on SIGTERM: requests in flight
// may go on for the shutdown timeout (SGLang: without limit), new ones are refused, what is left is cut with an
// error. A nil error is a clean stop; ErrCrashed a simulated crash. The listener is closed.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.faults.setReady(time.Now())
	srv := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute, IdleTimeout: 5 * time.Second}
	failed, crashed := make(chan error, 1), make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	watch, cancel := context.WithCancel(ctx)
	go func() { crashed <- s.faults.wait(watch, FaultExit0Crash) }()
	defer func() {
		cancel()
		<-crashed //nolint:errcheck // whatever it says, it has ended
	}()
	var result error
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
		s.drain()
	case err := <-crashed:
		crashed <- err // the deferred wait takes it
		if err != nil {
			s.drain()
			break
		}
		result = ErrCrashed
		s.dead.Store(true)
		s.engineLine(false, "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup")
		s.engineLine(false, "vllm.v1.engine.exceptions.EngineDeadError: "+engineDeadText)
	}
	// A driver that is closed already has failed everything.
	_ = s.driver.do(func() {
		s.driver.fail(&apiError{Status: 500, Type: "InternalServerError", Message: engineDeadText})
	})
	s.shutdown(srv)
	<-failed //nolint:errcheck // always ErrServerClosed after shutdown
	return result
}

// drain refuses new work and lets the rest go on for as long as the engine would.
func (s *Server) drain() {
	s.draining.Store(true)
	s.engineLine(false, "[shutdown] API server: shutdown triggered")
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.ShutdownTimeout)
	if s.opt.Dialect == SGLang {
		cancel()
		ctx, cancel = context.WithCancel(context.Background())
	}
	defer cancel()
	// Running out of time is what the next step is for.
	_ = s.driver.idle(ctx)
}

func (s *Server) shutdown(srv *http.Server) {
	s.printf("INFO:     Shutting down\n")
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		_ = srv.Close()
	}
	s.printf("INFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete.\n")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
