package signals

import "maps"

// With returns a snapshot that differs in one reading: one that somebody else knows better.
func (s *Snapshot) With(r Signal) *Snapshot {
	out := *s
	out.signals = maps.Clone(s.signals)
	if r.Unit == "" {
		r.Unit = UnitOf(r.Name)
	}
	out.signals[r.Name] = r
	return &out
}
