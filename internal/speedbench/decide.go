package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// viewers is how many watch the dashboard's stream, stalledViewers how many of them read nothing of it.
	viewers, stalledViewers = 50, 10
	// decideRounds is how often decisions are read back, perRound how many requests come before each time.
	decideRounds, perRound = 8, 1000
)

// decideResult is how long admitd's decisions took, as its record says, sorted: alone, and with viewers.
type decideResult struct{ alone, watched []time.Duration }

var errNoDecisions = errors.New("admitd told no decisions")

// decisions sends one request after the other and reads from the record how long each decision took.
func decisions(ctx context.Context, s settings, place, engine string) (r decideResult, err error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return r, err
	}
	admin, err := freeAddress(ctx)
	if err != nil {
		return r, err
	}
	proc, err := startAdmitdAt(ctx, s.admitd, place, address, admin, engine)
	if err != nil {
		return r, err
	}
	defer proc.stop()
	p := &peer{name: "admitd", address: address, process: proc}
	if err := serves(ctx, address); err != nil {
		return r, err
	}
	if _, err := decided(ctx, p, admin, 1); err != nil {
		return r, err
	}
	if r.alone, err = decided(ctx, p, admin, decideRounds); err != nil {
		return r, err
	}
	stop, err := watch(ctx, admin)
	defer stop()
	if err != nil {
		return r, err
	}
	r.watched, err = decided(ctx, p, admin, decideRounds)
	return r, err
}

// decided sends requests and returns how long their decisions took.
func decided(ctx context.Context, p *peer, admin string, rounds int) (all []time.Duration, err error) {
	for range rounds {
		if _, err := small(ctx, p, 1, perRound); err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/api/v1/decisions?limit="+strconv.Itoa(perRound), nil)
		if err != nil {
			return nil, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, decideTimes(body)...)
	}
	if len(all) < rounds*perRound/2 {
		return nil, fmt.Errorf("%w: %d", errNoDecisions, len(all))
	}
	slices.Sort(all)
	return all, nil
}

// decideTimes finds what the decisions in a body say.
func decideTimes(body []byte) (all []time.Duration) {
	const name = `"decide_us":`
	for {
		i := bytes.Index(body, []byte(name))
		if i < 0 {
			return all
		}
		body = body[i+len(name):]
		text := strings.TrimSpace(string(body[:min(len(body), 20)]))
		if end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
			text = text[:end]
		}
		if us, err := strconv.Atoi(text); err == nil {
			all = append(all, time.Duration(us)*time.Microsecond)
		}
	}
}

// watch opens the viewers. stop lets all go.
func watch(ctx context.Context, admin string) (stop func(), err error) {
	var conns []net.Conn
	stop = func() { closeAll(conns) }
	for i := range viewers {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", admin)
		if err != nil {
			return stop, err
		}
		conns = append(conns, c)
		if _, err := io.WriteString(c, "GET /api/v1/stream HTTP/1.1\r\nHost: "+admin+"\r\n\r\n"); err != nil {
			return stop, err
		}
		if i >= stalledViewers {
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}
	return stop, nil
}

// writeDecisions puts a sentence about them into the tables.
func writeDecisions(b *strings.Builder, r decideResult) {
	if len(r.alone) == 0 {
		return
	}
	at := func(all []time.Duration, q float64) int64 { return spread{delays: all}.at(q).Microseconds() }
	fmt.Fprintf(b, "A decision takes %d µs at the median and %d µs at the 99th percentile of %d; with %d viewers of the live stream, %d of whom read nothing, "+
		"%d µs and %d µs. Requests come one after the other.\n\n", at(r.alone, 0.5), at(r.alone, 0.99), len(r.alone), viewers, stalledViewers,
		at(r.watched, 0.5), at(r.watched, 0.99))
}
