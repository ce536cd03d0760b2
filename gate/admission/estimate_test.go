package admission

import (
	"math"
	"testing"

	"admitd/gate/dialect"
)

func TestF16_ColdEstimatesByScriptAndKind(t *testing.T) {
	limit := func(n int) *int { return &n }
	for _, c := range []struct {
		name                 string
		facts                dialect.Facts
		prompt, output, seqs int
	}{
		{"nothing", dialect.Facts{}, 0, 256, 1},
		{"4000 bytes of English in one message", dialect.Facts{Text: dialect.TextSize{Latin: 4000, Messages: 1}}, 1014, 256, 1},
		{"3800 bytes of Chinese", dialect.Facts{Text: dialect.TextSize{CJK: 3800}}, 1010, 256, 1},
		{"3400 bytes of Russian", dialect.Facts{Text: dialect.TextSize{Other: 3400}}, 1010, 256, 1},
		{"3200 bytes of code", dialect.Facts{Text: dialect.TextSize{Code: 3200}}, 1010, 256, 1},
		{"3600 bytes of tool schema", dialect.Facts{Text: dialect.TextSize{ToolSchema: 3600}}, 1010, 256, 1},
		{"token ids are exact", dialect.Facts{Text: dialect.TextSize{TokenIDs: 777}}, 777, 256, 1},
		{"two images", dialect.Facts{Text: dialect.TextSize{Media: 2, Messages: 1}}, 1614, 256, 1},
		{"a cap below the expectation", dialect.Facts{OutputCap: limit(16)}, 0, 16, 1},
		{"a cap above it", dialect.Facts{OutputCap: limit(100_000)}, 0, 256, 1},
		{"a cap below 0 is the engine's to refuse", dialect.Facts{OutputCap: limit(-5)}, 0, 0, 1},
		{"n = 4 with a cap", dialect.Facts{Sequences: 4, OutputCap: limit(16)}, 0, 64, 4},
		{"3 prompts, n = 2", dialect.Facts{Sequences: 2, Prompts: 3}, 0, 1536, 6},
		{"embeddings produce nothing", dialect.Facts{Endpoint: dialect.Endpoint{Kind: dialect.KindEmbeddings}, Prompts: 5}, 0, 0, 5},
		{"absurd n", dialect.Facts{Sequences: math.MaxInt, Prompts: math.MaxInt, OutputCap: limit(1)}, 0, maxSeqs, maxSeqs},
	} {
		e := newEstimator(Config{}.withDefaults())
		got := e.estimate(c.facts)
		if got.prompt != c.prompt || got.output != c.output || got.seqs != c.seqs {
			t.Errorf("%s: %d prompt, %d output, %d sequences; want %d, %d, %d", c.name, got.prompt, got.output, got.seqs, c.prompt, c.output, c.seqs)
		}
	}
}

func learnText(e *estimator, bytes, prompt, completion int) {
	est := e.estimate(dialect.Facts{Sequences: 1, Prompts: 1, Text: dialect.TextSize{Latin: bytes}})
	e.learn(est, Settlement{Ending: dialect.EndWhole, PromptTokens: prompt, CompletionTokens: completion})
}

// TestCorrectionFollowsTheTokenizer: a model whose tokenizer makes 3 bytes a token is learnt within a dozen pairs, absurd
// pairs among them do not matter, and no engine can push the factor out of 0.5 to 2.
func TestCorrectionFollowsTheTokenizer(t *testing.T) {
	e := newEstimator(Config{}.withDefaults())
	for i := range 12 {
		bytes := 3000 + 100*i
		said := bytes / 3
		if i%4 == 3 {
			said = 10_000_000
		}
		learnText(&e, bytes, said, 10)
	}
	got := e.estimate(dialect.Facts{Text: dialect.TextSize{Latin: 9000}}).prompt
	if got < 2900 || got > 3100 {
		t.Errorf("9000 bytes at 3 a token are estimated at %d", got)
	}
	for _, said := range []int{1, 10_000_000} {
		e := newEstimator(Config{}.withDefaults())
		for range 100 {
			learnText(&e, 4000, said, 10)
		}
		if e.correction < 0.5 || e.correction > 2 {
			t.Errorf("correction %v", e.correction)
		}
	}
	// The window forgets: a change of tokenizer is followed.
	for range pairWindow {
		learnText(&e, 4000, 1010, 10)
	}
	if math.Abs(e.correction-1) > 0.01 {
		t.Errorf("after %d pairs at the cold ratio the correction is %v", pairWindow, e.correction)
	}
}

func TestWhatTeachesNothing(t *testing.T) {
	whole := func(prompt int) Settlement {
		return Settlement{Ending: dialect.EndWhole, PromptTokens: prompt, CompletionTokens: 7}
	}
	for _, c := range []struct {
		name string
		text dialect.TextSize
		s    Settlement
	}{
		{"a counted usage", dialect.TextSize{Latin: 4000}, Settlement{Ending: dialect.EndWhole, PromptTokens: 2000, CompletionTokens: 7, Estimated: true}},
		{"a cut stream", dialect.TextSize{Latin: 4000}, Settlement{Ending: dialect.EndCut, PromptTokens: 2000}},
		{"a caller gone", dialect.TextSize{Latin: 4000}, Settlement{Ending: dialect.EndCaller, PromptTokens: 2000}},
		{"a tiny prompt", dialect.TextSize{Latin: 40}, whole(90)},
		{"images", dialect.TextSize{Latin: 4000, Media: 1}, whole(9000)},
		{"nothing said", dialect.TextSize{Latin: 4000}, whole(0)},
		{"ids alone", dialect.TextSize{TokenIDs: 4000}, whole(4000)},
	} {
		e := newEstimator(Config{}.withDefaults())
		for range 20 {
			e.learn(e.estimate(dialect.Facts{Text: c.text}), c.s)
		}
		if e.correction != 1 {
			t.Errorf("%s taught a correction of %v", c.name, e.correction)
		}
	}
}

func TestEstimateErrorIsOverTheLast256Pairs(t *testing.T) {
	e := newEstimator(Config{}.withDefaults())
	if s := e.stats(); s != (EstimateError{}) {
		t.Errorf("no pairs: %+v", s)
	}
	for range 50 {
		e.noteError(9) // forgotten below
	}
	for i := range errorWindow {
		// -0.50 to +0.50 by steps of 0.01, twice, and then from -0.50 to +0.03, which alone makes the bias.
		e.noteError(float64(i%101-50) / 100)
	}
	s := e.stats()
	if s.Pairs != errorWindow || math.Abs(s.P50-0.25) > 0.02 || math.Abs(s.P90-0.45) > 0.02 || math.Abs(s.Bias- -12.69/256) > 1e-9 {
		t.Errorf("%+v", s)
	}
	if m := e.margin(); m != mostMargin {
		t.Errorf("margin %v, want the most, since 1.5 * P90 is above it", m)
	}
}
