package app

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"admitd/internal/config"
	"admitd/supervisor"
)

// An upgrade goes on with the very engine that runs, in the very state folder. The successor finds out whether it would,
// before the predecessor gives anything up.

// errOtherFolder: the successor was led to another state folder than the one it is to take over.
var errOtherFolder = errors.New("is not the folder that the running admitd works in, or that one was removed or replaced; an upgrade keeps the state folder: put it back, or restart admitd")

// softSettings reach the engine only in what they come to together, so that a change of one need not matter.
var softSettings = [...]string{"engine.drain_timeout", "engine.stop_grace"}

// engineSettings are the settings that decide how an engine is launched, by name, each as a hash: a key may be among them.
func engineSettings(c config.Config, so supervisor.Options) map[string]string {
	all := map[string]string{
		"engine.kind": string(so.Kind), "engine.url": so.URL, "model": so.Model, "model_name": c.ServedName(),
		"aliases": strings.Join(c.Aliases, "\x00"), "engine.args": strings.Join(so.Args, "\x00"),
		"engine.binary or engine.version": so.Binary, "engine.port": strconv.Itoa(so.EnginePort),
		"engine.drain_timeout": c.Engine.DrainTimeout.String(), "engine.stop_grace": c.Engine.StopGrace.String(),
	}
	if so.Kind == supervisor.External {
		// It was launched by somebody else: the address is all there is to it.
		for name := range all {
			if name != "engine.kind" && name != "engine.url" {
				delete(all, name)
			}
		}
	}
	for name, value := range all {
		sum := sha256.Sum256([]byte(value))
		all[name] = hex.EncodeToString(sum[:])
	}
	return all
}

// changedSettings names those that differ, sorted, and says whether one of them alone makes another engine. What only one of
// the two knows, because it is of another version, is left to the comparison of what was launched.
func changedSettings(before, now map[string]string) (names []string, another bool) {
	for name, value := range now {
		if old, known := before[name]; known && old != value {
			names = append(names, name)
			another = another || !slices.Contains(softSettings[:], name)
		}
	}
	slices.Sort(names)
	return names, another
}

// sameEngine reports whether we would adopt the predecessor's engine, and if not, which setting is in the way.
func (a *instance) sameEngine() error {
	hello := a.heir.hello
	names, another := changedSettings(hello.Settings, a.pool.launchedBy)
	var err error
	if hello.PID != 0 && !another {
		err = a.pool.swap.Adoptable(hello.PID)
	}
	switch {
	case another || err != nil && len(names) > 0:
		return fmt.Errorf("%s changed: the engine would have to be replaced, and an upgrade goes on with the one that runs; put it back, or restart admitd for that", strings.Join(names, " and "))
	case err != nil:
		return fmt.Errorf("%w; try again when it is ready, or restart admitd, which loads the engine anew", err)
	}
	return nil
}
