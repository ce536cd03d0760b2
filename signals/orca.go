package signals

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ORCAHeader is where an engine reports its load beside an answer: Open Request Cost Aggregation, the load report of the xDS
// protocols (orca_load_report.proto) as a header.
const ORCAHeader = "Endpoint-Load-Metrics"

// maxORCA bounds the header that is read, in bytes.
const maxORCA = 4096

// ORCA is a load report that came with an answer. vLLM sends one with answers that do not stream, to a request that carries
// endpoint-load-metrics-format: TEXT or JSON; admitd never asks for it by itself, because vLLM walks all of its metrics and
// writes a log line for each.
type ORCA struct {
	// KVUsed is the fraction, 0 to 1, of the KV cache held by live requests, of the fullest rank; nil when not told.
	KVUsed *float64
	// Waiting is the number of requests queued in the engine, over all ranks; nil when not told.
	Waiting *float64
	// Ranks is how many data-parallel ranks the report tells of. The JSON form has room for one only, whatever there are.
	Ranks int
}

// ParseORCA reads the load report of an answer; ok is false when there is none, or none of its numbers can be used.
func ParseORCA(h http.Header) (o ORCA, ok bool) {
	values := h[ORCAHeader]
	if len(values) == 0 || len(values[0]) > maxORCA {
		return ORCA{}, false
	}
	form, body, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
	switch {
	case strings.EqualFold(form, "TEXT"):
		for part := range strings.SplitSeq(body, ",") {
			name, text, _ := strings.Cut(strings.TrimSpace(part), "=")
			if v, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil {
				o.take(strings.TrimPrefix(strings.TrimSpace(name), "named_metrics."), v)
			}
		}
	case strings.EqualFold(form, "JSON"):
		var said struct {
			Named map[string]float64 `json:"named_metrics"`
		}
		if json.Unmarshal([]byte(body), &said) != nil {
			return ORCA{}, false
		}
		for name, v := range said.Named {
			o.take(name, v)
		}
	}
	return o, o.KVUsed != nil || o.Waiting != nil
}

// take adds one number; the second of a name is another rank's.
func (o *ORCA) take(name string, v float64) {
	if implausible(v) != "" {
		return
	}
	switch name {
	case "kv_cache_usage_perc":
		if v > 1 {
			return
		}
		o.Ranks++
		if o.KVUsed != nil {
			v = math.Max(v, *o.KVUsed)
		}
		o.KVUsed = &v
	case "num_requests_waiting":
		if o.Waiting != nil {
			v += *o.Waiting
		}
		o.Waiting = &v
	}
}

// orcaSource is the source of a reading that came with an answer.
const orcaSource = "orca:kv_cache_usage_perc"

// offer puts a report's KV use in the place of an older reading; nil when it is of no use. Only KV use: the ledger corrects the
// queues from running and waiting of one instant, and a report tells but one of them.
func (c *core) offer(o ORCA, at time.Time) *Snapshot {
	old := c.snap.signals[KVUsed]
	if o.KVUsed == nil || o.Ranks != c.kvRanks || !old.Present() || !at.After(old.At) || c.snap.Failures > 0 || c.engine != engineVLLM {
		return nil
	}
	meta := *c.snap
	readings := make([]Signal, 0, len(meta.signals))
	for _, s := range meta.signals {
		if s.Name == KVUsed {
			s.Value, s.At, s.Source, s.State, s.Why = *o.KVUsed, at, orcaSource, Live, ""
		}
		readings = append(readings, s)
	}
	c.snap = NewSnapshot(meta, readings...)
	return c.snap
}

// Offer takes a load report that came with an answer of the engine at the time at. It counts only beside a good scrape of the
// same engine, so that what an engine said before it was replaced does not outlive it. Any goroutine.
func (s *Scraper) Offer(o ORCA, at time.Time) {
	s.mu.Lock()
	snap := s.core.offer(o, at)
	if snap != nil {
		s.latest.Store(snap)
	}
	s.mu.Unlock()
	if snap != nil {
		s.o.OnSnapshot(snap)
	}
}
