package gate

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"admitd/gate/admission"
	"admitd/gate/dialect"
	"admitd/gate/journal"
	"admitd/gate/reason"
)

const (
	// helperLabel is the class of helper calls in metrics and journal: they have no SLO class.
	helperLabel = "helper"
	// noneLabel is the class of arrivals that were refused before they had one.
	noneLabel = "none"
	// otherLabel stands for a value outside the bounded set; seeing it is a defect.
	otherLabel = "other"
)

// metrics are the gate's own. Every label has a bounded set of values: verdicts, the reason catalogue, endings and
// the configured classes.
type metrics struct {
	decisions *prometheus.CounterVec
	deciding  prometheus.Histogram
	ttft      *prometheus.HistogramVec
	tpot      *prometheus.HistogramVec
	outcomes  *prometheus.CounterVec
	estimate  prometheus.Histogram
	classes   map[string]bool
	// admitted and whole are the series that nearly every request counts in, by class: looking one up costs more than
	// counting. They are made when they are first needed, so that a scrape shows no class that nobody used.
	admitted, whole map[string]*series
}

// series is a counter that exists once something was counted.
type series struct {
	c atomic.Pointer[prometheus.Counter]
}

func (s *series) inc(v *prometheus.CounterVec, labels ...string) {
	if c := s.c.Load(); c != nil {
		(*c).Inc()
		return
	}
	c := v.WithLabelValues(labels...)
	c.Inc()
	s.c.Store(&c)
}

func newMetrics(reg prometheus.Registerer, pools []*Pool, classes map[string]SLO) (*metrics, error) {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "admitd_decisions_total",
			Help: "Arrivals decided, by verdict, reason and SLO class."}, []string{"verdict", "reason", "class"}),
		deciding: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "admitd_decision_seconds",
			Help:    "Time that a decision took, time held and time on the network not counted.",
			Buckets: prometheus.ExponentialBuckets(5e-6, 2, 14)}),
		ttft: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "admitd_ttft_seconds",
			Help:    "Time from arrival to the first output token of admitted streams, time held counted.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14)}, []string{"class"}),
		tpot: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "admitd_tpot_seconds",
			Help:    "Mean time between output tokens of admitted streams.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 12)}, []string{"class"}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "admitd_outcomes_total",
			Help: "Admitted arrivals that ended, by ending and SLO class."}, []string{"ending", "class"}),
		estimate: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "admitd_estimate_error_ratio",
			Help:    "Estimated prompt tokens over the engine's own count; 1 is exact.",
			Buckets: []float64{0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.5, 2, 4, 8}}),
		classes:  map[string]bool{noneLabel: true, helperLabel: true},
		admitted: map[string]*series{}, whole: map[string]*series{},
	}
	for c := range classes {
		m.classes[c] = true
	}
	for c := range m.classes {
		m.admitted[c], m.whole[c] = &series{}, &series{}
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range append(bookGauges(pools), m.decisions, m.deciding, m.ttft, m.tpot, m.outcomes, m.estimate) {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// bookGauges read the controllers' books when they are scraped, summed over the pools.
func bookGauges(pools []*Pool) []prometheus.Collector {
	sum := func(of func(admission.Digest) int) func() float64 {
		return func() float64 {
			n := 0
			for _, p := range pools {
				n += of(p.Admission.Dump(admission.Totals))
			}
			return float64(n)
		}
	}
	gauge := func(name, help string, of func(admission.Digest) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, sum(of))
	}
	return []prometheus.Collector{
		gauge("admitd_inflight", "Admitted requests that have not ended.", func(d admission.Digest) int { return d.InFlight }),
		gauge("admitd_held", "Requests that wait inside the gate.", func(d admission.Digest) int { return d.Held }),
		gauge("admitd_reserved_tokens", "Tokens set aside for requests in flight.", func(d admission.Digest) int { return d.ReservedTokens }),
	}
}

func (m *metrics) class(name string) string {
	switch {
	case name == "":
		return noneLabel
	case m.classes[name]:
		return name
	}
	return otherLabel
}

func (m *metrics) decided(d *journal.Decision) {
	m.deciding.Observe(float64(d.DecideUS) / 1e6)
	if s := m.admitted[d.Class]; s != nil && d.Verdict == reason.VerdictAdmit && d.Reason == reason.OK {
		s.inc(m.decisions, d.Verdict, string(d.Reason), d.Class)
		return
	}
	code := string(d.Reason)
	if _, ok := reason.Lookup(d.Reason); !ok {
		code = otherLabel
	}
	m.decisions.WithLabelValues(d.Verdict, code, m.class(d.Class)).Inc()
}

func (m *metrics) ended(o *journal.Outcome, class string) {
	class = m.class(class)
	if s := m.whole[class]; s != nil && o.Ending == string(dialect.EndWhole) {
		s.inc(m.outcomes, o.Ending, class)
	} else {
		m.outcomes.WithLabelValues(o.Ending, class).Inc()
	}
	if o.TTFTMS != nil {
		m.ttft.WithLabelValues(class).Observe(*o.TTFTMS / 1000)
	}
	if o.TPOTMS != nil {
		m.tpot.WithLabelValues(class).Observe(*o.TPOTMS / 1000)
	}
}

// estimated compares a prompt estimate with the engine's count, where there is one.
func (m *metrics) estimated(estimate int, counted *int) {
	if counted != nil && *counted > 0 && estimate > 0 {
		m.estimate.Observe(float64(estimate) / float64(*counted))
	}
}
