package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"admitd/gate/policy"
	"admitd/internal/config"
	"admitd/ui"
	"admitd/ui/api"
)

// pollEvery is how often the files are read and compared. Reading beats file notification here: it sees bind
// mounts, ConfigMap symlink swaps and editors that replace the file.
const pollEvery = 2 * time.Second

// reloader is the one goroutine through which files reach the running process. Its triggers are SIGHUP, the
// admin API and a change of the files' content.
type reloader struct {
	load    func() (config.Config, error) // file, environment and flags together
	running config.Config
	files   []string
	store   *policyStore
	level   *slog.LevelVar
	clock   func() time.Time
	logger  *slog.Logger

	requests chan reloadRequest
	ended    chan struct{} // closed when Run has returned
	state    atomic.Pointer[api.ConfigStatus]
	// sums belongs to Run's goroutine.
	sums map[string][32]byte
}

func newReloader(o Options, store *policyStore) *reloader {
	r := &reloader{
		load: o.Load, running: o.Config, store: store, level: o.Level, clock: time.Now, logger: o.Logger.With("component", "reload"),
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
			r.changedFiles()
			res, err := r.reload(req.source, r.running.PolicyFile != "")
			req.reply <- reloadReply{res, err}
		case <-tick.C:
			if changed := r.changedFiles(); len(changed) > 0 {
				// The outcome is in the log, the journal, the metric and the dashboard's banner.
				_, _ = r.reload("file "+strings.Join(changed, ", "), slices.Contains(changed, r.running.PolicyFile))
			}
		}
	}
}

// changedFiles compares contents with the last look and remembers them. A file that cannot be read counts as
// unchanged: editors and mounts make files vanish for a moment.
func (r *reloader) changedFiles() []string {
	if r.sums == nil {
		r.sums = map[string][32]byte{}
	}
	var changed []string
	for _, f := range r.files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		sum := sha256.Sum256(b)
		if r.sums[f] != sum {
			changed = append(changed, f)
		}
		r.sums[f] = sum
	}
	return changed
}

// reload reads everything, checks everything, and only then changes anything. Without withPolicy the running policy
// stays: one that was put in place over the API is not undone because another file changed, nor where there is no file
// that could say otherwise.
func (r *reloader) reload(source string, withPolicy bool) (api.ReloadResult, error) {
	now := r.clock()
	res, err := r.apply(source, withPolicy)
	state := api.ConfigStatus{File: r.state.Load().File, LastReloadAt: &now, LastReloadFrom: source, LastReloadOK: err == nil}
	if err != nil {
		state.Problem = err.Error()
	}
	r.state.Store(&state)
	if err != nil {
		r.logger.Error("reload refused, nothing was changed", "source", source, "error", err)
	}
	return res, err
}

func (r *reloader) apply(source string, withPolicy bool) (api.ReloadResult, error) {
	next, err := r.load()
	if err != nil {
		r.store.event("config_refused", "error", "configuration from "+source+" refused, nothing was changed: "+err.Error())
		return api.ReloadResult{}, err
	}
	hot, engine, process := config.Diff(r.running, next)
	if fields := fieldsNeedingRestart(engine, process); len(fields) > 0 {
		err := &ui.FieldsError{Fields: fields}
		r.store.event("config_refused", "error", "reload from "+source+" refused, nothing was changed: "+err.Error())
		return api.ReloadResult{}, err
	}
	res, err := r.applyPolicy(next.PolicyFile, source, withPolicy)
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

func fieldsNeedingRestart(engine, process []string) []string {
	var out []string
	for _, f := range engine {
		out = append(out, f+" (needs an engine restart)")
	}
	for _, f := range process {
		out = append(out, f+" (needs a restart of admitd)")
	}
	return out
}

// policyText reads the policy file, or gives the built-in default.
func policyText(file string) (text []byte, name string, err error) {
	if file == "" {
		return policy.Default(), "", nil
	}
	text, err = os.ReadFile(file)
	if err != nil {
		return nil, file, fmt.Errorf("read policy: %w", err)
	}
	return text, file, nil
}

// errStopping: the reloader has ended.
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
