// Package configs embeds the files that admitd ships: model short names, the engines it knows.
//
// Goal: the binary is complete on its own. Non-goals: reading them (internal/config and internal/install do).
// Invariant: what is embedded passes the same strict checks as a user's file; a test says so.
package configs

import _ "embed" // for the files below

// Models is models.yaml.
//
//go:embed models.yaml
var Models []byte

// Engines is engines.yaml.
//
//go:embed engines.yaml
var Engines []byte
