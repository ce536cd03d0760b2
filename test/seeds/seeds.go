// Package seeds gives fuzz targets what was captured from real engines, and the files that admitd ships, as seeds.
//
// Goal: every target begins from what is really sent, not only from what its author thought of.
//
// Non-goals: understanding the files; a target that wants a part of one cuts it out itself.
//
// Invariants: a pattern that finds nothing fails the test, so that a moved file is noticed.
package seeds

import (
	"os"
	"path/filepath"
	"testing"
)

// Files reads the files that the patterns (filepath.Match) name, relative to the test's folder, in order of the patterns
// and then of the names.
func Files(tb testing.TB, patterns ...string) [][]byte {
	tb.Helper()
	var all [][]byte
	for _, p := range patterns {
		names, err := filepath.Glob(p)
		if err != nil || len(names) == 0 {
			tb.Fatalf("no seeds at %s: %v", p, err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				tb.Fatal(err)
			}
			all = append(all, b)
		}
	}
	return all
}
