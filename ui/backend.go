package ui

import (
	"context"
	"errors"
	"strings"
	"time"

	"admitd/gate/admission"
	"admitd/gate/journal"
	"admitd/gate/policy"
	"admitd/nvml"
	"admitd/signals"
	"admitd/supervisor"
	"admitd/ui/api"
)

// Backend is what the admin server needs from the rest of admitd.
type Backend interface {
	// Pools returns the served models, in configured order; never empty.
	Pools() []PoolBackend
	// GateAddress is where callers reach the model API.
	GateAddress() string
	Config() api.ConfigStatus
	// Reload re-reads the configuration and policy files. Errors as PolicyStore.Apply's, and *FieldsError.
	Reload(ctx context.Context, source string) (api.ReloadResult, error)
	// Upgrade starts the binary, "" for the present one's path, on our listeners, and returns its pid when it serves. An
	// error means that nothing has changed; ErrNoUpgrade that it was not even tried. tell hears of each step.
	Upgrade(binary string, tell func(step string)) (pid int, err error)
}

// ErrNoUpgrade: an upgrade cannot be tried now, or not with that binary (409).
var ErrNoUpgrade = errors.New("no upgrade")

// PoolBackend is one served model as the admin server sees it.
type PoolBackend struct {
	Model   string
	Aliases []string
	Engine  supervisor.Engine
	// Restart asks the supervisor for a new engine process and returns when it has been accepted.
	Restart  func(ctx context.Context) error
	Snapshot func() *signals.Snapshot
	// ScrapeInterval is the present interval between scrapes.
	ScrapeInterval func() time.Duration
	Digest         func(now time.Time, d admission.Depth) admission.Digest
	GPU            func() *nvml.Reading
	Journal        *journal.Journal
	Policy         PolicyStore
	// Serving says whether the gate lets requests in, and if not, why. The engine may be ready before that.
	Serving func() (ok bool, why string)
	// SLOTTFT and SLOTPOT are the default class's limits; 0 when none.
	SLOTTFT, SLOTPOT time.Duration
}

// PolicyStore holds the running policy of one pool and its history.
type PolicyStore interface {
	// Current returns the running revision, compiled.
	Current() (*policy.Compiled, api.PolicyInfo)
	// Apply validates, compiles and swaps. ifMatch is the revision the caller started from, "" to skip the check.
	// Errors: *strict.Error (places in the text), *policy.NeedsError (signals not exported), ErrPrecondition.
	Apply(ctx context.Context, text []byte, ifMatch, source, note string) (api.ReloadResult, error)
	// Revert goes back to a revision of the history, "" for the one before the running one. ErrNoRevision if there is none.
	Revert(ctx context.Context, rev string) (api.ReloadResult, error)
	History() api.PolicyHistory
	// Compile checks a draft without applying it. Errors as Apply's.
	Compile(text []byte) (*policy.Compiled, error)
}

// ErrPrecondition: the running policy is not the one the caller started from (412).
var ErrPrecondition = errors.New("the running policy has changed since you read it")

// ErrNoRevision: the history holds no such revision (404).
var ErrNoRevision = errors.New("no such policy revision")

// FieldsError: a reload would change settings that cannot be changed while running (409).
type FieldsError struct {
	// Fields names each setting with what it would take, for instance "engine.args (needs a restart of admitd)".
	Fields []string
}

// Error implements error.
func (e *FieldsError) Error() string {
	return "these settings cannot be changed by a reload: " + strings.Join(e.Fields, ", ")
}
