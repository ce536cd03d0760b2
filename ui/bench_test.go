package ui

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"admitd/gate/journal"
	"admitd/gate/reason"
)

// BenchmarkR3_AppendBesideViewers measures what the gate pays for viewers: the time of one journal entry, the only
// thing that the two share, with none and with 32 viewers of whom 10 never read.
func BenchmarkR3_AppendBesideViewers(b *testing.B) {
	for _, viewers := range []int{0, 32} {
		b.Run(fmt.Sprintf("viewers=%d", viewers), func(b *testing.B) {
			r := newRig(b)
			stop := make(chan struct{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				tick := time.NewTicker(FrameInterval)
				defer tick.Stop()
				for {
					select {
					case <-stop:
						return
					case <-tick.C:
						r.s.pools[0].step(time.Now())
					}
				}
			}()
			for i := range viewers {
				c, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(r.srv.URL, "http")+"/api/v1/stream", nil)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = c.Close() })
				if i >= 10 {
					go func() {
						for {
							if _, _, err := c.ReadMessage(); err != nil {
								return
							}
						}
					}()
				}
			}
			took := make([]time.Duration, 0, b.N)
			pace := time.NewTicker(500 * time.Microsecond) // 2000 decisions a second
			defer pace.Stop()
			for b.Loop() {
				<-pace.C
				start := time.Now()
				r.journal.Append(journal.Entry{At: start, Kind: journal.KindDecision,
					Decision: &journal.Decision{ID: "req-0123456789abcdef", Tenant: "acme", Verdict: reason.VerdictAdmit, Reason: reason.OK}})
				took = append(took, time.Since(start))
			}
			close(stop)
			<-ended
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
		})
	}
}
