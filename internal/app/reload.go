package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"admitd/gate/policy"
	"admitd/internal/config"
	"admitd/internal/strict"
	"admitd/ui"
	"admitd/ui/api"
)

// pollEvery is how often the files are read and compared. Reading beats file notification here: it sees bind
// mounts, ConfigMap symlink swaps and editors that replace the file.
const pollEvery = 2 * time.Second

// lookWithin bounds one such reading.
const lookWithin = 5 * time.Second

// reloader is the one goroutine through which files reach the running process. Its triggers are SIGHUP, the
// admin API and a change of the files' content.
type reloader struct {
	load    func() (config.Config, error) // file, environment and flags together
	running config.Config
	// configFile is "" for none.
	configFile string
	files      []string
	store      *policyStore
	level      *slog.LevelVar
	clock      func() time.Time
	logger     *slog.Logger

	requests chan reloadRequest
	ended    chan struct{} // closed when Run has returned
	state    atomic.Pointer[api.ConfigStatus]
	// What follows belongs to Run's goroutine. reads are the looks at files that have not come back.
	sums  map[string][32]byte
	reads map[string]chan look
	// pending are the settings of the configuration file, as it stands, that wait for a restart of admitd.
	pending []string
	// refused says why that file is refused, nil when it is not.
	refused *api.ConfigStatus
}

// look is what one file held.
type look struct {
	b   []byte
	err error
}

func newReloader(o Options, store *policyStore) *reloader {
	r := &reloader{
		load: o.Load, running: o.Config, configFile: o.ConfigFile, sums: map[string][32]byte{}, reads: map[string]chan look{}, store: store, level: o.Level, clock: time.Now, logger: o.Logger.With("component", "reload"),
		requests: make(chan reloadRequest), ended: make(chan struct{}),
	}
	for _, f := range []string{o.ConfigFile, o.Config.PolicyFile} {
		if f != "" {
			r.files = append(r.files, f)
		}
	}
	r.state.Store(&api.ConfigStatus{File: o.ConfigFile, LastReloadOK: true})
	return r
}

type reloadRequest struct {
	source string
	reply  chan reloadReply
}

type reloadReply struct {
	result api.ReloadResult
	err    error
}

// Run serves requests until ctx ends. It runs once.
func (r *reloader) Run(ctx context.Context) error {
	defer close(r.ended)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	r.changedFiles() // what is there now is what runs
	for {
		select {
		case <-ctx.Done():
			return nil
		case req := <-r.requests:
			changed := r.changedFiles()
			res, err := r.reload(req.source, r.asked(changed))
			req.reply <- reloadReply{res, err}
		case <-tick.C:
			if changed := r.changedFiles(); len(changed) > 0 {
				// The outcome is in the log, the journal, the metric and the dashboard's banner.
				_, _ = r.reload("file "+strings.Join(changed, ", "), r.noticed(changed))
			}
		}
	}
}

// scope says which files a reload is about.
type scope struct{ config, policy bool }

// noticed is the scope of a change of files: each file for itself, so that one that is broken or has to wait does not hold
// the other up.
func (r *reloader) noticed(changed []string) scope {
	return scope{config: slices.Contains(changed, r.configFile), policy: slices.Contains(changed, r.running.PolicyFile)}
}

// asked is the scope of an explicit reload: everything, but a configuration that is known to wait for a restart, and has
// not changed since, does not keep a changed policy back.
func (r *reloader) asked(changed []string) scope {
	s := scope{config: true, policy: r.running.PolicyFile != ""}
	if len(r.pending) > 0 && s.policy && !slices.Contains(changed, r.configFile) {
		text, err := strict.ReadFile("policy", r.running.PolicyFile)
		now, _ := r.store.Current()
		s.config = err == nil && bytes.Equal(text, now.Source)
	}
	return s
}

// changedFiles compares contents with the last look and remembers them. A file that cannot be read counts as
// unchanged: editors and mounts make files vanish for a moment.
func (r *reloader) changedFiles() []string {
	var changed []string
	for _, f := range r.files {
		l, ok := r.look(f)
		if !ok || l.err != nil {
			continue
		}
		sum := sha256.Sum256(l.b)
		if r.sums[f] != sum {
			changed = append(changed, f)
		}
		r.sums[f] = sum
	}
	return changed
}

// look reads a file, waiting a second at most. While a read hangs, no further one is begun: ok is false then.
func (r *reloader) look(file string) (l look, ok bool) {
	ch := r.reads[file]
	if ch == nil {
		ch = make(chan look, 1)
		go func() {
			b, err := strict.Read(file, lookWithin)
			ch <- look{b, err}
		}()
	}
	late := time.NewTimer(time.Second)
	defer late.Stop()
	select {
	case l = <-ch:
		delete(r.reads, file)
		return l, true
	case <-late.C:
		r.reads[file] = ch
		return look{}, false
	}
}

