package admission

import (
	"testing"
	"time"
)

func TestCachedShareIsOfTheLastMinute(t *testing.T) {
	t0 := time.Unix(1000, 0)
	c := New(Config{TicketKey: []byte(testKey)}, compile(t, randomPolicies[0]))
	if got := c.CachedShare(t0); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	c.cached.note(t0, Settlement{PromptTokens: 100, CachedTokens: 50})
	c.cached.note(t0.Add(30*time.Second), Settlement{PromptTokens: 100, CachedTokens: 1000})
	c.cached.note(t0.Add(30*time.Second), Settlement{PromptTokens: 900, CachedTokens: 900, Estimated: true})
	for _, step := range []struct {
		after time.Duration
		want  float64
	}{{30 * time.Second, 0.75}, {61 * time.Second, 1}, {2 * time.Minute, 0}} {
		if got := c.CachedShare(t0.Add(step.after)); got != step.want {
			t.Errorf("after %s: %v, want %v", step.after, got, step.want)
		}
	}
	for i := range 3 * cachedMost {
		c.cached.note(t0, Settlement{PromptTokens: i + 1})
	}
	if b := &c.cached; len(b.list)-b.gone != cachedMost || len(b.list) > 2*cachedMost+1 {
		t.Errorf("%d prompts count, %d are remembered", len(b.list)-b.gone, len(b.list))
	}
}
