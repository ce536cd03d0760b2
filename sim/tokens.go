package sim

import (
	"math"
	"unicode"
	"unicode/utf8"
)

// vocabulary is the number of distinct token ids.
const vocabulary = 49152

// endToken closes an answer; headToken opens a message of the chat template.
const (
	endToken  = 2
	headToken = 1
)

// pieceLen bounds a token's letters; with it English prose comes to about 4.5 bytes a token.
const pieceLen = 6

// eachToken cuts text into tokens as a byte-pair encoding of English roughly would: a run of up to six letters with
// the space before it, single digits and marks, one token for each character of scripts without spaces.
func eachToken(text string, f func(piece string)) {
	for len(text) > 0 {
		n := nextPiece(text)
		f(text[:n])
		text = text[n:]
	}
}

func nextPiece(text string) int {
	n := 0
	if text[0] == ' ' && len(text) > 1 {
		n = 1
	}
	r, size := utf8.DecodeRuneInString(text[n:])
	n += size
	if !spaced(r) {
		return n
	}
	for letters := 1; letters < pieceLen && n < len(text); letters++ {
		r, size = utf8.DecodeRuneInString(text[n:])
		if !spaced(r) {
			break
		}
		n += size
	}
	return n
}

// spaced reports letters of scripts that put spaces between words.
func spaced(r rune) bool {
	return unicode.IsLetter(r) && !unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai)
}

// tokenID is the id of a piece: the same piece always has the same one (FNV-1a, folded).
func tokenID(piece string) uint32 {
	h := uint32(2166136261)
	for i := range len(piece) {
		h = (h ^ uint32(piece[i])) * 16777619
	}
	return 16 + h%(vocabulary-16)
}

// words are what answers are made of; none is longer than a token.
var words = [...]string{
	"the", "a", "of", "to", "and", "in", "is", "it", "that", "for", "on", "with", "as", "this", "be", "at", "by",
	"from", "or", "one", "all", "we", "can", "has", "more", "when", "out", "up", "if", "what", "so", "time", "no",
	"each", "which", "do", "their", "how", "them", "then", "she", "many", "some", "these", "would", "other", "into",
	"her", "like", "him", "two", "write", "number", "day", "could", "people", "my", "than", "first", "water", "been",
	"call", "who", "oil", "its", "now", "find", "long", "down", "did", "get", "come", "made", "may", "part", "test",
	"file", "code", "read", "run", "line", "error", "value", "name", "list", "type", "path", "call", "loop", "build",
}

// wordAt is the k-th piece (from 0) of the answer with a seed; bare leaves the space before it out.
func wordAt(seed uint64, k int, bare bool) string {
	w := words[scramble(seed+uint64(k)*0x9e3779b97f4a7c15)%uint64(len(words))]
	if bare {
		return w
	}
	return " " + w
}

// scramble is a 64-bit mixing function (the finaliser of MurmurHash3 by Austin Appleby).
func scramble(x uint64) uint64 {
	x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd
	x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53
	return x ^ (x >> 33)
}

// naturalLength draws the length at which an answer ends by itself: log-normal with the given median and sigma 0.8,
// between 1 and 64 medians, from the seed alone.
func naturalLength(seed uint64, median int) int {
	// Twelve uniform draws less six are close to a standard normal draw.
	z := -6.0
	for i := range uint64(12) {
		z += float64(scramble(seed^(i+1)*0xd1342543de82ef95)>>11) / (1 << 53)
	}
	n := int(math.Round(float64(median) * math.Exp(0.8*z)))
	return min(max(n, 1), 64*median)
}
