package handover

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// heard is a connection on which a text has come; what is said on it is kept.
type heard struct {
	net.Conn
	in  io.Reader
	out bytes.Buffer
}

func (h *heard) Read(p []byte) (int, error)  { return h.in.Read(p) }
func (h *heard) Write(p []byte) (int, error) { return h.out.Write(p) }

// SetWriteDeadline implements net.Conn; nothing here waits.
func (h *heard) SetWriteDeadline(time.Time) error { return nil }

func linkOf(text []byte) (*Link, *heard) {
	h := &heard{in: bytes.NewReader(text)}
	// The smallest buffer there is, so that messages are larger than it.
	return &Link{conn: h, in: bufio.NewReaderSize(h, 16)}, h
}

// Whatever the other admitd says: each line is one message or one error, and a message that is passed on stays the same.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"kind":"hello","listen":"127.0.0.1:1","policy":{"text":"cG9saWN5OiBhZG1pdC1hbGwK"}}` + "\n" + `{"kind":"failed","text":"no"}` + "\n"))
	f.Add([]byte(`{"kind":"commit","open":true,"flights":[{"ID":"a","Tenant":"t"}],"past":[{"seq":1,"kind":"event","event":{"name":"start"}}]}` + "\n"))
	f.Add([]byte(`{"kind":"entry","seq":7,"entry":{"kind":"outcome","outcome":{"id":"a","ttft_ms":1.5}}}` + "\n{\n\n[]\nnull\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		link, _ := linkOf(text)
		for range bytes.Count(text, []byte("\n")) {
			m, err := link.Receive()
			if errors.Is(err, io.EOF) {
				t.Fatal("the end comes before the last line")
			}
			if err != nil {
				continue
			}
			from, said := linkOf(nil)
			if err := from.Send(m); err != nil {
				t.Fatalf("%+v cannot be sent: %v", m, err)
			}
			to, _ := linkOf(said.out.Bytes())
			again, err := to.Receive()
			if err != nil {
				b, _ := json.Marshal(m)
				t.Fatalf("%s: %v", b, err)
			}
			if d := cmp.Diff(m, again, cmpopts.EquateEmpty()); d != "" {
				t.Fatal(d)
			}
			if m, err := to.Expect(Hello); err == nil {
				t.Fatalf("a message from nowhere: %+v", m)
			}
		}
		if m, err := link.Receive(); err == nil {
			t.Fatalf("half a line was taken for a message: %+v", m)
		}
	})
}
