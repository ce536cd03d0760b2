package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
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

// reloader is the one goroutine through which files reach the running process. Its triggers are SIGHUP, the
// admin API and a change of the files' content.
type reloader struct {
	load     func() (config.Config, error) // file, environment and flags together
	running  config.Config
	files    []string
	store    *policyStore
	level    *slog.LevelVar
	requests chan reloadRequest
	status   chan chan api.ConfigStatus
	clock    func() time.Time
	logger   *slog.Logger

	state api.ConfigStatus
	sums  map[string][32]byte
}

type reloadRequest struct {
	source string
	reply  chan reloadReply
}

type reloadReply struct {
	result api.ReloadResult
	err    error
}

// Run serves requests until ctx ends.
func (r *reloader) Run(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	r.changedFiles() // what is there now is what runs
	for {
		select {
		case <-ctx.Done():
			return nil
		case req := <-r.requests:
			r.changedFiles()
			res, err := r.reload(req.source)
			req.reply <- reloadReply{res, err}
		case reply := <-r.status:
			reply <- r.state
		case <-tick.C:
			if changed := r.changedFiles(); len(changed) > 0 {
				// The outcome is in the log, the journal, the metric and the dashboard's banner.
				_, _ = r.reload("file " + strings.Join(changed, ", "))
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
		if old, seen := r.sums[f]; seen && old != sum {
			changed = append(changed, f)
		}
		r.sums[f] = sum
	}
	return changed
}

// reload reads everything, checks everything, and only then changes anything.
func (r *reloader) reload(source string) (api.ReloadResult, error) {
	now := r.clock()
	r.state.LastReloadAt, r.state.LastReloadFrom = &now, source
	res, err := r.apply(source)
	r.state.LastReloadOK = err == nil
	r.state.Problem = ""
	if err != nil {
		r.state.Problem = err.Error()
		r.logger.Error("reload refused, nothing was changed", "source", source, "error", err)
	}
	return res, err
}

func (r *reloader) apply(source string) (api.ReloadResult, error) {
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
	text, file, err := policyText(next.PolicyFile)
	if err != nil {
		r.store.event("policy_refused", "error", err.Error())
		return api.ReloadResult{}, err
	}
	res, err := r.store.change(file, text, "", source, "")
	if err != nil {
		return res, err
	}
	r.level.Set(logLevel(next.Log.Level))
	r.running = next
	if len(hot) > 0 {
		res.Changed = true
		res.Diff = append(res.Diff, hot...)
	}
	return res, nil
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
	case <-ctx.Done():
		return api.ReloadResult{}, errStopping
	}
	select {
	case rep := <-req.reply:
		return rep.result, rep.err
	case <-ctx.Done():
		return api.ReloadResult{}, errStopping
	}
}

// Status returns a copy of the reloader's state.
func (r *reloader) Status(ctx context.Context) api.ConfigStatus {
	reply := make(chan api.ConfigStatus, 1)
	select {
	case r.status <- reply:
		return <-reply
	case <-ctx.Done():
		return api.ConfigStatus{}
	}
}

func logLevel(s string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return slog.LevelInfo
	}
	return l
}

// IsConfigError reports whether an error is a mistake in a configuration or policy file.
func IsConfigError(err error) bool {
	var se *strict.Error
	return errors.As(err, &se)
}
