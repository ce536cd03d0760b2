package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestTokenIsMadeOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "admin.token")
	token, err := ensureToken(file)
	if err != nil || len(token) != 48 {
		t.Fatalf("%q %v", token, err)
	}
	st, err := os.Stat(file)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("others can read it: %v %v", st.Mode(), err)
	}
	for _, get := range []func(string) (string, error){ensureToken, ReadToken} {
		if again, err := get(file); again != token || err != nil {
			t.Errorf("%q %v, want the first one", again, err)
		}
	}
	if other, err := ensureToken(filepath.Join(t.TempDir(), "admin.token")); err != nil || other == token {
		t.Errorf("two files have the same token, %v", err)
	}
}

// fullDisk is a new file on a disk that takes its name and nothing more.
type fullDisk struct{ *os.File }

func (f fullDisk) Write(p []byte) (int, error) {
	n, _ := f.File.Write(p[:3])
	return n, &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
}

func TestAFullDiskAtTheFirstStartIsSaidAndSpoilsNoLaterOne(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "admin.token")
	_, err := ensureSecretWith("admin token", file, func(dir string) (secretFile, error) {
		f, err := os.CreateTemp(dir, ".tmp-*")
		return fullDisk{f}, err
	})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "write admin token to "+file) || !strings.Contains(err.Error(), "make room (df -h "+dir+")") {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("the failed start left %v", left)
	}
	if token, err := ensureToken(file); err != nil || len(token) != 48 {
		t.Errorf("with room again: %q %v", token, err)
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte("  fifteen-letters \n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, get := range []func(string) (string, error){ensureToken, ReadToken} {
		var setup *SetupError
		if _, err := get(short); !errors.As(err, &setup) || !strings.Contains(err.Error(), short+" has 15 characters; it needs at least 16") || strings.Contains(err.Error(), "fifteen") {
			t.Errorf("%v", err)
		}
		if _, err := get(dir); err == nil || errors.Is(err, os.ErrNotExist) {
			t.Errorf("a folder as the token's file: %v", err)
		}
	}
	if b, _ := os.ReadFile(short); !strings.Contains(string(b), "fifteen") {
		t.Error("somebody's own token was overwritten")
	}
	if _, err := ReadToken(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if token, err := ensureToken(filepath.Join(dir, "no", "folder")); err == nil {
		t.Errorf("made %q where it cannot be kept", token)
	}
}

func TestStateDir(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/xdg")
	t.Setenv("HOME", "/h")
	for _, c := range []struct{ configured, xdg, want string }{
		{"/own", "/xdg", "/own"}, {"", "/xdg", "/xdg/admitd"}, {"", "", "/h/.local/state/admitd"},
	} {
		t.Setenv("XDG_STATE_HOME", c.xdg)
		if got, err := StateDir(c.configured); got != c.want || err != nil {
			t.Errorf("%+v: %s %v", c, got, err)
		}
	}
	t.Setenv("HOME", "")
	if _, err := StateDir(""); err == nil || !strings.Contains(err.Error(), "set state_dir") {
		t.Errorf("%v", err)
	}
	if got := TokenFile("", "/s"); got != "/s/admin.token" {
		t.Error(got)
	}
	if got := TokenFile("/own", "/s"); got != "/own" {
		t.Error(got)
	}
}
