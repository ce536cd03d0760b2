package wire

import "net/http"

// finish completes the answer when the handler has returned, and reports whether the connection can take another request.
func (w *response) finish() (keep bool) {
	defer w.drop()
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.framing == undecided {
		w.decide(int64(len(w.held)))
	}
	short := w.left > 0 || w.framing == sized && w.written != w.length
	if w.framing == inChunks && !short {
		w.out = append(w.room(), "0\r\n\r\n"...)
	}
	if w.err != nil || w.send() != nil || short {
		w.abandon()
		return false
	}
	_ = w.body.Close()
	if w.close {
		w.c.linger()
	}
	return !w.close
}

// abandon makes an answer that was given up look like one: where only the connection's end tells the answer's, it must
// be a reset.
func (w *response) abandon() {
	w.drop()
	if w.framing != untilClose && w.framing != undecided {
		return
	}
	if l, ok := w.c.nc.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
}

// drop gives the buffers back; whatever is still called afterwards fails.
func (w *response) drop() {
	w.empty()
	if w.held != nil {
		w.c.bufs.put(w.held)
		w.held = nil
	}
	if w.err == nil {
		w.err = errReturned
	}
}
