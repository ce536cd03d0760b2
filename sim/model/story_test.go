package model

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// story is the state of one script: commands act on one engine and print what happened.
type story struct {
	e   *Engine
	now time.Duration
}

// TestStory runs the scripts in testdata/story. Prefixes are named: requests with the same "share" have the same
// beginning; one without shares nothing.
func TestStory(t *testing.T) {
	datadriven.Walk(t, "testdata/story", func(t *testing.T, path string) {
		var s story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(t, d)
			if err := s.e.Check(); err != nil {
				d.Fatalf(t, "%v", err)
			}
			return out
		})
	})
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "engine":
		return s.engine(t, d)
	case "submit":
		return s.submit(t, d)
	case "leave":
		var id int
		d.ScanArgs(t, "id", &id)
		if !s.e.Cancel(s.now, ID(id)) {
			return "not in flight\n"
		}
		return s.state()
	case "run":
		var until string
		d.ScanArgs(t, "until", &until)
		to, err := time.ParseDuration(until)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.now = to
		return tell(s.e.Advance(to), d.HasArg("tokens")) + s.state()
	case "drain":
		var events []Event
		for {
			at, ok := s.e.Next()
			if !ok {
				break
			}
			s.now = max(s.now, at)
			events = append(events, s.e.Advance(at)...)
		}
		return tell(events, d.HasArg("tokens")) + s.state()
	}
	d.Fatalf(t, "unknown command %q", d.Cmd)
	return ""
}

func (s *story) engine(t *testing.T, d *datadriven.TestData) string {
	p := Profile{Name: "plain", BaseMS: 10, PerPrefillTokenMS: 1, PerDecodeMS: 1}
	c := Config{Profile: p}
	for _, a := range d.CmdArgs {
		into := map[string]*int{
			"blocks": &c.Blocks, "block": &c.BlockTokens, "slots": &c.MaxSeqs, "batch": &c.MaxBatchedTokens,
			"len": &c.MaxModelLen, "in-flight": &c.MaxInFlight,
		}[a.Key]
		switch {
		case a.Key == "partial":
			c.AdmitPartialPrompt = true
		case into == nil:
			d.Fatalf(t, "unknown argument %q", a.Key)
		default:
			d.ScanArgs(t, a.Key, into)
		}
	}
	e, err := New(c)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	s.e, s.now = e, 0
	return ""
}

func (s *story) submit(t *testing.T, d *datadriven.TestData) string {
	var id, prompt, out, natural int
	share := ""
	d.ScanArgs(t, "id", &id)
	d.ScanArgs(t, "prompt", &prompt)
	d.ScanArgs(t, "out", &out)
	d.MaybeScanArgs(t, "natural", &natural)
	d.MaybeScanArgs(t, "share", &share)
	blocks := (prompt + out) / s.e.Config().BlockTokens
	salt := uint64(id) + 1000
	if share != "" {
		salt = 0
		for _, b := range []byte(share) {
			salt = mix(salt ^ uint64(b))
		}
	}
	c := NewChain(salt, 1)
	for i := range blocks {
		c.Add(uint32(i))
	}
	err := s.e.Submit(s.now, Request{ID: ID(id), PromptTokens: prompt, MaxTokens: out, NaturalTokens: natural, Prefix: c.Hashes()})
	if errors.Is(err, ErrQueueFull) {
		return "refused: " + err.Error() + "\n"
	}
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return ""
}

// tell writes events as sentences; tokens after the first only when asked for.
func tell(events []Event, tokens bool) string {
	var b strings.Builder
	for _, ev := range events {
		what := ""
		switch ev.Kind {
		case Scheduled:
			what = fmt.Sprintf("starts, %d tokens cached", ev.Cached)
			if ev.Again {
				what = fmt.Sprintf("starts again after %d tokens", ev.Tokens)
			}
		case Token:
			if ev.Tokens > 1 && !tokens {
				continue
			}
			what = fmt.Sprintf("token %d", ev.Tokens)
		case Preempted:
			what = fmt.Sprintf("preempted after %d tokens", ev.Tokens)
		case Finished:
			what = fmt.Sprintf("ends: %s after %d tokens", ev.Reason, ev.Tokens)
		}
		fmt.Fprintf(&b, "%6s  %d %s\n", ev.At, ev.ID, what)
	}
	return b.String()
}

func (s *story) state() string {
	st := s.e.Stats()
	return fmt.Sprintf("at %s: %d run, %d wait; blocks: %d used, %d cached, %d free\n", s.now, st.Running, st.Waiting, st.Used, st.Cached, st.Free)
}
