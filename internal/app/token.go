package app

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// StateDir returns the folder for what admitd remembers: the configured one, else $XDG_STATE_HOME/admitd, else
// ~/.local/state/admitd. It does not make it.
func StateDir(configured string) (string, error) {
	if configured != "" {
		return configured, nil
	}
	if x := os.Getenv("XDG_STATE_HOME"); x != "" {
		return filepath.Join(x, "admitd"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the state folder: %w; set state_dir", err)
	}
	return filepath.Join(home, ".local", "state", "admitd"), nil
}

// TokenFile returns where the admin token is kept.
func TokenFile(configured, stateDir string) string {
	if configured != "" {
		return configured
	}
	return filepath.Join(stateDir, "admin.token")
}

// minToken is the fewest characters that an admin token may have.
const minToken = 16

// ReadToken reads an admin token. Errors tell an absent file apart by os.ErrNotExist; a token too short is a *SetupError.
func ReadToken(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read admin token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < minToken {
		return "", setup("admin token in %s has %d characters; it needs at least %d; remove the file to have one made", file, len(token), minToken)
	}
	return token, nil
}

// ensureToken reads the admin token, or makes one that only we can read.
func ensureToken(file string) (string, error) {
	token, err := ReadToken(file)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return token, err
	}
	var raw [24]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", fmt.Errorf("make admin token: %w", err)
	}
	token = hex.EncodeToString(raw[:])
	return token, writeFileAtomic(file, []byte(token+"\n"))
}
