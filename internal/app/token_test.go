package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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
