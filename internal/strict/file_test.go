package strict

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestFileWhoseReadWouldBlockIsRefused(t *testing.T) {
	dir := t.TempDir()
	pipe, good, link, absent := filepath.Join(dir, "pipe"), filepath.Join(dir, "good"), filepath.Join(dir, "link"), filepath.Join(dir, "absent")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(good, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{pipe: "it is a pipe; name a regular file", dir: "it is a folder", os.DevNull: "it is a device", absent: "no such file"} {
		_, err := ReadFile("policy", name)
		var se *Error
		if !errors.As(err, &se) || se.Places[0].File != name || !strings.Contains(err.Error(), "cannot read policy: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", name, err, want)
		}
		if errors.Is(err, os.ErrNotExist) != (name == absent) {
			t.Errorf("%s: not told apart from an absent file: %v", name, err)
		}
	}
	for _, name := range []string{good, link} {
		if b, err := ReadFile("policy", name); err != nil || string(b) != "x" {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}
}
