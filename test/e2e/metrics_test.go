package e2e

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"admitd/test/harness"
)

// What /metrics shows and what docs/metrics.md lists are the same; GPU families need a GPU.
func TestDocumentedMetricsAreTheOnesExported(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`(admitd_[a-z_]+)`").FindAllStringSubmatch(string(doc), -1) {
		documented[m[1]] = true
	}
	a := start(t, "")
	a.WaitReady(readyWithin)
	if ans := harness.Post(harness.Timeout(t, time.Minute), a.Gate+"/v1/chat/completions", harness.Chat(model, "Hello", 16, true)); ans.Status != http.StatusOK {
		t.Fatal(ans)
	}
	settled(t, a)
	var page string
	a.Get("/metrics", &page)
	exported := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (admitd_[a-z_]+) `).FindAllStringSubmatch(page, -1) {
		exported[m[1]] = true
		if !documented[m[1]] {
			t.Errorf("%s is exported and not in docs/metrics.md", m[1])
		}
	}
	for name := range documented {
		lazily := strings.HasPrefix(name, "admitd_gpu_") || name == "admitd_config_last_reload_success_timestamp_seconds"
		if !exported[name] && !lazily {
			t.Errorf("%s is in docs/metrics.md and not exported", name)
		}
	}
}
