package e2e

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"admitd/test/harness"
	"admitd/ui/api"
)

// countFeed follows the dashboard's websocket and adds up the decisions it tells of: admit, defer, reject.
func countFeed(t *testing.T, a *harness.Admitd) func() [3]int {
	t.Helper()
	conn, resp, err := websocket.DefaultDialer.Dial(strings.Replace(a.Admin, "http", "ws", 1)+"/api/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	var mu sync.Mutex
	var sum [3]int
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			_, b, err := conn.ReadMessage()
			if err != nil {
				return
			}
			var f api.Frame
			if json.Unmarshal(b, &f) != nil || f.Kind != api.KindFrame {
				continue
			}
			mu.Lock()
			for i, n := range f.N {
				sum[i] += n
			}
			mu.Unlock()
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return func() [3]int {
		mu.Lock()
		defer mu.Unlock()
		return sum
	}
}
