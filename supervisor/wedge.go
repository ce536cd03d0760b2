package supervisor

import (
	"context"
	"errors"
	"time"
)

// wedge is the inner form of WedgedError: it can look again.
type wedge struct {
	members func() []ident
	kill    func()
	left    []ident
}

// Error implements error.
func (w *wedge) Error() string { return w.error().Error() }

func (w *wedge) error() *WedgedError { return &WedgedError{Processes: identsText(w.left)} }

// wedged waits for a person, or for the processes to go after all. Nothing is launched over the memory they hold.
func (s *Supervisor) wedged(ctx context.Context, why error) (*ending, error) {
	var w *wedge
	if !errors.As(why, &w) {
		return nil, why
	}
	s.update(func(st *Status) { st.State, st.Text = Wedged, why.Error() })
	s.o.Logger.Error("engine wedged", "engine", string(s.o.Kind), "text", why.Error())
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, w.error()
		case r := <-s.requests:
			r.reply <- w.error()
		case reply := <-s.releases:
			reply <- w.error()
		case <-tick.C:
			w.kill()
			if len(w.members()) == 0 {
				return &ending{kind: endExit}, nil
			}
		}
	}
}
