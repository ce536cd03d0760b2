package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// wedge is the inner form of WedgedError: it can look again. It is about processes that do not end, or about memory that does not
// come back.
type wedge struct {
	members func() []ident
	kill    func()
	left    []ident

	// memory is what AfterStop found, again is that hook.
	memory error
	again  func(context.Context, func(string)) error
}

// Error implements error.
func (w *wedge) Error() string { return w.error().Error() }

func (w *wedge) error() *WedgedError {
	if w.memory != nil {
		return &WedgedError{Memory: w.memory.Error()}
	}
	return &WedgedError{Processes: stuckText("/proc", w.left)}
}

// gone looks again and kills again.
func (w *wedge) gone(ctx context.Context) bool {
	if w.memory != nil {
		ctx, cancel := context.WithTimeout(ctx, memoryLook)
		defer cancel()
		return w.again(ctx, func(string) {}) == nil
	}
	w.kill()
	return len(w.members()) == 0
}

// trouble describes the wedge.
func (w *wedge) trouble(now time.Time) *Trouble {
	t := &Trouble{Code: Unkillable, Since: now, Next: "nothing is launched; admitd looks every 2 s and goes on by itself once they are gone",
		Hint: "a process in state D or R that ignores SIGKILL is held by the kernel, most often in the GPU driver: look for Xid lines in dmesg; " +
			"a reset of the GPU or a reboot ends it"}
	if w.memory != nil {
		t.Code, t.Hint = MemoryHeld, memoryHint
		t.Next = "nothing is launched; admitd looks every 2 s and goes on by itself once the memory is back"
	}
	return t
}

// wedged waits for a person, or for the wedge to come loose after all. Nothing is launched over the memory that is held.
func (s *Supervisor) wedged(ctx context.Context, why error) (*ending, error) {
	var w *wedge
	if !errors.As(why, &w) {
		return nil, why
	}
	s.update(func(st *Status) { st.State, st.Text, st.Trouble = Wedged, why.Error(), w.trouble(s.now()) })
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
			if w.gone(ctx) {
				return &ending{kind: endExit}, nil
			}
		}
	}
}

// killedFor is how long a killed process may still be there before the status says so.
const killedFor = 3 * time.Second

// stillThere says in the status that processes were killed and have not gone; deadline is when they count as wedged.
func (s *Supervisor) stillThere(left []ident, began, deadline time.Time) {
	if s.now().Sub(began) < killedFor || codeOf(s.status.Load().Trouble) == Unkillable {
		return
	}
	t := (&wedge{}).trouble(began)
	t.ActAt, t.Next = deadline, "the state becomes wedged, and nothing is launched until they are gone"
	s.update(func(st *Status) {
		st.Text, st.Trouble = "killed, and still there: "+stuckText("/proc", left), t
	})
}

// stuckText lists processes that do not end, with what the kernel says of them.
func stuckText(root string, ids []ident) string {
	parts := make([]string, 0, len(ids))
	for _, id := range ids {
		text := strconv.Itoa(id.PID)
		if p, ok := readProc(root, id.PID); ok && p.ident == id {
			text += fmt.Sprintf(" (%s, state %c", p.comm, p.state)
			if where := waitsIn(root, id.PID); where != "" {
				text += " in " + where
			}
			text += ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// waitsIn is the kernel function that a process waits in, "" when it does not wait or we may not know.
func waitsIn(root string, pid int) string {
	b, err := os.ReadFile(filepath.Join(root, strconv.Itoa(pid), "wchan"))
	if err != nil || len(b) > 64 || string(b) == "0" {
		return ""
	}
	return plain(strings.TrimSpace(string(b)))
}
