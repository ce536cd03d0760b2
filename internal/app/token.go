package app

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"admitd/internal/strict"
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
	b, err := strict.Read(file, 5*time.Second)
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
	// Written whole beside its place, then linked there: whoever was first wins, and everybody has the same token.
	tmp, err := os.CreateTemp(filepath.Dir(file), ".tmp-*")
	if err != nil {
		return "", fmt.Errorf("write admin token: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.WriteString(hex.EncodeToString(raw[:]) + "\n")
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Link(tmp.Name(), file)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		err = os.Rename(tmp.Name(), file) // a file system without links
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("write admin token: %w", err)
	}
	return ReadToken(file)
}
