package admission

import (
	"math"
	"slices"

	"admitd/gate/dialect"
)

// Cold ratios: UTF-8 bytes of decoded text per token, by script and kind. Sources: published tokenizer studies put
// English at 3.3 to 4.3 bytes a token, Russian at 3.3 to 4, Chinese at 3.8 to 5, Japanese at 3.3 to 4.3 and Korean at
// 3 to 3.8. In bytes scripts differ by a quarter where in characters they differ fourfold.
const (
	bytesLatin  = 4.0
	bytesCJK    = 3.8
	bytesOther  = 3.4
	bytesCode   = 3.2
	bytesSchema = 3.6
	// perMessage and base are the chat template's own tokens.
	perMessage = 4
	basePrompt = 10
)

const (
	minCorrection, maxCorrection = 0.5, 2.0
	// pairWindow is how many pairs of estimate and truth the correction is the median of; priorPairs of them start
	// as 1, so that a first bad pair moves nothing.
	pairWindow = 64
	priorPairs = 3
	// leastToLearn: below so many text tokens the template dominates and a pair says little about text.
	leastToLearn = 32
	errorWindow  = 256
	// outputMemory is the number of completions over which expected output is averaged.
	outputMemory = 50
	outputPrior  = 4
	// Margins of the prompt estimate when asking whether a prompt can fit at all.
	coldMargin, leastMargin, mostMargin = 0.35, 0.1, 0.5
	pairsForMargin                      = 32
)

// maxSeqs bounds the sequences of one request; a body cannot ask for more work than this.
const maxSeqs = 1 << 20

// estimate is what one request is expected to take.
type estimate struct {
	// prompt and output are tokens over all sequences; seqs is sequences times prompts.
	prompt, output, seqs int
	// coldText is the text part before the correction, exact the token ids, media the tokens set for media parts.
	coldText     float64
	exact, media int
	generates    bool
	// cut is true when the engine may read less than was sent: nothing about text is learnt from it.
	cut bool
}

func (e estimate) reserved() int { return e.prompt + e.output }

// estimator turns sizes into tokens and learns from what the engine said.
type estimator struct {
	mediaTokens int
	correction  float64
	ratios      ranked
	errors      ranked
	// signed are the errors of errors with their signs, in the same order.
	signed  []float64
	output  float64
	outputs int
}

func newEstimator(cfg Config) estimator {
	e := estimator{mediaTokens: cfg.MediaTokens, correction: 1, output: float64(cfg.DefaultOutputTokens), outputs: outputPrior}
	e.ratios.most, e.errors.most = pairWindow, errorWindow
	for range priorPairs {
		e.ratios.add(1)
	}
	return e
}

func coldText(t dialect.TextSize) float64 {
	text := float64(t.Latin)/bytesLatin + float64(t.CJK)/bytesCJK + float64(t.Other)/bytesOther +
		float64(t.Code)/bytesCode + float64(t.ToolSchema)/bytesSchema
	if text == 0 && t.Messages == 0 {
		return 0
	}
	return text + float64(t.Messages)*perMessage + basePrompt
}

func (e *estimator) estimate(f dialect.Facts) estimate {
	out := estimate{
		seqs:      min(maxSeqs, max(1, f.Sequences)) * min(maxSeqs, max(1, f.Prompts)),
		coldText:  coldText(f.Text),
		exact:     f.Text.TokenIDs,
		media:     f.Text.Media * e.mediaTokens,
		generates: generates(f.Endpoint.Kind),
	}
	out.seqs = min(maxSeqs, out.seqs)
	out.prompt = out.exact + out.media + int(math.Ceil(out.coldText*e.correction))
	if out.generates {
		per := e.expectedOutput()
		if f.OutputCap != nil {
			per = min(per, max(0, *f.OutputCap))
		}
		out.output = per * out.seqs
	}
	return out
}

// cutTo bounds each prompt that the engine was asked to cut to the model's length in tokens; 0 means not known.
func (e estimate) cutTo(maxModelLen int, f dialect.Facts) estimate {
	if !f.Truncates {
		return e
	}
	e.cut = true
	if maxModelLen > 0 {
		e.prompt = min(e.prompt, maxModelLen*min(maxSeqs, max(1, f.Prompts)))
	}
	return e
}

