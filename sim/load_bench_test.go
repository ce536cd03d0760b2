package sim

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// BenchmarkStreams is what the whole face costs per output token with 64 streams at once.
func BenchmarkStreams(b *testing.B) {
	o := recorded()
	o.Profile, o.KVBlocks, o.BlockSize, o.Speed, o.NoAccessLog = "qwen2.5-0.5b-h100", 20000, 16, 1000, true
	s, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	tokens := 0
	for b.Loop() {
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				req := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(chat(500, 200, `,"stream":true`)))
				req.Header.Set("Content-Type", "application/json")
				s.ServeHTTP(httptest.NewRecorder(), req)
			})
		}
		wg.Wait()
		tokens += 64 * 200
	}
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
}
