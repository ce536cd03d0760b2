package admission

import (
	"errors"
	"time"

	"admitd/gate/policy"
)

// ErrNotInFlight says that a settlement named a request that is not in flight: never admitted, or settled before.
var ErrNotInFlight = errors.New("the request is not in flight")

// Config is what a controller is told once. The zero value works: nothing known, no tickets.
type Config struct {
	// Slots is the engine's limit on running sequences; 0 means not known, and it is then learnt from scrapes.
	Slots int
	// KVCapacityTokens is used until a scrape or SetEngine tells the capacity; 0 means not known.
	KVCapacityTokens int
	// MaxContextTokens is the model's context; 0 means not known.
	MaxContextTokens int
	// TicketKey signs tickets; empty means that none are given out. Keep it secret and at least 16 bytes long.
	TicketKey []byte
	// PoolNonce tells this pool's tickets from another's and from those of an earlier life. The caller draws it at
	// random at start; 0 derives one from the key.
	PoolNonce uint64
	// SignalStaleAfter is the age from which a scrape counts as stale, besides the snapshot's own limit; 0 means
	// that only the snapshot's limit counts.
	SignalStaleAfter time.Duration
	// DefaultOutputTokens is set aside per sequence until completions have been seen; 0 means 256.
	DefaultOutputTokens int
	// MediaTokens is the estimate for one image, audio or video part; 0 means 800.
	MediaTokens int
	// MaxPromises bounds the slots promised at one time; 0 means 4096. Beyond it callers get a time but no ticket.
	MaxPromises int
	// Shared says that others than this gate send work to the engine. Then an engine that looks busy with nothing
	// of ours in flight is believed.
	Shared bool
}

func (c Config) withDefaults() Config {
	c.Slots = max(0, c.Slots)
	c.KVCapacityTokens = max(0, c.KVCapacityTokens)
	c.MaxContextTokens = max(0, c.MaxContextTokens)
	c.DefaultOutputTokens = positiveOr(c.DefaultOutputTokens, 256)
	c.MediaTokens = positiveOr(c.MediaTokens, 800)
	c.MaxPromises = positiveOr(c.MaxPromises, 4096)
	return c
}

func positiveOr(v, def int) int {
	if v > 0 {
		return v
	}
	return def
}

// New returns a controller with nothing in flight. A nil policy means the default one.
func New(cfg Config, p *policy.Compiled) *Controller {
	cfg = cfg.withDefaults()
	if p == nil {
		p = defaultPolicy()
	}
	return &Controller{
		cfg: cfg, policy: p,
		engine:  engineFacts{slots: cfg.Slots, kvCapacity: cfg.KVCapacityTokens, maxModelLen: cfg.MaxContextTokens},
		books:   newLedger(),
		est:     newEstimator(cfg),
		tickets: newTicketBook(cfg),
		hold:    holdQueue{items: map[ID]*heldItem{}},
	}
}

// defaultPolicy is compiled from text that the policy package's own tests hold valid.
func defaultPolicy() *policy.Compiled {
	p, err := policy.Compile("", policy.Default())
	if err != nil {
		p, _ = policy.Compile("", []byte("policy: "+policy.Concurrency+"\n"))
	}
	return p
}
