package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// spread is what one load came to.
type spread struct {
	// each is the relay's CPU time per request or event.
	each time.Duration
	// delays are sorted; empty where not asked for.
	delays []time.Duration
}

func (s spread) at(q float64) time.Duration {
	if len(s.delays) == 0 {
		return 0
	}
	return s.delays[min(len(s.delays)-1, int(q*float64(len(s.delays))))]
}

// small sends requests over some connections, each as soon as the one before is answered.
func small(ctx context.Context, p *peer, conns, requests int) (spread, error) {
	request := callOf(false, "hello there")
	return p.load(conns, requests, func(int) (int, []time.Duration, error) {
		c := &caller{address: p.address}
		defer c.close()
		for range requests / conns {
			if _, err := c.call(ctx, request, false); err != nil {
				return 0, nil, err
			}
		}
		return requests / conns, nil, nil
	})
}

// streams runs streams side by side, each some times over. They begin spread over one event's time.
func streams(ctx context.Context, p *peer, n, rounds int, timed bool) (spread, error) {
	request, every := callOf(true, "hello there"), spacing
	if timed {
		request, every = callOf(true, paceWord), pacedSpacing
	}
	return p.load(n, n*rounds*eventsPerStream, func(i int) (events int, delays []time.Duration, err error) {
		c := &caller{address: p.address}
		defer c.close()
		if err := pause(ctx, every*time.Duration(i)/time.Duration(n)); err != nil {
			return 0, nil, err
		}
		for range rounds {
			a, err := c.call(ctx, request, timed)
			if err != nil {
				return 0, nil, err
			}
			if a.events != eventsPerStream {
				return 0, nil, fmt.Errorf("%w: %d of %d events", errShort, a.events, eventsPerStream)
			}
			events += a.events
			delays = append(delays, a.delays...)
		}
		return events, delays, nil
	})
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// load runs n workers, and divides the CPU time that the relay used meanwhile by what they did.
func (p *peer) load(n, want int, work func(i int) (int, []time.Duration, error)) (spread, error) {
	before, err := p.cpu()
	if err != nil {
		return spread{}, err
	}
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		done  int
		all   []time.Duration
		first error
	)
	for i := range n {
		wg.Go(func() {
			did, delays, err := work(i)
			mu.Lock()
			defer mu.Unlock()
			done += did
			all = append(all, delays...)
			if first == nil && err != nil {
				first = fmt.Errorf("%s: %w", p.name, err)
			}
		})
	}
	wg.Wait()
	if first != nil {
		return spread{}, first
	}
	after, err := p.cpu()
	if err != nil {
		return spread{}, err
	}
	if done == 0 || done > want {
		return spread{}, fmt.Errorf("%s: %d of %d done", p.name, done, want)
	}
	slices.Sort(all)
	return spread{each: (after - before) / time.Duration(done), delays: all}, nil
}
