package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"admitd/gate"
	"admitd/gate/admission"
	"admitd/gate/dialect"
	"admitd/gate/quota"
	"admitd/internal/config"
	"admitd/nvml"
	"admitd/ui"
	"admitd/ui/api"
)

// build makes the gate, the reloader and the dashboard around the pool.
func (a *instance) build(reg *prometheus.Registry, token string) error {
	c := a.o.Config
	keys, err := quota.New(quotaKeys(c.Keys))
	if err != nil {
		return &SetupError{err}
	}
	classes := make(map[string]gate.SLO, len(c.Classes))
	for name, s := range c.Classes {
		classes[name] = gate.SLO{TTFT: s.TTFT, TPOT: s.TPOT}
	}
	a.gate, err = gate.New(gate.Options{
		Pools: []*gate.Pool{a.pool.gatePool()}, Keys: keys, Classes: classes, DefaultClass: c.DefaultClass,
		Limits: gate.Limits{
			MaxBodyBytes: int64(c.Limits.MaxBody), MaxBufferedBytes: int64(c.Limits.MaxBuffered),
			BodyTimeout: c.Limits.BodyTimeout, HelperConcurrency: c.Limits.HelperConcurrency,
		},
		FirstEventWait: none(c.Relay.FirstEventWait), WriteStall: none(c.Relay.WriteStall), KeepAliveComment: c.Relay.KeepAlive,
		OpenPaths: openPaths(c.Relay.OpenPaths), ModelNameInResponse: gate.ResponseModel(c.Relay.ResponseModel),
		StatusOverrides: c.RefuseCodes, Logger: a.o.Logger.With("component", "gate"), Registerer: reg,
	})
	if err != nil {
		return &SetupError{err}
	}
	a.reloader = newReloader(a.o, a.pool.store)
	var boot [8]byte
	if _, err := rand.Read(boot[:]); err != nil {
		return fmt.Errorf("make boot id: %w", err)
	}
	a.admin, err = ui.New(ui.Options{
		Backend: a, Version: a.o.Version, BootID: hex.EncodeToString(boot[:]), Token: token, Addr: a.adminAddr,
		AllowedHosts: c.Admin.AllowedHosts, UIDir: a.o.UIDir, Registry: reg, Logger: a.o.Logger.With("component", "admin"),
	})
	return err
}

func quotaKeys(keys []config.Key) []quota.Key {
	out := make([]quota.Key, 0, len(keys))
	for _, k := range keys {
		tenant := k.Tenant
		if tenant == "" {
			tenant = k.ID
		}
		out = append(out, quota.Key{ID: k.ID, SHA256: k.SHA256, Tenant: tenant, Models: k.Models, Class: k.Class, Expires: k.Expires, MayChooseClass: k.MayChooseClass})
	}
	return out
}

// none turns the file's 0 (not at all) into the gate's word for it.
func none(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

func openPaths(paths []config.OpenPath) []dialect.Opening {
	out := make([]dialect.Opening, 0, len(paths))
	for _, p := range paths {
		out = append(out, dialect.Opening{Path: p.Path, Class: dialect.Class(p.Class)})
	}
	return out
}

var _ ui.Backend = (*instance)(nil)

// Pools implements ui.Backend.
func (a *instance) Pools() []ui.PoolBackend {
	p := a.pool
	class := a.o.Config.Classes[a.o.Config.DefaultClass]
	return []ui.PoolBackend{{
		Model: p.name, Aliases: p.config.Aliases, Engine: p.engine, Restart: p.engine.Restart,
		Snapshot: p.snapshot, ScrapeInterval: p.scraper.Interval,
		Digest: func(_ time.Time, d admission.Depth) admission.Digest { return p.admission.Dump(d) },
		GPU:    p.gpu, Serving: p.serving,
		Journal: p.journal, Policy: p.store, SLOTTFT: class.TTFT, SLOTPOT: class.TPOT,
	}}
}

func (p *pool) gpu() *nvml.Reading {
	if p.monitor == nil {
		return &nvml.Reading{State: nvml.Unavailable, Why: "switched off by gpu.disabled"}
	}
	return p.monitor.Reading()
}

// GateAddress implements ui.Backend.
func (a *instance) GateAddress() string { return a.gateAddr }

// Config implements ui.Backend.
func (a *instance) Config() api.ConfigStatus {
	return a.reloader.Status()
}

// Reload implements ui.Backend.
func (a *instance) Reload(ctx context.Context, source string) (api.ReloadResult, error) {
	var bad error
	if a.certs != nil {
		bad = a.certs.Reload(source)
	}
	res, err := a.reloader.Reload(ctx, source)
	if err == nil && bad != nil {
		err = fmt.Errorf("the certificate in use stays, everything else was read: %w", bad)
	}
	return res, err
}
