package app

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// warnOpen says what other users of the machine can get at and should not (docs/security.md), and the command that changes it.
// It changes nothing itself: who may read a folder that was there before admitd is its owner's to say. A token file that the
// configuration names may belong to a group.
func warnOpen(l *slog.Logger, stateDir, journalDir, tokenFile string) {
	own := []string{stateDir, filepath.Join(stateDir, "ticket.key")}
	if journalDir != "" {
		own = append(own, journalDir)
	}
	if inside := TokenFile("", stateDir); tokenFile == inside {
		own = append(own, inside)
	} else {
		warnMode(l, tokenFile, 0o007)
	}
	for _, path := range own {
		warnMode(l, path, 0o077)
	}
}

// warnMode warns when a file or folder has any of the forbidden permissions.
func warnMode(l *slog.Logger, path string, forbidden fs.FileMode) {
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm()&forbidden == 0 {
		return
	}
	l.Warn("other users of this machine can get at what is admitd's alone", "path", path, "mode", fmt.Sprintf("%04o", st.Mode().Perm()),
		"fix", fmt.Sprintf("chmod %04o %s", st.Mode().Perm()&^forbidden, path))
}
