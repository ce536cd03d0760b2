package app

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAStateFolderOrTokenThatOthersCanReadIsSaid(t *testing.T) {
	state, elsewhere := t.TempDir(), t.TempDir()
	record, own, named := filepath.Join(state, "journal"), filepath.Join(state, "admin.token"), filepath.Join(elsewhere, "token")
	for _, c := range []struct {
		name  string
		token string
		modes map[string]os.FileMode
		want  []string // the remedies
	}{
		{"all is closed", own, map[string]os.FileMode{}, nil},
		{"an open folder", own, map[string]os.FileMode{state: 0o755}, []string{"chmod 0700 " + state}},
		{"an open token", own, map[string]os.FileMode{own: 0o644}, []string{"chmod 0600 " + own}},
		{"an open record and ticket key", own, map[string]os.FileMode{record: 0o750, filepath.Join(state, "ticket.key"): 0o640}, []string{"chmod 0700 " + record, "chmod 0600 " + filepath.Join(state, "ticket.key")}},
		{"a token of a group's", named, map[string]os.FileMode{named: 0o640}, nil},
		{"a token of everybody's", named, map[string]os.FileMode{named: 0o644, own: 0o644}, []string{"chmod 0640 " + named}},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := map[string]os.FileMode{state: 0o700, record: 0o700, own: 0o600, filepath.Join(state, "ticket.key"): 0o600, named: 0o600}
			for path, mode := range all {
				if filepath.Dir(path) == state && path != record || path == named {
					if err := os.WriteFile(path, nil, 0o600); err != nil {
						t.Fatal(err)
					}
				} else if err := os.MkdirAll(path, 0o700); err != nil {
					t.Fatal(err)
				}
				if other, ok := c.modes[path]; ok {
					mode = other
				}
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			warnOpen(slog.New(slog.NewTextHandler(&log, nil)), state, record, c.token)
			if n := strings.Count(log.String(), "level=WARN"); n != len(c.want) {
				t.Errorf("%d warnings, want %d: %s", n, len(c.want), log.String())
			}
			for _, fix := range c.want {
				if !strings.Contains(log.String(), fix+"\"") {
					t.Errorf("no %q in %s", fix, log.String())
				}
			}
		})
	}
}
