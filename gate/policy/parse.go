package policy

import (
	"crypto/sha256"
	_ "embed" // for the default policy
	"encoding/hex"
	"slices"
	"time"

	"admitd/gate/reason"
	"admitd/internal/strict"
)

// The names of the policies.
const (
	AdmitAll    = "admit-all"
	Concurrency = "concurrency"
	QueueDepth  = "queue-depth"
	KVThreshold = "kv-threshold"
	DualGate    = "dual-gate"
	Saturation  = "saturation"
)

// Bounds of a policy file.
const (
	minRetry = time.Second
	// maxRetry: above 60 s the SDKs of OpenAI and Anthropic ignore Retry-After, give up or sleep without bound.
	maxRetry       = 60 * time.Second
	maxHoldWait    = 10 * time.Minute
	maxHold        = 100_000
	maxDescription = 500
	defaultHold    = 2 * time.Second
	defaultHeld    = 64
)

//go:embed default.yaml
var defaultSource string

// Default returns the YAML text of the policy that is used when none is named.
func Default() []byte { return []byte(defaultSource) }

// kind describes one policy: its parameters with their defaults, and how to build it.
type kind struct {
	name   string
	params []string
	fill   func(*Params)
	build  func(Spec) *ruled
}

// kinds lists the policies in the order of the documentation, simplest first.
func kinds() []kind {
	return []kind{
		{AdmitAll, nil, func(*Params) {}, newAdmitAll},
		{Concurrency, []string{"max_in_flight"}, func(p *Params) { setDefault(&p.MaxInFlight, 32) }, newConcurrency},
		{QueueDepth, []string{"max_waiting"}, func(p *Params) { setDefault(&p.MaxWaiting, 2) }, newQueueDepth},
		{KVThreshold, []string{"max_kv_used"}, func(p *Params) { setDefault(&p.MaxKVUsed, 0.9) }, newKVThreshold},
		{DualGate, []string{"max_waiting", "max_kv_used"}, func(p *Params) {
			setDefault(&p.MaxWaiting, 8)
			setDefault(&p.MaxKVUsed, 0.95)
		}, newDualGate},
		{Saturation, []string{"waiting_scale", "kv_scale", "max_saturation"}, func(p *Params) {
			setDefault(&p.WaitingScale, 5)
			setDefault(&p.KVScale, 0.8)
			setDefault(&p.MaxSaturation, 1)
		}, newSaturation},
	}
}

func setDefault[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

// Names lists the policies, simplest first.
func Names() []string {
	var out []string
	for _, k := range kinds() {
		out = append(out, k.name)
	}
	return out
}

func kindOf(name string) (kind, bool) {
	ks := kinds()
	i := slices.IndexFunc(ks, func(k kind) bool { return k.name == name })
	if i < 0 {
		return kind{}, false
	}
	return ks[i], true
}

// Parse reads a policy file: strict decoding, validation, then defaults. Every error is a *strict.Error with
// file, line, column and field. The file name is only for messages.
func Parse(file string, src []byte) (*Spec, error) {
	s := Spec{
		OnStale: StaleLedger,
		Hold:    HoldSpec{MaxWait: defaultHold, MaxRequests: defaultHeld},
		Retry:   RetrySpec{Min: minRetry, Max: maxRetry},
	}
	if err := strict.Decode(file, src, &s); err != nil {
		return nil, err
	}
	if err := check(file, src, &s); err != nil {
		return nil, err
	}
	k, _ := kindOf(s.Policy)
	k.fill(&s.Params)
	return &s, nil
}

// Compile parses a policy file and makes the policy ready to serve. Errors are those of Parse.
func Compile(file string, src []byte) (*Compiled, error) {
	s, err := Parse(file, src)
	if err != nil {
		return nil, err
	}
	k, _ := kindOf(s.Policy)
	sum := sha256.Sum256(src)
	return &Compiled{
		Policy: k.build(*s),
		Rev:    hex.EncodeToString(sum[:])[:12],
		Source: slices.Clone(src),
		File:   file,
		Spec:   *s,
	}, nil
}

// StatusFor is the HTTP status sent for a reason under this policy: its own mapping, else the catalogue's.
func (c *Compiled) StatusFor(code reason.Code) int {
	if n, ok := c.Spec.Codes[code]; ok {
		return n
	}
	e, _ := reason.Lookup(code)
	return e.Status
}
