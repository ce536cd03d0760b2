package app

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// minToken is the fewest characters that a secret in a file may have.
const minToken = 16

// ReadToken reads an admin token. Errors tell an absent file apart by os.ErrNotExist; a token too short is a *SetupError.
func ReadToken(file string) (string, error) { return readSecret("admin token", file) }

// ensureToken reads the admin token, or makes one that only we can read.
func ensureToken(file string) (string, error) { return ensureSecret("admin token", file) }

// ensureTicketKey reads the key that signs tickets, or makes one: what was promised holds for the next admitd too.
func ensureTicketKey(stateDir string) ([]byte, error) {
	text, err := ensureSecret("ticket key", filepath.Join(stateDir, "ticket.key"))
	return []byte(text), err
}

func readSecret(what, file string) (string, error) {
	b, err := strict.Read(file, 5*time.Second)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", what, err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < minToken {
		return "", setup("%s in %s has %d characters; it needs at least %d; remove the file to have one made", what, file, len(token), minToken)
	}
	return token, nil
}

func ensureSecret(what, file string) (string, error) {
	return ensureSecretWith(what, file, func(dir string) (secretFile, error) { return os.CreateTemp(dir, ".tmp-*") })
}

// secretFile is the part of *os.File that a secret is written through.
type secretFile interface {
	io.WriteCloser
	Sync() error
	Name() string
}

func ensureSecretWith(what, file string, create func(dir string) (secretFile, error)) (string, error) {
	token, err := readSecret(what, file)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return token, err
	}
	var raw [24]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", fmt.Errorf("make %s: %w", what, err)
	}
	// Written whole beside its place, then linked there: whoever was first wins, and everybody has the same one.
	tmp, err := create(filepath.Dir(file))
	if err != nil {
		return "", notWritten(what, file, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write([]byte(hex.EncodeToString(raw[:]) + "\n"))
	if err == nil {
		err = tmp.Sync() // before it has its name: a machine that goes down must not leave the name alone
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", notWritten(what, file, err)
	}
	err = os.Link(tmp.Name(), file)
	if err != nil && !errors.Is(err, os.ErrExist) {
		err = os.Rename(tmp.Name(), file) // a file system without links
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return "", notWritten(what, file, err)
	}
	return readSecret(what, file)
}

// notWritten says what to do where the cause is one that people can mend.
func notWritten(what, file string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("write %s to %s: %w; make room (df -h %s), then start again", what, file, err, filepath.Dir(file))
	}
	return fmt.Errorf("write %s to %s: %w", what, file, err)
}
