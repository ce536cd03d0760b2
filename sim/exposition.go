package sim

import (
	"bytes"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"
)

// histogram counts observations in buckets with the given upper bounds.
type histogram struct {
	bounds []float64
	counts []uint64
	sum    float64
	n      uint64
}

func newHistogram(bounds ...float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds))}
}

func (h *histogram) observe(v float64) {
	h.n++
	h.sum += v
	for i, b := range h.bounds {
		if v <= b {
			h.counts[i]++
			return
		}
	}
}

func (h *histogram) copy() *histogram {
	c := *h
	c.counts = append([]uint64(nil), h.counts...)
	return &c
}

// row is one series of a family: label pairs (name, value, name, value ...) and its value.
type row struct {
	labels []string
	value  float64
}

// exposition writes the text format the way Python's client does: sorted labels, floats with a point, and a
// *_created gauge beside every counter and histogram.
type exposition struct {
	buf bytes.Buffer
	// base are labels of every series of the engine's own families; created is their *_created value.
	base    []string
	created float64
	// bare leaves samples out; nan makes gauges NaN; skip names a family to leave out.
	bare, nan bool
	skip      string
	// plain leaves the *_created families out.
	plain bool
	// names are wire names that differ; rankLabel, when set, is the label by which samples are spread over two ranks.
	names     map[string]string
	rankLabel string
}

func (x *exposition) head(name, typ, help string) {
	name = x.wire(name)
	fmt.Fprintf(&x.buf, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, typ)
}

// wire is the name under which a metric appears.
func (x *exposition) wire(name string) string {
	if other, ok := x.names[name]; ok {
		return other
	}
	return name
}

func (x *exposition) sample(name string, labels []string, v float64) {
	if x.bare {
		return
	}
	x.buf.WriteString(x.wire(name))
	if len(labels) > 0 {
		pairs := make([]string, 0, len(labels)/2)
		for i := 0; i+1 < len(labels); i += 2 {
			pairs = append(pairs, labels[i]+"="+strconv.Quote(labels[i+1]))
		}
		sort.Strings(pairs)
		x.buf.WriteString("{" + strings.Join(pairs, ",") + "}")
	}
	x.buf.WriteString(" " + pyFloat(v) + "\n")
}

func (x *exposition) with(labels ...string) []string {
	return append(append([]string(nil), x.base...), labels...)
}

// gauge writes one family; rows carry their complete labels.
func (x *exposition) gauge(name, help string, rows ...row) {
	if name == x.skip {
		return
	}
	x.head(name, "gauge", help)
	for _, r := range rows {
		v := r.value
		if x.nan && !strings.HasSuffix(name, "_info") {
			v = math.NaN()
		}
		for _, one := range x.rank(name, r.labels, v) {
			x.sample(name, one.labels, one.value)
		}
	}
}

// counter writes the family name_total and, unless plain, name_created.
func (x *exposition) counter(name, help string, rows ...row) {
	x.head(name+"_total", "counter", help)
	for _, r := range rows {
		for _, one := range x.rank(name+"_total", r.labels, r.value) {
			x.sample(name+"_total", one.labels, one.value)
		}
	}
	x.createdRows(name, help, rows)
}

func (x *exposition) createdRows(name, help string, rows []row) {
	if x.plain || len(rows) == 0 {
		return
	}
	x.head(name+"_created", "gauge", help)
	for _, r := range rows {
		x.sample(name+"_created", r.labels, x.created)
	}
}

func (x *exposition) buckets(name string, labels []string, h *histogram) {
	sum := uint64(0)
	for i, b := range h.bounds {
		sum += h.counts[i]
		x.sample(name+"_bucket", append(append([]string(nil), labels...), "le", pyFloat(b)), float64(sum))
	}
	x.sample(name+"_bucket", append(append([]string(nil), labels...), "le", "+Inf"), float64(h.n))
	x.sample(name+"_count", labels, float64(h.n))
	x.sample(name+"_sum", labels, h.sum)
}

func (x *exposition) histogram(name, help string, labels []string, h *histogram) {
	x.head(name, "histogram", help)
	x.buckets(name, labels, h)
	x.createdRows(name, help, []row{{labels: labels}})
}

// pyFloat formats a float as Python's Prometheus client does: like repr, but with an exponent from 1e6 on.
func pyFloat(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	}
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	dot := strings.IndexByte(s, '.')
	if v > 0 && dot > 6 {
		mantissa := strings.TrimRight(s[:1]+"."+s[1:dot]+s[dot+1:], "0.")
		return fmt.Sprintf("%se+%02d", mantissa, dot-1)
	}
	return s
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
