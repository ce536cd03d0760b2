package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// row is what one relay came to: one entry a run.
type row struct {
	name         string
	small, event []time.Duration
	p50, p99     []time.Duration
	resident     int64
}

// results are a whole measurement.
type results struct {
	rows   []*row
	direct *row
	absent []string
	open   []openResult
	start  []time.Duration
	decide decideResult
}

// measureAll measures everything and writes it down.
func measureAll(ctx context.Context, s settings) error {
	place, err := os.MkdirTemp("", "speedbench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(place) }()
	engine, stopEngine, err := startEngine(ctx)
	if err != nil {
		return err
	}
	defer stopEngine()
	r, err := measureRelays(ctx, s, place, engine)
	if err != nil {
		return err
	}
	if r.start, err = startups(ctx, s, place, engine); err != nil {
		return err
	}
	if r.decide, err = decisions(ctx, s, place, engine); err != nil {
		return fmt.Errorf("decisions: %w", err)
	}
	for _, n := range s.open {
		fmt.Fprintf(os.Stderr, "%d open streams\n", n)
		o, err := openStreams(ctx, s, place, engine, n)
		if err != nil {
			return fmt.Errorf("%d open streams: %w", n, err)
		}
		r.open = append(r.open, o)
	}
	return write(ctx, s, r)
}

// startEngine starts the engine in a process of its own.
func startEngine(ctx context.Context) (address string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	if address, err = freeAddress(ctx); err != nil {
		return "", nil, err
	}
	p, err := start(ctx, self, "engine", address)
	if err != nil {
		return "", nil, err
	}
	if err := serves(ctx, address); err != nil {
		p.stop()
		return "", nil, errors.Join(err, errors.New(p.log.String()))
	}
	return address, p.stop, nil
}

func measureRelays(ctx context.Context, s settings, place, engine string) (*results, error) {
	peers, absent, err := startPeers(ctx, s, place, engine)
	defer func() {
		for _, p := range peers {
			p.stop()
		}
	}()
	if err != nil {
		return nil, err
	}
	r := &results{absent: absent, direct: &row{name: "none (engine asked directly)"}}
	for _, p := range peers {
		r.rows = append(r.rows, &row{name: p.name})
	}
	for n := range s.runs {
		for i, p := range peers {
			if err := measureOne(ctx, s, p, r.rows[i]); err != nil {
				return nil, err
			}
			last := len(r.rows[i].small) - 1
			fmt.Fprintf(os.Stderr, "run %d  %-26s small %7s  event %7s\n", n+1, p.name, r.rows[i].small[last], r.rows[i].event[last])
		}
		if err := measureDelays(ctx, s, peers, r, engine); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// measureOne measures one relay once, warmed up.
func measureOne(ctx context.Context, s settings, p *peer, to *row) error {
	if _, err := small(ctx, p, s.conns, max(s.conns, s.requests/10)); err != nil {
		return err
	}
	one, err := small(ctx, p, s.conns, s.requests)
	if err != nil {
		return err
	}
	if _, err := streams(ctx, p, s.streams, 1, false); err != nil {
		return err
	}
	many, err := streams(ctx, p, s.streams, s.rounds, false)
	if err != nil {
		return err
	}
	to.small, to.event = append(to.small, one.each), append(to.event, many.each)
	to.resident = max(to.resident, p.resident())
	return nil
}

// measureDelays measures how long events take from the engine to the caller, without a relay and with each.
func measureDelays(ctx context.Context, s settings, peers []*peer, r *results, engine string) error {
	if s.delayStreams == 0 {
		return nil
	}
	rows := append([]*row{r.direct}, r.rows...)
	for i, p := range append([]*peer{{name: "direct", address: engine}}, peers...) {
		d, err := streams(ctx, p, s.delayStreams, 2, true)
		if err != nil {
			return err
		}
		rows[i].p50, rows[i].p99 = append(rows[i].p50, d.at(0.5)), append(rows[i].p99, d.at(0.99))
	}
	return nil
}

// cpu is what the relay has used so far; without a relay nothing.
func (p *peer) cpu() (time.Duration, error) {
	if p.process == nil {
		return 0, nil
	}
	return p.process.cpu()
}

// startups measures how long admitd takes from its launch to its first answer, the engine being there.
func startups(ctx context.Context, s settings, place, engine string) (all []time.Duration, err error) {
	for range s.runs {
		address, err := freeAddress(ctx)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		p, err := startAdmitd(ctx, s.admitd, place, address, engine)
		if err != nil {
			return nil, err
		}
		err = answers(ctx, address)
		took := time.Since(began)
		p.stop()
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	return all, nil
}