// reload reads what it is about, checks everything, and only then changes anything. Without the policy in its scope the
// running one stays: one that was put in place over the API is not undone because another file changed, nor where there is
// no file that could say otherwise.
func (r *reloader) reload(source string, about scope) (api.ReloadResult, error) {
	now := r.clock()
	state := api.ConfigStatus{File: r.configFile, LastReloadAt: &now, LastReloadFrom: source, LastReloadOK: true}
	res, err := r.apply(source, about)
	if err != nil {
		state.LastReloadOK, state.Problem = false, err.Error()
		r.logger.Error("reload refused, nothing was changed", "source", source, "error", err)
	}
	if err == nil && !about.config && r.refused != nil {
		// The policy was taken; the configuration file is still refused, and the banner must go on saying so.
		state = *r.refused
		if len(r.pending) > 0 {
			waiting := strings.Join(r.pending, ", ")
			res.Text += "; not changed, since the configuration file differs there: " + waiting
			r.logger.Warn("the policy was read; the configuration file has settings that wait", "source", source, "settings", waiting)
		}
	}
	r.state.Store(&state)
	return res, err
}

func (r *reloader) apply(source string, about scope) (api.ReloadResult, error) {
	if !about.config {
		return r.applyPolicy(r.running.PolicyFile, source, about.policy)
	}
	r.pending, r.refused = nil, nil
	next, err := r.load()
	if err != nil {
		r.refuseConfig(source, err)
		r.store.event("config_refused", "error", "configuration from "+source+" refused, nothing was changed: "+err.Error())
		return api.ReloadResult{}, err
	}
	hot, process := config.Diff(r.running, next)
	for _, f := range process {
		r.pending = append(r.pending, f+" (needs a restart of admitd)")
	}
	if len(r.pending) > 0 {
		err := &ui.FieldsError{Fields: slices.Clone(r.pending)}
		r.refuseConfig(source, err)
		r.store.event("config_refused", "error", "reload from "+source+" refused, nothing was changed: "+err.Error())
		return api.ReloadResult{}, err
	}
	res, err := r.applyPolicy(next.PolicyFile, source, about.policy)
	if err != nil {
		return res, err
	}
	r.level.Set(logLevel(next.Log.Level))
	r.running = next
	if len(hot) > 0 {
		r.store.event("config_reload", "info", "configuration ("+source+"): "+strings.Join(hot, ", "))
		if !res.Changed {
			res.Text = "configuration changed; the running policy stays"
		}
		res.Changed = true
		res.Diff = append(res.Diff, hot...)
	}
	return res, nil
}

// refuseConfig keeps why the configuration file, as it stands, is refused.
func (r *reloader) refuseConfig(source string, err error) {
	now := r.clock()
	r.refused = &api.ConfigStatus{File: r.configFile, LastReloadAt: &now, LastReloadFrom: source, Problem: err.Error()}
}

func (r *reloader) applyPolicy(file, source string, withPolicy bool) (api.ReloadResult, error) {
	if !withPolicy {
		_, info := r.store.Current()
		return api.ReloadResult{Rev: info.Rev, Text: "unchanged: the files say what runs already"}, nil
	}
	text, file, err := policyText(file)
	if err != nil {
		r.store.event("policy_refused", "error", err.Error())
		return api.ReloadResult{}, err
	}
	return r.store.change(file, text, "", source, "")
}

// policyText reads the policy file, or gives the built-in default.
func policyText(file string) (text []byte, name string, err error) {
	if file == "" {
		return policy.Default(), "", nil
	}
	text, err = strict.ReadFile("policy", file)
	return text, file, err
}

// errStopping: admitd ends, and its reloader and upgrades with it.
var errStopping = errors.New("admitd is stopping")

// Reload asks for a reload and waits for its outcome.
func (r *reloader) Reload(ctx context.Context, source string) (api.ReloadResult, error) {
	req := reloadRequest{source: source, reply: make(chan reloadReply, 1)}
	select {
	case r.requests <- req:
	case <-r.ended:
		return api.ReloadResult{}, errStopping
	case <-ctx.Done():
		return api.ReloadResult{}, fmt.Errorf("wait for a reload: %w", ctx.Err())
	}
	select {
	case rep := <-req.reply:
		return rep.result, rep.err
	case <-ctx.Done():
		return api.ReloadResult{}, fmt.Errorf("the reload goes on, but nobody waits for it: %w", ctx.Err())
	}
}

// Status returns a copy of the reloader's state, at once.
func (r *reloader) Status() api.ConfigStatus { return *r.state.Load() }

func logLevel(s string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return slog.LevelInfo
	}
	return l
}
