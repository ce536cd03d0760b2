package wire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// What WriteNow could not send goes on with the next write, byte by byte, however the pieces fall.
func TestWriteNowLosesAndDoublesNothing(t *testing.T) {
	const total = 4 << 20
	want := make([]byte, total)
	rng := rand.New(rand.NewPCG(3, 5))
	for i := range want {
		want[i] = byte(rng.IntN(256))
	}
	for name, tc := range map[string]struct{ request, length string }{
		"chunked":       {request: plainGet},
		"sized":         {request: plainGet, length: "4194304"},
		"until the end": {request: "GET / HTTP/1.0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			short, unsent := 0, 0
			_, br := onStream(t, &Server{}, func(w http.ResponseWriter, _ *http.Request) {
				if tc.length != "" {
					w.Header().Set("Content-Length", tc.length)
				}
				for rest := want; len(rest) > 0; {
					piece := rest[:min(len(rest), 1+rng.IntN(20_000))]
					n, err := w.(Conn).WriteNow(piece)
					if err != nil {
						t.Errorf("WriteNow: %v", err)
						return
					}
					rest = rest[n:]
					if n == len(piece) {
						continue
					}
					short++
					if u, err := w.(Conn).Unsent(); err == nil {
						unsent = max(unsent, u)
					}
					// The caller is behind: wait for it, with more than what was left of the piece.
					more := rest[:min(len(rest), 30_000)]
					if _, err := w.Write(more); err != nil {
						t.Errorf("Write: %v", err)
						return
					}
					rest = rest[len(more):]
				}
			}, tc.request)
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%d bytes came, equal %v, error %v", len(got), bytes.Equal(got, want), err)
			}
		})
	}
}

func TestWriteNowDoesNotWaitForACallerThatReadsNothing(t *testing.T) {
	done := make(chan error, 1)
	var unsent int
	c, _ := onStream(t, &Server{}, func(w http.ResponseWriter, _ *http.Request) {
		for {
			n, err := w.(Conn).WriteNow(make([]byte, 100_000))
			if err != nil || n < 100_000 {
				unsent, _ = w.(Conn).Unsent()
				done <- err
				break
			}
		}
		_ = http.NewResponseController(w).SetWriteDeadline(past())
		_, err := w.(Conn).WriteNow([]byte("x"))
		done <- err
	}, plainGet)
	_ = c.SetReadBuffer(4096)
	if err := recv(t, "a short write", done); err != nil {
		t.Errorf("error %v", err)
	}
	if err := recv(t, "the cut", done); !errors.Is(err, syscall.ETIMEDOUT) && !isTimeout(err) {
		t.Errorf("a write after its deadline: %v", err)
	}
	if unsent == 0 {
		t.Error("the kernel holds nothing for a caller that reads nothing")
	}
}

func TestWriteUnderWayIsCutByADeadline(t *testing.T) {
	done := make(chan error, 1)
	blocked := make(chan *response, 1)
	onStream(t, &Server{}, func(w http.ResponseWriter, _ *http.Request) {
		blocked <- w.(*response)
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 100_000))
		}
		done <- err
	}, plainGet)
	w := recv(t, "the handler", blocked)
	for late := time.Now().Add(patience); ; {
		w.c.mu.Lock()
		busy := w.c.write.busy
		w.c.mu.Unlock()
		if busy {
			break
		}
		if time.Now().After(late) {
			t.Fatal("the writer never waits")
		}
		<-time.After(time.Millisecond)
	}
	_ = w.SetWriteDeadline(past())
	if err := recv(t, "the end of the write", done); !isTimeout(err) {
		t.Errorf("error %v", err)
	}
}

func TestShortAnswerLeavesInOneSegmentWithItsHead(t *testing.T) {
	c, _ := onStream(t, &Server{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.(Conn).WriteNow([]byte("data: 1\n\n"))
		<-time.After(0)
	}, plainGet)
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil || !bytes.Contains(buf[:n], []byte("\r\n\r\n9\r\ndata: 1\n\n\r\n")) {
		t.Errorf("first bytes %q, %v", buf[:n], err)
	}
}
