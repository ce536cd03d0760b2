package handover

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"admitd/gate/admission"
	"admitd/gate/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t *testing.T) (ours, theirs *Link) {
	t.Helper()
	ours, f, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err = Open(f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

func outcome(seq uint64, id string) journal.Entry {
	return journal.Entry{Seq: seq, At: time.Unix(int64(seq), 0).UTC(), Kind: journal.KindOutcome, Outcome: &journal.Outcome{ID: id, Ending: "whole"}}
}

func TestMessagesArriveAsTheyWereSent(t *testing.T) {
	ours, theirs := pair(t)
	many := make([]journal.Entry, 3000) // more than a socket's buffer holds
	for i := range many {
		many[i] = outcome(uint64(i+1), strings.Repeat("x", 100))
	}
	for _, m := range []Message{
		{Kind: Hello, Listen: "127.0.0.1:1", Policy: &Policy{Text: []byte("policy: x\n"), Source: "api"}},
		{Kind: Commit, Flights: []admission.Reservation{{ID: "a", Tenant: "t", AdmittedAt: time.Unix(5, 0).UTC(), ReservedTokens: 7, Sequences: 2}}, Past: many},
		{Kind: End},
	} {
		sent := make(chan error, 1)
		go func() { sent <- ours.Send(m) }()
		got, err := theirs.Expect(m.Kind)
		if err != nil || <-sent != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestRefusalComesWithItsReasonAndADeadPeerAsAnEnd(t *testing.T) {
	ours, theirs := pair(t)
	if err := theirs.Send(Message{Kind: Failed, Text: "no such model"}); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Expect(Ready); err == nil || err.Error() != "no such model" {
		t.Error(err)
	}
	if err := theirs.Send(Message{Kind: Ready}); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Expect(Prepared); err == nil || !strings.Contains(err.Error(), "expected prepared") || !strings.Contains(err.Error(), "got ready") {
		t.Error(err)
	}
	theirs.Close()
	if _, err := ours.Expect(Ready); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func seqs(entries []journal.Entry) (out []uint64) {
	for _, e := range entries {
		out = append(out, e.Seq)
	}
	return out
}

func TestForwardedEntriesAreGivenUpOnlyWhenAcknowledged(t *testing.T) {
	ours, theirs := pair(t)
	f := NewForwarder(ours)
	f.Take(outcome(1, "a"))
	f.Take(outcome(2, "b"))
	ended := make(chan error, 1)
	go func() { ended <- f.Run() }()
	f.Take(outcome(3, "c"))
	for n := uint64(1); n <= 3; n++ {
		m, err := theirs.Expect(Entry)
		if err != nil || m.Seq != n || m.Entry.Seq != n {
			t.Fatalf("%+v %v", m, err)
		}
	}
	if got := f.Left(); !slices.Equal(seqs(got), []uint64{1, 2, 3}) {
		t.Errorf("nothing is acknowledged, left %v", seqs(got))
	}
	if err := theirs.Send(Message{Kind: Ack, Seq: 3}); err != nil {
		t.Fatal(err)
	}
	f.Finish()
	if _, err := theirs.Expect(End); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil || len(f.Left()) > 0 {
		t.Errorf("%v, left %v", err, seqs(f.Left()))
	}
}

func TestEntriesOfASuccessorThatDiesAreGivenBackInOrder(t *testing.T) {
	ours, theirs := pair(t)
	f := NewForwarder(ours)
	for n := uint64(1); n <= 4; n++ {
		f.Take(outcome(n, "x"))
	}
	ended := make(chan error, 1)
	go func() { ended <- f.Run() }()
	for range 4 {
		if _, err := theirs.Expect(Entry); err != nil {
			t.Fatal(err)
		}
	}
	if err := theirs.Send(Message{Kind: Ack, Seq: 2}); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if err := <-ended; err == nil {
		t.Error("its death was not told")
	}
	f.Take(outcome(5, "late"))
	if got := f.Left(); !slices.Equal(seqs(got), []uint64{3, 4, 5}) {
		t.Errorf("left %v", seqs(got))
	}
}

func TestAnswerThatIsNoAcknowledgementEndsTheForwarding(t *testing.T) {
	ours, theirs := pair(t)
	f := NewForwarder(ours)
	ended := make(chan error, 1)
	go func() { ended <- f.Run() }()
	if err := theirs.Send(Message{Kind: Hello}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "hello") {
		t.Error(err)
	}
}
