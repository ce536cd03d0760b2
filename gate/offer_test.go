package gate

import (
	"net/http"
	"testing"
	"time"

	"admitd/signals"
)

func TestLoadReportBesideARelayedAnswerIsHandedOn(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		if form := req.Header.Get("endpoint-load-metrics-format"); form == "TEXT" {
			w.Header().Set("endpoint-load-metrics", "TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=2.0")
		}
		answerJSON(w, req)
	}, nil)
	got := make(chan signals.ORCA, 2)
	r.pool.Offer = func(o signals.ORCA, _ time.Time) { got <- o }
	r.get("POST", chatPath, chatBody)
	r.get("POST", chatPath, chatBody, "endpoint-load-metrics-format", "TEXT")
	if o := recv(t, "the report", got); o.KVUsed == nil || *o.KVUsed != 0.4 || *o.Waiting != 2 || o.Ranks != 1 {
		t.Errorf("report %+v", o)
	}
	if len(got) > 0 {
		t.Error("a report was made up for an answer without one")
	}
}
