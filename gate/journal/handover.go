package journal

// Divert gives what is appended after the number that it returns to take instead of the disk; memory keeps it as ever. take is
// called in the order of the numbers and must not wait, nor call the journal. nil ends it. Another journal writes the record
// then: see package handover.
func (j *Journal) Divert(take func(Entry)) (last uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.divert = take
	return j.last
}

// Rewrite offers entries to the disk that had been diverted and that nobody has written.
func (j *Journal) Rewrite(entries []Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.disk == nil || j.closed {
		return
	}
	for _, e := range entries {
		j.disk.offer(e)
	}
}

// Recall takes entries of another journal into memory, numbered anew, and not to the disk, where the other one has them. An
// arrival's entry that is in memory already is left out.
func (j *Journal) Recall(entries []Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		p := j.index[e.arrival()]
		if e.Decision != nil && p.decision != 0 || e.Outcome != nil && p.outcome != 0 {
			continue
		}
		j.keep(e)
	}
	j.tell()
}
