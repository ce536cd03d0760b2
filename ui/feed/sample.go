package feed

import "math/rand/v2"

// reservoir keeps all values up to limit; beyond it, a uniform sample of size values (algorithm R of J. S. Vitter,
// "Random sampling with a reservoir", 1985).
type reservoir[T any] struct {
	limit, size int
	rng         *rand.Rand
	seen        int
	kept        []T
}

func newReservoir[T any](limit, size int, rng *rand.Rand) reservoir[T] {
	return reservoir[T]{limit: limit, size: min(size, limit), rng: rng}
}

func (r *reservoir[T]) add(v T) {
	r.seen++
	if r.seen <= r.limit {
		r.kept = append(r.kept, v)
		return
	}
	if len(r.kept) > r.size {
		r.rng.Shuffle(len(r.kept), func(i, j int) { r.kept[i], r.kept[j] = r.kept[j], r.kept[i] })
		clear(r.kept[r.size:])
		r.kept = r.kept[:r.size]
	}
	if i := r.rng.IntN(r.seen); i < r.size {
		r.kept[i] = v
	}
}

// take empties the reservoir. sampled is true when values are missing.
func (r *reservoir[T]) take() (kept []T, sampled bool) {
	kept, sampled = r.kept, r.seen > len(r.kept)
	r.kept, r.seen = nil, 0
	return kept, sampled
}
