package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/internal/handover"
	"admitd/signals"
	"admitd/ui"
	"admitd/ui/api"
)

// historyLen is how many past revisions can be gone back to.
const historyLen = 20

// revision is one policy with how it came to be. Immutable.
type revision struct {
	compiled *policy.Compiled
	info     api.PolicyInfo
}

// policyStore holds the running policy of one pool. Every change goes through change, one at a time; readers
// take the pointer.
type policyStore struct {
	pool      string
	current   atomic.Pointer[revision]
	admission interface{ SetPolicy(*policy.Compiled) }
	snapshot  func() *signals.Snapshot
	journal   *journal.Journal
	lastGood  string
	clock     func() time.Time
	logger    *slog.Logger

	mu      sync.Mutex // guards history and orders changes
	history []*revision
	started *revision // the first one
}

var _ ui.PolicyStore = (*policyStore)(nil)

// Current implements ui.PolicyStore.
func (s *policyStore) Current() (*policy.Compiled, api.PolicyInfo) {
	r := s.current.Load()
	return r.compiled, r.info
}

// handedOn is the running policy for an admitd that takes over: nil where that one will read it from where we did.
func (s *policyStore) handedOn() *handover.Policy {
	r := s.current.Load()
	if r.info.File != "" || r.info.Source == "start" {
		return nil
	}
	return &handover.Policy{Text: r.compiled.Source, Source: r.info.Source}
}

// Compile implements ui.PolicyStore: strict reading, then what the engine really exports.
func (s *policyStore) Compile(text []byte) (*policy.Compiled, error) {
	return s.compile("", text)
}

func (s *policyStore) compile(file string, text []byte) (*policy.Compiled, error) {
	c, err := policy.Compile(file, text)
	if err != nil {
		return nil, err
	}
	return c, s.fits(c)
}

// fits holds a policy against what is known of the engine. Before its first scrape nothing is: then the needs are checked
// when it is ready, before the gate opens.
func (s *policyStore) fits(c *policy.Compiled) error {
	switch snap := s.snapshot(); {
	case snap == nil || snap.At.IsZero() && snap.Failures == 0:
		return nil
	case snap.At.IsZero():
		return policy.CheckUnread(c, snap.Err)
	default:
		return policy.CheckNeeds(c, snap, signals.Tried)
	}
}

// Apply implements ui.PolicyStore. Nothing is changed unless everything is good.
func (s *policyStore) Apply(_ context.Context, text []byte, ifMatch, source, note string) (api.ReloadResult, error) {
	return s.change("", text, ifMatch, source, note)
}

func (s *policyStore) change(file string, text []byte, ifMatch, source, note string) (api.ReloadResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.current.Load()
	if ifMatch != "" && ifMatch != old.compiled.Rev {
		return api.ReloadResult{}, ui.ErrPrecondition
	}
	c, err := policy.Compile(file, text)
	if err == nil && c.Rev == old.compiled.Rev {
		return api.ReloadResult{Rev: c.Rev, Text: "unchanged: the running policy already has this text"}, nil
	}
	if err == nil {
		err = s.fits(c)
	}
	if err != nil {
		s.event("policy_refused", "error", fmt.Sprintf("policy from %s refused, %s@%s stays: %v", source, old.info.Name, old.info.Rev, err))
		return api.ReloadResult{}, err
	}
	diff := policy.Diff(old.compiled.Spec, c.Spec)
	next := &revision{compiled: c, info: api.PolicyInfo{Name: c.Policy.Name(), Rev: c.Rev, File: file, At: s.clock(), Source: source, Note: note}}
	s.install(next)
	said := fmt.Sprintf("policy %s@%s -> %s@%s (%s)", old.info.Name, old.info.Rev, next.info.Name, next.info.Rev, source)
	s.event("policy_reload", "info", said)
	return api.ReloadResult{Changed: true, Rev: c.Rev, Text: said, Diff: diff}, nil
}

// install swaps the pointer, tells the controller and keeps the text as last good. Callers hold mu.
func (s *policyStore) install(r *revision) {
	s.current.Store(r)
	if s.started == nil {
		s.started = r
	}
	s.history = append([]*revision{r}, s.history...)
	if len(s.history) > historyLen {
		s.history = s.history[:historyLen]
	}
	s.admission.SetPolicy(r.compiled)
	if s.lastGood == "" {
		return
	}
	if err := writeFileAtomic(s.lastGood, r.compiled.Source); err != nil {
		s.logger.Warn("cannot keep the last good policy", "file", s.lastGood, "error", err)
	}
}

// Revert implements ui.PolicyStore: the old text becomes a new change.
func (s *policyStore) Revert(_ context.Context, rev string) (api.ReloadResult, error) {
	s.mu.Lock()
	now := s.current.Load()
	var target *revision
	for _, r := range s.history {
		if r != now && r.compiled.Rev != now.compiled.Rev && (rev == "" || r.compiled.Rev == rev) {
			target = r
			break
		}
	}
	s.mu.Unlock()
	if rev != "" && rev == now.compiled.Rev {
		return api.ReloadResult{Rev: rev, Text: "unchanged: this revision is running"}, nil
	}
	if target == nil {
		return api.ReloadResult{}, ui.ErrNoRevision
	}
	return s.change(target.info.File, target.compiled.Source, now.compiled.Rev, "revert", "back to "+target.compiled.Rev)
}

// History implements ui.PolicyStore, newest first.
func (s *policyStore) History() api.PolicyHistory {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := api.PolicyHistory{Revisions: make([]api.PolicyRevision, 0, len(s.history))}
	for _, r := range s.history {
		out.Revisions = append(out.Revisions, api.PolicyRevision{PolicyInfo: r.info, Text: string(r.compiled.Source)})
	}
	return out
}

// fallBack puts the latest policy back that fits, when the running one, which came after the start, does not: what was
// applied while nothing was known of the engine must neither end admitd nor keep its gate closed. It reports whether it did.
func (s *policyStore) fallBack(fits func(*policy.Compiled) error, why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.current.Load()
	if now.compiled.Rev == s.started.compiled.Rev {
		return false
	}
	for _, r := range append(append([]*revision(nil), s.history...), s.started) {
		if r.compiled.Rev == now.compiled.Rev || fits(r.compiled) != nil {
			continue
		}
		next := &revision{compiled: r.compiled, info: r.info}
		next.info.At, next.info.Source, next.info.Note = s.clock(), "fallback", now.info.Name+"@"+now.info.Rev+" does not fit the engine"
		s.install(next)
		s.event("policy_fallback", "error", fmt.Sprintf("policy %s@%s (%s) does not fit the engine, back to %s@%s: %v",
			now.info.Name, now.info.Rev, now.info.Source, r.info.Name, r.info.Rev, why))
		return true
	}
	return false
}

func (s *policyStore) event(name, level, text string) {
	now := s.clock()
	s.journal.Append(journal.Entry{At: now, Kind: journal.KindEvent, Event: &journal.Event{Name: name, Level: level, Pool: s.pool, Text: text}})
	if level == "error" {
		s.logger.Error("event", "name", name, "text", text)
		return
	}
	s.logger.Info("event", "name", name, "text", text)
}

// writeFileAtomic writes beside the target and renames, so that a reader never sees half a file. Only we can read it
// (os.CreateTemp makes it 0600).
func writeFileAtomic(file string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, werr := tmp.Write(data)
	cerr := tmp.Close()
	if werr == nil {
		werr = cerr
	}
	if werr == nil {
		werr = os.Rename(tmp.Name(), file)
	}
	if werr != nil {
		return fmt.Errorf("write %s: %w", file, werr)
	}
	return nil
}
