// Command speedbench measures what admitd costs beside other relays: CPU per small request and per streamed event, the
// delay that it adds, its memory with many open streams, and how long a decision takes.
//
// Goal: every number of docs/benchmarks.md comes out of one command, in one run, on one machine, with the peers named and
// the spread shown.
//
// Non-goals: judging policies; measuring engines; numbers that can be compared across machines.
//
// Invariants: all relays meet the same engine, the same client and the same requests; CPU is that of the relay's own
// processes, as the kernel accounts it; a peer that is not there is named as absent, never left out in silence.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

const usage = `speedbench engine ADDRESS                 an engine in memory
speedbench relay reverse-proxy|raw ADDRESS ENGINE
speedbench run [flags]                    measure, and write the tables`

// settings are the flags of run.
type settings struct {
	admitd, doc, router, command string
	runs, streams, requests      int
	rounds, conns, delayStreams  int
	open                         []int
	only                         string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "speedbench:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "engine":
		return serveEngine(ctx, args[1])
	case len(args) == 4 && args[0] == "relay" && args[1] == "reverse-proxy":
		return serveReverseProxy(ctx, args[2], args[3])
	case len(args) == 4 && args[0] == "relay" && args[1] == "raw":
		return serveRaw(ctx, args[2], args[3])
	case len(args) > 0 && args[0] == "run":
		s, err := parse(args[1:])
		if err != nil {
			return err
		}
		return measureAll(ctx, s)
	}
	return fmt.Errorf("unknown arguments; use\n%s", usage)
}

func parse(args []string) (settings, error) {
	s := settings{}
	open := ""
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	f.StringVar(&s.admitd, "admitd", "bin/admitd", "the admitd to measure")
	f.StringVar(&s.doc, "doc", "", "file whose part between the markers is replaced by the tables; empty prints them")
	f.StringVar(&s.router, "vllm-router", "", "a vllm-router program to measure beside the others")
	f.StringVar(&s.command, "command", "make bench-speed", "the command that the tables name")
	f.IntVar(&s.runs, "runs", 3, "how often everything is measured")
	f.IntVar(&s.streams, "streams", 32, "streams at once")
	f.IntVar(&s.rounds, "rounds", 10, "how often each stream is repeated; 100 events each")
	f.IntVar(&s.conns, "conns", 8, "connections for small requests")
	f.IntVar(&s.requests, "requests", 16000, "small requests in all")
	f.IntVar(&s.delayStreams, "delay-streams", 100, "streams at once while the added delay is measured; 0 leaves it out")
	f.StringVar(&open, "open", "1000,9500", "numbers of open streams whose memory is measured; empty leaves it out")
	f.StringVar(&s.only, "only", "", "measure only these relays, comma-separated; direct and admitd are always there")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	for word := range strings.SplitSeq(open, ",") {
		n := 0
		if word == "" {
			continue
		}
		if _, err := fmt.Sscanf(word, "%d", &n); err != nil {
			return s, fmt.Errorf("-open: %q is no number", word)
		}
		s.open = append(s.open, n)
	}
	if s.runs < 1 || s.streams < 1 || s.rounds < 1 || s.conns < 1 || s.requests < s.conns {
		return s, errors.New("runs, streams, rounds and conns must be at least 1, requests at least conns")
	}
	return s, nil
}

// spacing is the time between two events of a stream, pacedSpacing the same while delays are measured: at 5 ms a hundred
// streams would measure how two cores queue. eventsPerStream is how many there are.
const (
	spacing         = 5 * time.Millisecond
	pacedSpacing    = 20 * time.Millisecond
	eventsPerStream = 100
)
