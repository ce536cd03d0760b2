package gate

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/signals"
	"admitd/supervisor"
)

// instant is an engine that answers from memory, so that a benchmark sees the gate alone.
type instant struct{ fakeEngine }

func (*instant) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(wholeJSON)), ContentLength: int64(len(wholeJSON))}, nil
}

// BenchmarkWalk is one request through the gate, from the handler's entry to its settlement, without any socket.
func BenchmarkWalk(b *testing.B) {
	e := &instant{}
	e.status, e.transport = supervisor.Status{State: supervisor.Ready}, e
	snap := signals.NewSnapshot(signals.Snapshot{})
	j, err := journal.New(journal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	g, err := New(Options{Pools: []*Pool{{Model: "m", EngineModel: "m", Engine: e, Journal: j,
		Snapshot: func() *signals.Snapshot { return snap }, Admission: NewAdmission(admission.New(admission.Config{}, nil), time.Now)}}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(chatBody)))
		if w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}