// generates reports whether an operation produces output tokens. An operation that is not known is taken to.
func generates(k dialect.Kind) bool {
	switch k {
	case dialect.KindEmbeddings, dialect.KindRerank, dialect.KindScore, dialect.KindPooling, dialect.KindClassify,
		dialect.KindTokenize, dialect.KindDetokenize, dialect.KindCountTokens:
		return false
	}
	return true
}

func (e *estimator) expectedOutput() int { return max(1, int(math.Ceil(e.output))) }

// leastPrompt is the number of tokens that the largest single prompt has for all we can be sure of: ids count in
// full, text less the estimate's margin, media as nothing.
func (e *estimator) leastPrompt(f dialect.Facts) int {
	t := f.LargestText
	if t == (dialect.TextSize{}) && f.Prompts <= 1 {
		t = f.Text
	}
	return t.TokenIDs + int(coldText(t)*e.correction*(1-e.margin()))
}

// margin is how far below an estimate the truth may lie.
func (e *estimator) margin() float64 {
	if len(e.errors.sorted) < pairsForMargin {
		return coldMargin
	}
	return min(mostMargin, max(leastMargin, 1.5*e.errors.quantile(0.9)))
}

// learn takes what the engine said at a request's end.
func (e *estimator) learn(est estimate, s Settlement) {
	if s.Estimated || s.Ending != dialect.EndWhole {
		return
	}
	if est.generates && s.CompletionTokens > 0 {
		per := float64(s.CompletionTokens) / float64(est.seqs)
		e.outputs = min(e.outputs+1, outputMemory)
		e.output += (per - e.output) / float64(e.outputs)
	}
	if s.PromptTokens <= 0 || est.cut {
		return
	}
	e.noteError((float64(est.prompt) - float64(s.PromptTokens)) / float64(s.PromptTokens))
	text := float64(s.PromptTokens - est.exact)
	if est.media > 0 || est.coldText < leastToLearn || text <= 0 {
		return
	}
	e.notePair(text / est.coldText)
}

// notePair moves the correction to the median of the last pairs: one absurd pair moves it by one rank, not by its size.
func (e *estimator) notePair(ratio float64) {
	e.ratios.add(ratio)
	s := e.ratios.sorted
	mid := (s[(len(s)-1)/2] + s[len(s)/2]) / 2
	e.correction = min(maxCorrection, max(minCorrection, mid))
}

func (e *estimator) noteError(v float64) {
	at := e.errors.add(math.Abs(v))
	if at == len(e.signed) {
		e.signed = append(e.signed, 0)
	}
	e.signed[at] = v
}

// ranked is the last values of something, and the same in order of size. Keeping the order costs a small copy for each
// value, where sorting when asked would cost every decision.
type ranked struct {
	most         int
	last, sorted []float64
	next         int
}

// add takes a value and returns its place among the last.
func (r *ranked) add(v float64) (at int) {
	if len(r.last) < r.most {
		r.last = append(r.last, v)
		at = len(r.last) - 1
	} else {
		at, r.next = r.next, (r.next+1)%r.most
		i, _ := slices.BinarySearch(r.sorted, r.last[at])
		r.sorted = slices.Delete(r.sorted, i, i+1)
		r.last[at] = v
	}
	i, _ := slices.BinarySearch(r.sorted, v)
	r.sorted = slices.Insert(r.sorted, i, v)
	return at
}

// quantile is the value at a rank; there must be one.
func (r *ranked) quantile(q float64) float64 {
	return r.sorted[max(0, int(math.Ceil(q*float64(len(r.sorted))))-1)]
}

// EstimateError describes how far prompt estimates were from what the engine said, over the last 256 pairs.
type EstimateError struct {
	// Pairs is the number of pairs; the other fields are 0 without any.
	Pairs int
	// P50 and P90 are quantiles of |estimate - truth| / truth; Bias is the mean of (estimate - truth) / truth:
	// above 0 when estimates are too high.
	P50, P90, Bias float64
}

func (e *estimator) stats() EstimateError {
	n := len(e.signed)
	if n == 0 {
		return EstimateError{}
	}
	sum := 0.0
	for _, v := range e.signed {
		sum += v
	}
	return EstimateError{Pairs: n, P50: e.errors.quantile(0.5), P90: e.errors.quantile(0.9), Bias: sum / float64(n)}
}
