package admission

import "time"

// cachedWindow is the time over which prompts and their cached parts are added up, cachedMost the most prompts remembered.
const (
	cachedWindow = time.Minute
	cachedMost   = 1024
)

// cachedBook adds up what usage said of recent prompts and of the part of them that came from the prefix cache, in tokens.
// Some engines' own hit counter stays 0 although prompts hit.
type cachedBook struct {
	// list is in the order of time; the first gone of it no longer count.
	list           []cachedPrompt
	gone           int
	prompt, cached int
}

type cachedPrompt struct {
	at             time.Time
	prompt, cached int
}

// note adds one settled request whose usage is the engine's own.
func (b *cachedBook) note(now time.Time, s Settlement) {
	if s.Estimated || s.PromptTokens <= 0 {
		return
	}
	p := cachedPrompt{now, s.PromptTokens, min(max(0, s.CachedTokens), s.PromptTokens)}
	b.list = append(b.list, p)
	b.prompt, b.cached = b.prompt+p.prompt, b.cached+p.cached
	b.forget(now)
}

func (b *cachedBook) forget(now time.Time) {
	for b.gone < len(b.list) && (len(b.list)-b.gone > cachedMost || now.Sub(b.list[b.gone].at) > cachedWindow) {
		b.prompt, b.cached = b.prompt-b.list[b.gone].prompt, b.cached-b.list[b.gone].cached
		b.gone++
	}
	// The rest moves up only when that is no more than what went: a move for each request cost more than judging it.
	if b.gone > 0 && b.gone >= len(b.list)-b.gone {
		b.list, b.gone = append(b.list[:0], b.list[b.gone:]...), 0
	}
}

// CachedShare is the part, 0 to 1, of the prompt tokens of the last minute that usage said came from the prefix cache; 0
// also when usage said nothing of it.
func (c *Controller) CachedShare(now time.Time) float64 {
	c.cached.forget(now)
	if c.cached.prompt == 0 {
		return 0
	}
	return float64(c.cached.cached) / float64(c.cached.prompt)
}
