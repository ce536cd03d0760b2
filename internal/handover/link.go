// Package handover is the talk of two admitds during an upgrade: the one that serves, and its successor, which it has started.
//
// Goal: one ordered stream of messages each way over an inherited socket, so that at every moment exactly one of the two
// answers for the engine, the listeners, the books and the record.
//
// Non-goals: what the messages make the two do (package app), passing descriptors (package sockets).
//
// Invariants: until the successor says Serving the predecessor can go on as if nothing had happened; an entry of the record
// stays the predecessor's until it is acknowledged; what is sent holds no prompt text and no key.
//
// The order, predecessor to successor on the left:
//
//	Hello                      the addresses, the policy and the engine that run
//	               Prepared    configuration read, folders and listeners taken, the engine is one to adopt, nothing begun
//	Take                       the predecessor no longer supervises: the engine may be adopted
//	               Ready       adopted, and the gate would open
//	Commit                     with the requests in flight, and what the record has gained since Hello
//	               Serving     the successor accepts; the predecessor stops accepting
//	Entry, Flights ...         what becomes of the predecessor's requests
//	               Ack ...
//	End                        nothing is left; the predecessor exits
//
// The successor says Failed, with the reason, instead of any of its first three messages. Whoever sees the socket closed
// before Serving knows that the upgrade is off.
package handover

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"admitd/gate/admission"
	"admitd/gate/journal"
)

// Kind says what a message is.
type Kind string

// The kinds; the package documentation has their order.
const (
	Hello    Kind = "hello"
	Prepared Kind = "prepared"
	Take     Kind = "take"
	Ready    Kind = "ready"
	Commit   Kind = "commit"
	Serving  Kind = "serving"
	Failed   Kind = "failed"
	Entry    Kind = "entry"
	Flights  Kind = "flights"
	Ack      Kind = "ack"
	End      Kind = "end"
)

// Message is one message. Which fields are set depends on Kind.
type Message struct {
	Kind Kind `json:"kind"`
	// Text is the reason of Failed, for people.
	Text string `json:"text,omitempty"`
	// Listen and AdminListen, of Hello, are the addresses as they were configured.
	Listen      string `json:"listen,omitempty"`
	AdminListen string `json:"admin_listen,omitempty"`
	// Settings, of Hello, are the hashes of the settings that the engine was launched by, under their names.
	Settings map[string]string `json:"settings,omitempty"`
	// PID, of Hello and Take, is the engine's first process; 0 when none runs. The successor adopts that one, or fails.
	PID int `json:"pid,omitempty"`
	// Policy, of Hello, is the running policy.
	Policy *Policy `json:"policy,omitempty"`
	// Open, of Take, says whether the predecessor's gate is open, so that the successor's has to be before it is Ready.
	Open bool `json:"open,omitempty"`
	// Flights are the predecessor's requests at the engine: all of them with Commit, those that moved later.
	Flights []admission.Reservation `json:"flights,omitempty"`
	// Past, of Commit, are entries that the predecessor has written to the record since Hello.
	Past []journal.Entry `json:"past,omitempty"`
	// Entry is one that the successor is to write; Seq, of Ack, is the number it came with.
	Entry *journal.Entry `json:"entry,omitempty"`
	Seq   uint64         `json:"seq,omitempty"`
}

// Policy is a running policy: its text, the file it was read from, "" for none, and who put it in place.
type Policy struct {
	Text   []byte `json:"text"`
	File   string `json:"file"`
	Source string `json:"source"`
}

// sendWithin is how long the other side may take to make room for a message before it counts as gone.
const sendWithin = 30 * time.Second

// maxMessage bounds one message, in bytes: a Commit has thousands of entries.
const maxMessage = 256 << 20

// Link is one end. Send may be called from several goroutines, Receive from one.
type Link struct {
	conn net.Conn
	in   *bufio.Reader
	mu   sync.Mutex
}

// Pair makes a link and the descriptor of its other end, for the successor.
func Pair() (*Link, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the sockets for an upgrade: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "control")
	ours, err := Open(os.NewFile(uintptr(fds[0]), "control"))
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// Open makes a link of an inherited descriptor and closes the file.
func Open(f *os.File) (*Link, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	return &Link{conn: c, in: bufio.NewReaderSize(c, 64<<10)}, nil
}

// Send sends one message. An error means that the other side is gone.
func (l *Link) Send(m Message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Kind, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.conn.SetWriteDeadline(time.Now().Add(sendWithin))
	if _, err := l.conn.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	return nil
}

// Receive waits for the next message. io.EOF means that the other side has closed or ended.
func (l *Link) Receive() (Message, error) {
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) && len(line) <= maxMessage {
			continue
		}
		if errors.Is(err, unix.ECONNRESET) {
			err = io.EOF
		}
		if err != nil {
			return Message{}, err
		}
		break
	}
	var m Message
	if err := json.Unmarshal(line, &m); err != nil {
		return Message{}, fmt.Errorf("decode a message of an upgrade: %w", err)
	}
	return m, nil
}

// Expect waits for a message of one kind. Failed becomes an error with its text, any other kind an error that names both.
func (l *Link) Expect(kind Kind) (Message, error) {
	m, err := l.Receive()
	switch {
	case err != nil:
		return m, err
	case m.Kind == Failed:
		return m, errors.New(m.Text)
	case m.Kind != kind:
		return m, fmt.Errorf("expected %s in the talk of an upgrade, got %s", kind, m.Kind)
	}
	return m, nil
}

// Close closes our end; a Receive that waits ends.
func (l *Link) Close() { _ = l.conn.Close() }
