package signals

import (
	"bytes"
	"math"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"admitd/test/seeds"
)

// What the library reads on a page, whole and with all that it declares, we read the same, or say that it is broken.
func FuzzPage(f *testing.F) {
	for _, b := range seeds.Files(f, "testdata/vllm-0.32.0/*.txt") {
		f.Add(essence(b))
	}
	f.Add([]byte("# HELP vllm:num_requests_running n\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\"} 3 1796043521\n"))
	f.Add([]byte("# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total{a=\"\\\\\\\"} \",b=\"}\"} +Inf\n# TYPE x histogram\nx_bucket{le=\"1\"} 2\n"))
	f.Add([]byte("# TYPE sglang:num_queue_reqs gauge\n\tsglang:num_queue_reqs  { dp_rank = \"1\" , } 5 \r\n"))
	want := wantedNames()
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := parsePage(body, false, want)
		if err != nil {
			if len(p.families) != 0 {
				t.Fatalf("%v, and still %d families", err, len(p.families))
			}
			return
		}
		theirs, err := parseWhole(body)
		if err != nil {
			return // ours reads what engines send beyond the library's grammar
		}
		for name := range want {
			mf := theirs[name]
			if mf == nil || mf.GetType() == dto.MetricType_HISTOGRAM || mf.GetType() == dto.MetricType_SUMMARY {
				continue
			}
			ours, found := p.families[name]
			if !found {
				t.Fatalf("%q: the library finds %s, we do not", body, name)
			}
			if ours.broken == "" && !same(ours, mf) {
				t.Fatalf("%q: %s is %v to us, %v to the library", body, name, ours.series, mf.GetMetric())
			}
		}
	})
}

func parseWhole(body []byte) (fams map[string]*dto.MetricFamily, err error) {
	defer func() {
		if recover() != nil {
			err = errNotAPage
		}
	}()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(bytes.NewReader(body))
}

// same compares series by their labels; one that the library has twice we have once.
func same(ours family, theirs *dto.MetricFamily) bool {
	values := map[string]float64{}
	for _, m := range theirs.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		values[labelKey(labels, nil)] = valueOf(m)
	}
	for _, s := range ours.series {
		v, found := values[labelKey(s.labels, nil)]
		if !found || v != s.value && !(math.IsNaN(v) && math.IsNaN(s.value)) {
			return false
		}
	}
	return len(values) == len(ours.series)
}
